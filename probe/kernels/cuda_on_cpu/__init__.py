"""CUDA C++ on a processor: a stand-in for CUDA's runtime and CUB, and what rewrites a package's source for it."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
"""With the headers."""
