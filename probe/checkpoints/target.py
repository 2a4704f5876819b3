"""What can be probed, and what a load hands over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig

Kind = Literal["tiny", "config", "weights"]
Task = Literal["text-generation", "image-text-to-text"]

Progress = Callable[[str, float], None]
"""Called with a step's name and the share of it that is done, 0 to 1."""


@dataclass(frozen=True)
class Target:
    """One checkpoint that can be probed here.

    Attributes:
        family: model_type of the text model.
        id: name of a twin (``tiny``, ``tiny-moe``), Hub id, or name of a local directory or file.
        kind: ``tiny`` (seeded weights), ``config`` (built on meta, nothing runs), ``weights`` (real weights).
        path: local directory or GGUF file, where the checkpoint is not a twin and not on the Hub.
    """

    family: str
    id: str
    kind: Kind
    path: Path | None = None


@dataclass
class Loaded:
    """A model ready to be traced, with what a record says about it.

    Attributes:
        module: eval mode, no parameter requires a gradient; on meta for a ``config`` target.
        config: the root's config.
        tokenizer: None where the checkpoint brings none.
        processor: None on a text model, and where the checkpoint brings none.
        digest: sha256 of the weights (see `digest.of_weights`); of the canonical config for a ``config`` target.
        dtype: dtype of the weights as loaded, without the ``torch.`` prefix.
        parameters: number of parameters, tied ones once.
        config_source: where the config.json came from, if it is not the checkpoint's own file.
    """

    target: Target
    module: nn.Module
    config: PreTrainedConfig
    tokenizer: Any
    processor: Any
    task: Task
    digest: str
    dtype: str
    parameters: int
    config_source: str | None
