"""What to know before an experiment on a family, composed in sentences from what its record measured.

One module a concern. Each function takes a :class:`~probe.render.know.subject.Subject` and gives the sentences that the
record supports; where it supports none, the concern is silent, or says that nothing was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from probe.render.know.adding import adding
from probe.render.know.blocks import differing
from probe.render.know.calls import calls
from probe.render.know.consequences import consequences
from probe.render.know.lens import lens
from probe.render.know.loading import loading
from probe.render.know.machinery import entrance, machinery
from probe.render.know.subject import Subject
from probe.render.know.unkept import unkept
from probe.render.standing import Standing

CONCERNS = (
    ("adding", "Where a vector is added", True, adding),
    ("consequences", "Ablation, steering, attribution", True, consequences),
    ("loading", "Under the default load", True, loading),
    ("blocks", "Which blocks differ", True, differing),
    ("lens", "The lens at the last block", False, lens),
    ("entrance", "Embeddings and positions", True, entrance),
    ("calls", "Generating, embeddings, training", True, calls),
    ("machinery", "Of this family", True, machinery),
    ("unkept", "Usual equations that it does not keep", True, unkept),
)


@dataclass(frozen=True)
class Topic:
    """One concern's sentences. ``listed``: they stand one below the other, since they do not follow from each other."""

    id: str
    title: str
    listed: bool
    sentences: list[Markup]


def what_to_know(standing: Standing) -> list[Topic]:
    """The concerns that have something to say, what bites first first."""
    subject = Subject(standing)
    topics = [Topic(f"know-{slug}", title, listed, write(subject)) for slug, title, listed, write in CONCERNS]
    return [topic for topic in topics if topic.sentences]
