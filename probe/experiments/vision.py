"""Quirks of vision encoders."""

from __future__ import annotations

from .base import Quirk

QUIRKS: tuple[Quirk, ...] = ()
