"""What the tests of the notes work on: every note file, and the families' folder."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTES = sorted((ROOT / "families").glob("*.md"))
