"""A CUDA C++ file as C++ that compiles with the stand-in for CUDA's runtime. No arithmetic is changed."""

from __future__ import annotations

import re

REWRITTEN = [
    # Headers of CUDA, CUB and PyTorch's CUDA side: the stand-in is included in their place.
    (r"^[ \t]*#[ \t]*include[ \t]*<(?:cub/|cuda|c10/cuda/|ATen/cuda/)[^>\n]*>", ""),
    # A launch, which is no C++.
    (r"([A-Za-z_][\w:]*(?:<[^<>;]*>)?)\s*<<<([^;]*?)>>>\s*\(", r"cuda_on_cpu::launch(\1, \2)("),
    # Shared memory whose size the launch gives.
    (r"\bextern\s+__shared__\s+([\w:]+)\s+(\w+)\s*\[\s*\]\s*;", r"auto &\2 = cuda_on_cpu::dynamic_shared<\1>();"),
    # Tensors are on the processor.
    (r"\.is_cuda\(\)", ".is_cpu()"),
    # The backward is left out: where it is declared, it raises.
    (r"(_bwd_cuda\([^()]*\))\s*;", r'\1 { throw std::runtime_error("no backward was compiled"); }'),
]
"""What no C++ compiler takes, or what needs a device, and what stands in its place."""

LEFT = re.compile(r"<<<|\bextern\s+__shared__")


def translated(source: str) -> str:
    """The file's text with each of :data:`REWRITTEN` in place. Raises ValueError where CUDA's syntax is left."""
    for pattern, by in REWRITTEN:
        source = re.sub(pattern, by, source, flags=re.MULTILINE)
    if left := LEFT.search(source):
        line = source[: left.start()].count("\n") + 1
        raise ValueError(f"line {line} has `{left.group()}` in a form that is not known")
    return source
