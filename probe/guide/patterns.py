"""The guide's pages, the numbers that each one's code leaves behind, and what all of them run on."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from probe.snippets.code import Subject, blocks
from probe.store import ROOT

FOLDER = ROOT / "site_src" / "guide"

SUBJECTS = {
    Subject("llama", "tiny"): "dense, a norm before each sublayer",
    Subject("cohere", "tiny"): "attention and MLP in parallel, scaled logits",
    Subject("falcon", "tiny"): "attention and MLP in parallel, added in place",
    Subject("bloom", "tiny"): "modules that add the stream themselves, norms with biases",
    Subject("gemma2", "tiny"): "a norm before and after each sublayer, softcaps",
    Subject("gemma4_text", "tiny"): "scaled sums, inputs for every block, borrowed keys and values",
    Subject("olmo2", "tiny"): "a norm after each sublayer only",
    Subject("granite", "tiny"): "multipliers on embeddings, contributions and logits",
    Subject("mixtral", "tiny"): "mixture of experts",
    Subject("jetmoe", "tiny"): "experts in the attention",
    Subject("qwen3_next", "tiny"): "hybrid of recurrent mixers and attention, with experts",
    Subject("mamba2", "tiny"): "state space, one sublayer a block",
    Subject("openai-gpt", "tiny"): "the stream normed after each add",
}
"""The twins, each with what it stands for."""

REAL = (Subject("llama", "HuggingFaceTB/SmolLM2-135M-Instruct"), Subject("gemma3_text", "google/gemma-3-270m"))
"""The models with published weights."""


@dataclass(frozen=True)
class Pattern:
    """A page of the guide.

    Attributes:
        columns: names that its code binds to a number, each with the heading of its column.
    """

    slug: str
    title: str
    columns: dict[str, str]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.slug}.md"

    def digest(self) -> str:
        """Of all the page's code."""
        code = "".join(block.code for block in blocks(self.path, subject=REAL[0]))
        return sha256(code.encode()).hexdigest()


PATTERNS = (
    Pattern(
        "logit-lens",
        "Logit lens",
        {
            "past_head": "what follows the head moves a logit by at most",
            "twice": "a norm too many moves a logit by at most",
            "halved": "halving the stream moves a logit by at most",
        },
    ),
    Pattern("activation-patching", "Activation patching", {"by_embeddings": "share recovered by the embeddings alone"}),
    Pattern(
        "head-ablation",
        "Head ablation",
        {
            "blocks": "blocks with heads",
            "heads_of_first": "heads in the first block with heads",
            "apart": "share of the whole move that single heads' moves miss",
        },
    ),
    Pattern(
        "steering",
        "Steering",
        {
            "size": "vector's length as a share of the stream's",
            "weight": "weight of the last contribution",
            "missed": "share of the vector missed if added to the module's output",
        },
    ),
    Pattern(
        "contributions",
        "Contributions",
        {"terms": "number of contributions", "lightest": "least weight of one", "heaviest": "greatest weight of one"},
    ),
)
"""In the order of the guide's index."""
