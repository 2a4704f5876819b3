"""The base of every model of the record."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Scalar = bool | int | float | str | None


class Part(BaseModel):
    """Base of every model of the record: unknown keys are refused, so a typo cannot pass as a fact."""

    model_config = ConfigDict(extra="forbid", frozen=True)
