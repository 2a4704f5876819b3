"""Devices a checkpoint can run on here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe.errors import ProbeError

if TYPE_CHECKING:
    import torch


def checked(device: str) -> torch.device:
    """The device of a name. Raises ProbeError where torch has no such device, none on this machine, or none that
    keeps numbers."""
    import torch

    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ProbeError(f"{device!r} is not a device of torch: use cpu, cuda or cuda:0.") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ProbeError("This machine has no CUDA device that torch can use: run with `--device cpu`.")
    try:
        torch.ones(1, device=found).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        said = " ".join(str(error).split()).split(". ")[0].rstrip(".")
        raise ProbeError(f"Nothing can run on {device!r} here ({said[:200]}): run with `--device cpu`.") from error
    return found
