"""How the series of a picture look: a role's colour each, and what tells two of one colour apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probe.schema import Picture

ROLES = ("attention", "mlp", "mixture", "norm", "vision", "mark")
APART = ("mark", "attention", "mlp", "mixture", "vision", "norm")
"""Roles whose colours are told apart best beside each other, for series that have none of their own."""
FORMS = ("", "dashed", "dotted")


@dataclass(frozen=True)
class Look:
    """A series: its label, the role that colours it, and the form of its line or of its dots (empty: the plain one)."""

    label: str
    role: str
    form: str

    @property
    def classes(self) -> str:
        return f"r-{self.role} {self.form}".strip()


def looks(picture: Picture, named: Mapping[str, str] | None = None) -> list[Look]:
    """The looks of a picture's series, in their order.

    Args:
        picture: the picture.
        named: the roles of the series that are values, by their names.
    """
    labels = [series.name for series in picture.series]
    if picture.kind == "growth":
        roles = [(named or {}).get(label, "plain") for label in labels]
        forms = [FORMS[roles[:i].count(role) % len(FORMS)] for i, role in enumerate(roles)]
        return [Look(*each) for each in zip(labels, roles, forms, strict=True)]
    if picture.kind == "load":
        return [Look(label, "mixture", "") for label in labels]
    if picture.kind in ("rotary", "slopes", "decay"):
        return [Look(label, ROLES[i % len(ROLES)], "hollow" if i % 2 else "") for i, label in enumerate(labels)]
    return [Look(label, APART[i % len(APART)], FORMS[i % len(FORMS)]) for i, label in enumerate(labels)]
