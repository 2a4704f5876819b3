"""Which run stands behind a page: this checkpoint's own, or, for a checkpoint that was only built, its twin's."""

from __future__ import annotations

from dataclasses import dataclass

from probe.render.text import figure
from probe.schema import Identity, Record, Value

KIND_WORDS = {
    "weights": "weights run",
    "config": "built from its config, nothing run",
    "tiny": "tiny twin, run on seeded weights",
    "missing": "no record",
}


@dataclass(frozen=True)
class Standing:
    """A record; and for one that was only built, the record and page of the twin behind it, where they are here.

    ``up`` leads from the record's page to the site's root. ``alike`` is the twin of a checkpoint whose weights ran:
    verdicts of both stand side by side.
    """

    record: Record
    twin: Record | None
    twin_uri: str | None = None
    up: str = ""
    alike: Record | None = None

    @property
    def ran(self) -> bool:
        return self.record.checkpoint.kind != "config"

    @property
    def run(self) -> Record | None:
        """The record that measured; None where nothing here did."""
        return self.record if self.ran else self.twin

    @property
    def twin_id(self) -> str | None:
        return self.record.evidence.twin if self.record.evidence else None

    def words(self) -> str:
        """One clause on what ran, for cards and table heads."""
        if self.ran:
            return f"run on {self.record.checkpoint.id}, {self.record.checkpoint.dtype}"
        return f"not run on this checkpoint; run on its twin {self.twin_id}" + (
            f", {self.twin.checkpoint.dtype}" if self.twin else ""
        )

    def versions(self) -> str:
        p = (self.run or self.record).provenance
        return f"torch {p.torch} · transformers {p.transformers} · nnsight {p.nnsight} · {p.device}"

    def twin_value(self, value: Value) -> Value | None:
        """The same value as the twin's run measured it."""
        if self.ran or self.twin is None:
            return None
        rows = [*self.twin.values, *(self.twin.vision.values if self.twin.vision else [])]
        found = [v for v in rows if v.host == value.host and v.name == value.name and v.reads is not None]
        return next((v for v in found if v.module == value.module), found[0] if found else None)

    def identities(self, vision: bool) -> list[Identity]:
        """The identities that were evaluated, on this checkpoint or on the twin."""
        own = self._identities(self.record, vision)
        return own if own or self.ran or self.twin is None else self._identities(self.twin, vision)

    def borrowed(self, vision: bool) -> bool:
        """Whether ``identities`` are the twin's."""
        return not self.ran and not self._identities(self.record, vision)

    @staticmethod
    def _identities(record: Record, vision: bool) -> list[Identity]:
        if not vision:
            return record.identities
        return record.vision.identities if record.vision else []


def error_text(value: float) -> str:
    return "0, exactly" if value == 0 else figure(value)
