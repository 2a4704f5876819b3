"""From a name to a loaded model: tiny twins, builds from published configs, real weights.

`targets` lists what a family offers on this machine, `resolve` turns what a user typed into a target, `load` builds or
loads it. Importing this package loads neither torch nor transformers; `load` does.
"""

from __future__ import annotations

from probe.checkpoints.listing import missing, targets
from probe.checkpoints.resolve import resolve
from probe.checkpoints.target import Kind, Loaded, Progress, Target, Task

__all__ = ["Kind", "Loaded", "Progress", "Target", "Task", "load", "missing", "require_device", "resolve", "targets"]


def load(
    target: Target,
    *,
    attn: str = "eager",
    dtype: str | None = None,
    device: str = "cpu",
    offline: bool = False,
    progress: Progress | None = None,
) -> Loaded:
    """Builds or loads a target.

    Args:
        attn: attention implementation: ``eager``, ``sdpa``, or another one of transformers.
        dtype: ``float32``, ``bfloat16``, …; None is float32 for a twin, as published otherwise.
        device: ``cpu``, ``cuda``, ``cuda:0``, …; elsewhere than on the CPU, real weights are spread by accelerate.
            A build from a config is on ``meta`` whatever is asked.
        offline: ask the Hub for nothing; use what is cached.
        progress: told about steps that take long.

    Raises:
        ProbeError: a sentence for each way in which a checkpoint can be missing, broken, gated or too large.
    """
    from probe.checkpoints.attention import asked_for

    with asked_for(attn):
        if target.kind == "weights":
            from probe.checkpoints.weights import load_weights

            return load_weights(target, attn=attn, dtype=dtype, device=device, offline=offline, progress=progress)
        from probe.checkpoints.builds import load_config, load_twin

        if target.kind == "config":
            return load_config(target, attn=attn, dtype=dtype)
        return load_twin(target, attn=attn, dtype=dtype, device=device)


def require_device(name: str) -> None:
    """Raises ProbeError for a device that torch does not have, or that nothing can run on here."""
    from probe.checkpoints.devices import checked

    checked(name)
