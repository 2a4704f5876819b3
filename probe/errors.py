"""The one error a user sees: a sentence that says what to do, and an exit status."""

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
