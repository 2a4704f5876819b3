"""The text that a probe runs where no other is asked for."""

from __future__ import annotations

PROMPT = "The Eiffel Tower is in the city of"
