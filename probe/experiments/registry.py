"""Every quirk, in the order of the page's chips."""

from __future__ import annotations

from .base import Quirk

QUIRKS: tuple[Quirk, ...] = ()
