"""A checkpoint's files, read and checked before anything loads them: config.json, safetensors, GGUF headers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO

from probe.errors import ProbeError

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
"""Size of an element, by its safetensors dtype; one-byte formats of newer versions count as 1."""


def read_config(directory: Path) -> dict[str, Any]:
    """A directory's config.json. Raises: ProbeError if there is none or it is not a JSON object."""
    path = directory / "config.json"
    if not path.is_file():
        raise ProbeError(f"{directory} has no config.json: give a directory as `save_pretrained` writes it.")
    config = _json(path)
    if not isinstance(config, dict):
        raise ProbeError(f"{path} is not a JSON object: save or fetch it again.")
    return config


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"{path} does not parse as JSON ({error}): save or fetch it again.") from error


def text_model_type(config: dict[str, Any]) -> str | None:
    """model_type of the text model a raw config describes; None where that takes the config's class to know."""
    text = config.get("text_config")
    found = text.get("model_type") if isinstance(text, dict) else config.get("model_type")
    return found if isinstance(found, str) else None


def check_weights(directory: Path) -> dict[str, int]:
    """Reads the header of every safetensors file and compares it with the file's size.

    Returns:
        Number of elements stored, by safetensors dtype.

    Raises:
        ProbeError: no weights, a missing shard, a header that does not parse, a truncated file.
    """
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(_json(index)["weight_map"].values()))
        except (KeyError, AttributeError, TypeError) as error:
            raise ProbeError(f"{index} maps no weights to files: save or fetch it again.") from error
    else:
        names = sorted(path.name for path in directory.glob("*.safetensors"))
    if not names:
        raise ProbeError(f"{directory} has a config.json but no *.safetensors: save or fetch the weights too.")
    if absent := [name for name in names if not (directory / name).is_file()]:
        raise ProbeError(f"{directory} lacks {', '.join(absent)}, which its index names: fetch the missing files.")
    elements: dict[str, int] = {}
    for name in names:
        for dtype, count in _stored(directory / name).items():
            elements[dtype] = elements.get(dtype, 0) + count
    return elements


def _stored(path: Path) -> dict[str, int]:
    """Elements in one safetensors file, by dtype."""
    size = path.stat().st_size
    broken = f"{path} is truncated or corrupt"
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if 8 + length > size:
            raise ProbeError(f"{broken} (its header reaches beyond its {size} bytes): fetch or save it again.")
        try:
            header = json.loads(file.read(length))
            tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
            end = max((entry["data_offsets"][1] for entry in tensors.values()), default=0)
            elements: dict[str, int] = {}
            for entry in tensors.values():
                start, stop = entry["data_offsets"]
                count = (stop - start) // BYTES.get(entry["dtype"], 1)
                elements[entry["dtype"]] = elements.get(entry["dtype"], 0) + count
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ProbeError(f"{broken} (its header does not parse): fetch or save it again.") from error
    if 8 + length + end != size:
        raise ProbeError(f"{broken} ({size} bytes, {8 + length + end} expected): fetch or save it again.")
    return elements


def gguf_architecture(path: Path) -> str:
    """``general.architecture`` of a GGUF file, reading no further. Raises: ProbeError if the file is none."""
    try:
        with path.open("rb") as file:
            magic, version, _, entries = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF" or version < 2:
                raise ValueError("no GGUF of version 2 or later")
            for _ in range(entries):
                key = _text(file)
                value = _value(file, struct.unpack("<I", file.read(4))[0])
                if key == "general.architecture" and isinstance(value, str):
                    return value
    except (OSError, ValueError, OverflowError, MemoryError, struct.error, KeyError) as error:
        raise ProbeError(f"{path} is not a whole GGUF file ({error}): fetch it again.") from error
    raise ProbeError(f"{path} names no architecture: use a GGUF file written by llama.cpp's converter.")


_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    data = file.read(length)
    if len(data) != length:
        raise ValueError("it ends within its header")
    return data.decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        element, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, element) for _ in range(count)]
    form = _SCALARS[kind]
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]
