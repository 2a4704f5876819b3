"""Real weights: a local directory, a converted GGUF file, or a repository of the Hub, all by one road.

The road: files on disk, checked; the config's class; ``from_pretrained``, which maps the safetensors and so needs
little more memory than the weights; elsewhere than on the CPU, accelerate spreads the blocks over the devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from probe.checkpoints import bars, classes, digest, files, hub, real, wrappers
from probe.checkpoints.builds import published_dtype, torch_dtype
from probe.checkpoints.devices import checked
from probe.checkpoints.gaps import REPORTED, refuse_gaps, said
from probe.checkpoints.repairs import repair
from probe.checkpoints.target import Loaded, Progress, Target
from probe.errors import ProbeError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def load_weights(
    target: Target, *, attn: str, dtype: str | None, device: str, offline: bool, progress: Progress | None
) -> Loaded:
    """Loads real weights, see `probe.checkpoints.load`."""
    placement = _placement(device)
    directory, source = _directory(target, offline, progress)
    stored = files.check_weights(directory)
    raw = files.read_config(directory)
    wrappers.require(target, raw)
    config = classes.config_from(raw)
    config._attn_implementation = attn
    wanted = torch_dtype(dtype) or published_dtype(config)
    repair(config)
    _require_memory(target.id, sum(stored.values()) * wanted.itemsize, placement)
    if progress:
        progress("loading the weights", 0.5)
    module = _module(target.id, directory, config, wanted, placement)
    if progress:
        progress("hashing the weights", 0.9)
    processor = _processor(directory) if classes.task(config) == "image-text-to-text" else None
    return Loaded(
        target=target,
        module=module,
        config=module.config,
        tokenizer=processor.tokenizer if processor is not None else _tokenizer(directory),
        processor=processor,
        task=classes.task(config),
        digest=digest.of_weights(module),
        dtype=str(wanted).removeprefix("torch."),
        parameters=digest.parameters(module),
        config_source=source,
    )


def _directory(target: Target, offline: bool, progress: Progress | None) -> tuple[Path, str | None]:
    """Directory with the files, and where they come from if that is not the checkpoint's own repository."""
    if target.path is not None and target.path.is_dir():
        return target.path, None
    if target.path is not None or real.installed(target.id):
        return real.converted(target, progress)
    return hub.snapshot(target.id, offline=offline, progress=progress), None


def _placement(device: str) -> str | dict[str, str] | None:
    """accelerate's device_map: None on the CPU, ``auto`` over all devices of a kind, or one device for everything."""
    kind = checked(device)
    if kind.type == "cpu":
        return None
    return {"": device} if kind.index is not None or kind.type != "cuda" else "auto"


def _require_memory(what: str, needed: int, placement: str | dict[str, str] | None) -> None:
    available = psutil.virtual_memory().available
    if placement is not None and torch.cuda.is_available():
        available += sum(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    if needed > available:
        raise ProbeError(
            f"{what} needs {needed / 1e9:.1f} GB of memory and {available / 1e9:.1f} GB are free: "
            "free some, load it with `--dtype bfloat16`, or use a larger machine."
        )


def _module(
    what: str, directory: Path, config: PreTrainedConfig, dtype: torch.dtype, placement: str | dict[str, str] | None
) -> torch.nn.Module:
    with _explained(what), bars.quiet():
        module, info = classes.model_class(config).from_pretrained(
            directory,
            config=config,
            dtype=dtype,
            attn_implementation=config._attn_implementation,
            device_map=placement,
            local_files_only=True,
            **REPORTED,
        )
    refuse_gaps(what, info)
    return module.eval().requires_grad_(False)


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns what a load raises inside into a ProbeError."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise ProbeError(f"The weights of {what} do not read ({error}): fetch or save them again.") from error
    except ImportError as error:
        raise ProbeError(f"{what} needs a package that is not installed ({said(error)}): install it.") from error
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "not enough memory" in str(error):
            raise ProbeError(f"Memory ran out loading {what}: use `--dtype bfloat16` or a larger machine.") from error
        raise ProbeError(f"The weights of {what} do not fit its config ({said(error)}): check both files.") from error


def _tokenizer(directory: Path) -> Any:
    """The directory's tokenizer; None where it holds none."""
    from transformers import AutoTokenizer

    if not any((directory / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
        return None
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except Exception as error:  # tokenizers raises bare ones
        raise ProbeError(
            f"The tokenizer in {directory} does not load ({said(error)}): save or fetch it again."
        ) from error


def _processor(directory: Path) -> Any:
    """The directory's processor; None where it holds none, or one that needs a package that is not installed."""
    from transformers import AutoProcessor

    if not any((directory / name).is_file() for name in ("processor_config.json", "preprocessor_config.json")):
        return None
    try:
        return AutoProcessor.from_pretrained(directory, local_files_only=True)
    except (ImportError, OSError, ValueError, TypeError):
        return None
