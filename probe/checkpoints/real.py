"""Real weights from the package index, and GGUF files: converted once, then loaded like any other directory.

The ``real`` extra ships two small models as GGUF files, one of them in parts. A conversion writes safetensors,
tokenizer and config to the cache directory; it appears there whole or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
from pathlib import Path

from probe import store
from probe.checkpoints import bars, hub
from probe.checkpoints.gaps import REPORTED, refuse_gaps, said
from probe.checkpoints.published import published, stem
from probe.checkpoints.shipped import SHIPPED
from probe.checkpoints.target import Progress, Target
from probe.errors import ProbeError

CONVERSION = 1
"""Counts the changes of what a conversion writes; part of its directory's name."""


def installed(hub_id: str) -> bool:
    """Whether the packages that ship this checkpoint's weights are installed."""
    shipped = SHIPPED.get(hub_id)
    return shipped is not None and all(importlib.util.find_spec(module) is not None for module, _ in shipped.parts)


def converted(target: Target, progress: Progress | None = None) -> tuple[Path, str]:
    """Directory of the converted weights, made where it is not there yet, and a sentence on where they come from.

    Args:
        target: a GGUF file's (``path``), or a Hub id the ``real`` extra ships.

    Raises:
        ProbeError: a part is damaged, the disk is full, or the file does not convert.
    """
    if target.path is not None:
        key = f"gguf-{_sha256([target.path])[:16]}"
        source = f"{target.path.name}, weights dequantised to float32"
        parts, sha256, config = [target.path], None, None
    else:
        shipped = SHIPPED[target.id]
        version = importlib.metadata.version(shipped.package)
        key = f"{target.id.replace('/', '--')}-{version}"
        parts = [_part(module, inner) for module, inner in shipped.parts]
        sha256 = shipped.sha256
        name = stem(target.id)
        config = published(name).config if name else None
        gguf = parts[0].name.removesuffix(".part00")
        source = f"weights: {gguf} of the package {shipped.package} {version}, dequantised to float32"
        if name:
            source = f"{published(name).source}; {source}"
    directory = store.cache_dir() / f"{key}-c{CONVERSION}"
    if not directory.is_dir():
        _convert(parts, sha256, config, directory, progress or (lambda label, share: None))
    return directory, source


def _part(module: str, inner: str) -> Path:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / inner
    if not path.is_file():
        raise ProbeError(
            f"The installed package {module} lacks {inner}: reinstall it, as the README says under Commands."
        )
    return path


def _sha256(parts: list[Path]) -> str:
    sha = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            while chunk := file.read(1 << 22):
                sha.update(chunk)
    return sha.hexdigest()


def _convert(
    parts: list[Path],
    sha256: str | None,
    config: dict[str, object] | None,
    directory: Path,
    progress: Progress,
) -> None:
    """Writes a directory as ``save_pretrained`` does, in float32, under a temporary name first."""
    size = sum(part.stat().st_size for part in parts)
    store.require_writable(directory.parent)
    hub.require_disk(directory.parent, 10 * size, f"Converting {parts[0].name}")
    _sweep(directory.parent)
    work = directory.parent / f"{directory.name}.{os.getpid()}.tmp"
    try:
        work.mkdir(parents=True)
        progress("checking the GGUF file", 0.0)
        if sha256 is not None and _sha256(parts) != sha256:
            raise ProbeError(f"{parts[0].name} is damaged (wrong sha256): reinstall its package.")
        _write(parts, config, work, progress)
        try:
            work.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise
    except OSError as error:
        name = parts[0].name
        raise ProbeError(f"Converting {name} failed ({error}): check {directory.parent}, then run again.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write(parts: list[Path], config: dict[str, object] | None, work: Path, progress: Progress) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = work / "model.gguf"
    if len(parts) == 1:
        gguf.symlink_to(parts[0].resolve())
    else:
        with gguf.open("wb") as out:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, out, 1 << 22)
    with bars.quiet():
        try:
            with bars.gguf_reading(progress, 0.5, 0.9):
                progress("reading the tokenizer", 0.05)
                AutoTokenizer.from_pretrained(work, gguf_file=gguf.name).save_pretrained(work)
                progress("dequantising the weights", 0.5)
                model, info = AutoModelForCausalLM.from_pretrained(
                    work, gguf_file=gguf.name, dtype=torch.float32, **REPORTED
                )
                refuse_gaps(parts[0].name, info)
        except (OSError, ProbeError):
            raise
        except Exception as error:  # tokenizers raises bare ones
            name = parts[0].name
            raise ProbeError(
                f"{name} does not convert ({said(error)}): fetch it again, or give its safetensors."
            ) from error
        progress("writing safetensors", 0.9)
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.hf_quantizer = None
        model.save_pretrained(work)
    gguf.unlink()
    if config is not None:
        (work / "config.json").write_text(json.dumps({**config, "torch_dtype": "float32"}, indent=2))


def _sweep(root: Path) -> None:
    """Removes what conversions that were killed left behind."""
    for left in root.glob("*.tmp"):
        pid = left.name.split(".")[-2]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            shutil.rmtree(left, ignore_errors=True)
