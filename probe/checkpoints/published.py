"""The published config.json files the project keeps, under ``families/configs``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parents[2] / "families" / "configs"

ALIASES = {
    "meta-llama/Llama-3.1-8B": "meta-llama__Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama__Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B": "meta-llama__Meta-Llama-3.1-405B",
}
"""Repositories that were renamed after the config was taken: Hub id -> file name without ``.json``."""


@dataclass(frozen=True)
class Published:
    """A published config.

    Attributes:
        config: the file's content, without ``quantization_config``.
        source: where the file was found, and what was left out of it.
    """

    config: dict[str, Any]
    source: str


def stem(hub_id: str) -> str | None:
    """File name, without ``.json``, of a Hub id's config; None where the project has none."""
    name = ALIASES.get(hub_id, hub_id.replace("/", "__"))
    return name if (CONFIGS / f"{name}.json").exists() else None


def part(name: str, root: str, text: str) -> str | None:
    """What of a config kept under a file name (without ``.json``) describes a family.

    Args:
        root: model_type of the config that the family's twins are built from.
        text: model_type of its text model.

    Returns:
        ``""`` for the whole of it, ``"text_config"`` for the text model inside another wrapper, None where it is of
        another family.
    """
    config = published(name).config
    if config.get("model_type") == root:
        return ""
    inner = config.get("text_config")
    return "text_config" if isinstance(inner, dict) and inner.get("model_type") == text else None


@cache
def published(name: str) -> Published:
    """The config kept under a file name (without ``.json``); treat it as read-only."""
    config = json.loads((CONFIGS / f"{name}.json").read_text())
    repo, path, note = _sources()[f"{name}.json"]
    source = path if repo == "?" else f"{repo}: {path}"
    notes = [note] if note else []
    if config.pop("quantization_config", None) is not None:
        notes.append("quantization_config left out")
    return Published(config, "; ".join([source, *notes]))


@cache
def _sources() -> dict[str, tuple[str, str, str]]:
    """file -> (repository, path, note), from SOURCES.tsv."""
    header, *rows = [line.split("\t") for line in (CONFIGS / "SOURCES.tsv").read_text().splitlines()]
    records = [dict(zip(header, row, strict=False)) for row in rows]
    return {row["file"]: (row["repo"], row["path"], row.get("note", "")) for row in records}
