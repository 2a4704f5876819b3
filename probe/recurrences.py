"""What pages call a mixer by the recurrence that ran in it. Imports nothing."""

from __future__ import annotations

RECURRENCES = {
    "delta": "delta rule",
    "lru": "linear recurrent unit",
    "mlstm": "matrix memory",
    "scan": "state-space scan",
    "wkv": "weighted average",
}
"""By the keys of `probe.derive.kernels.KINDS`."""
