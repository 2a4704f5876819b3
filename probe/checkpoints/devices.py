"""Devices a checkpoint can run on here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe.errors import ProbeError

if TYPE_CHECKING:
    import torch


def checked(device: str) -> torch.device:
    """The device of a name. Raises: ProbeError if torch has no such device, or none on this machine."""
    import torch

    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise ProbeError(f"{device!r} is not a device of torch: use cpu, cuda or cuda:0.") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ProbeError("This machine has no CUDA device that torch can use: run with `--device cpu`.")
    return found
