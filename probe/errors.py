"""What a user sees of an error: a sentence that says what to do, and an exit status."""

from __future__ import annotations


class ProbeError(Exception):
    """Something a user can mend.

    Args:
        message: one sentence that says what happened and what to do.
        status: the process's exit status, never 0.
    """

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def unforeseen(error: Exception) -> str:
    """The one sentence of an error that no code of ours expected."""
    if isinstance(error, MemoryError):
        return "The memory ran out: free some, or allow the process more (`ulimit -v` tells its limit)."
    said = f"{type(error).__name__}: {error}".replace("\n", " ").strip(": ")
    return f"This went wrong, unexpectedly: {said}"
