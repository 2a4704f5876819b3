"""Latent attention is told by the rank of the values, not by a config's entries or a class's name."""

from __future__ import annotations

import pytest
import torch

from probe.checkpoints import load, targets
from probe.experiments.attention.latent import QUIRKS, latent_attention
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer


def _run(family: str, narrow: int | None = None) -> Run:
    """A run of a family's first twin; its value projections of a rank of at most ``narrow`` where one is given."""
    loaded = load(next(target for target in targets(family) if target.kind == "tiny"))
    if narrow is not None:
        for name, parameter in loaded.module.named_parameters():
            if "v_proj" in name and parameter.ndim == 2:
                left, strength, right = torch.linalg.svd(parameter.data, full_matrices=False)
                parameter.data.copy_(left[:, :narrow] * strength[:narrow] @ right[:narrow])
    return measure(StandardizedTransformer(loaded))


@pytest.mark.parametrize(
    ("family", "blocks"),
    [("deepseek_v3", [0, 1, 2, 3]), ("dots3_note_text", [0, 1, 2, 3, 4, 5]), ("minicpm3", [0, 1, 2])],
)
def test_values_out_of_a_narrow_vector(family: str, blocks: list[int]) -> None:
    found = latent_attention(_run(family))
    assert (found.verdict, found.blocks) == ("yes", blocks)
    assert found.measured["rank"] == 28
    assert found.explained == ({} if family == "dots3_note_text" else {"rank": "kv_lora_rank"})


def test_a_published_checkpoint_is_told_with_its_own_rank() -> None:
    (quirk,) = QUIRKS
    assert quirk.say({"rank": 512}, [0, 1], 2).endswith("narrower than they are: values vary in 512 directions.")
    assert quirk.say({}, [0, 1], 2).endswith("narrower than they are.")


@pytest.mark.parametrize("family", ["bloom", "gpt2", "llama", "olmo", "qwen3_next"])
def test_values_as_wide_as_their_projection(family: str) -> None:
    assert latent_attention(_run(family)).verdict == "no"


def test_a_projection_made_narrow_by_hand() -> None:
    found = latent_attention(_run("llama", narrow=5))
    assert (found.verdict, found.measured["rank"]) == ("yes", 5)


def test_a_model_without_attention() -> None:
    assert latent_attention(_run("mamba")).verdict == "n/a"
