"""A record as the sentences need it: its values, quirks, identities and facts by name, and links to their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from markupsafe import Markup

from probe.render.places import is_served
from probe.render.standing import Standing, error_text
from probe.render.text import prose, quirk_url, row_id, some_blocks
from probe.schema import Experiment, Fact, Identity, Record, Scalar, Shape, Value

BLOCK = "model.layers[i]"
LONG = 40
"""Characters of a list of blocks that a sentence takes."""


GROUPS = re.compile(r" within \d+ of \d+ groups( by the (?:sum of the two best|best)(?:, others 0)?)")
"""In an equation, among which groups of experts the choice is made."""


def say(sentence: str, **parts: object) -> Markup:
    """A sentence as HTML: what stands between backticks is code, ``{name}`` is replaced by a part."""
    return prose(sentence).format(**parts)


def code(text: object) -> Markup:
    return Markup("<code>{}</code>").format(text)


def within(error: float) -> str:
    """How well two sides agree: ``exactly``, or ``to within 2e-6``."""
    return "exactly" if error == 0 else f"to within {error_text(error)}"


def listing(parts: Sequence[object]) -> Markup:
    """``a``, ``a and b``, ``a, b and c``."""
    items = [part if isinstance(part, Markup) else Markup("{}").format(part) for part in parts]
    if len(items) < 2:
        return Markup("").join(items)
    return Markup(", ").join(items[:-1]) + Markup(" and ") + items[-1]


def each_once(links: Iterable[Markup]) -> list[Markup]:
    """Links of one text once, the first of them: two rows may have one name."""
    found: dict[str, Markup] = {}
    for link in links:
        found.setdefault(link.striptags(), link)
    return [*found.values()]


@dataclass(frozen=True)
class Subject:
    """The text model of a page. What was measured comes from its own run, or from its twin's."""

    standing: Standing

    @property
    def record(self) -> Record:
        return self.standing.record

    @property
    def run(self) -> Record | None:
        """The record that measured; None where none is here."""
        return self.standing.run

    @property
    def total(self) -> int:
        return len(self.record.blocks)

    @cached_property
    def _values(self) -> dict[tuple[str, str], list[Value]]:
        found: dict[tuple[str, str], list[Value]] = {}
        for value in self.record.values:
            if is_served(value):
                found.setdefault((value.host, value.name), []).append(value)
        return found

    def value(self, host: str, name: str, module: str | None = None) -> Value | None:
        """The value's row where the checkpoint has it: the one on hosts of the class ``module``, else the first."""
        rows = self._values.get((host, name), [])
        return next((row for row in rows if row.module == module), rows[0] if rows else None)

    def measured(self, value: Value) -> Value:
        """The row as a run filled it; the row itself where none did."""
        return value if value.reads is not None else self.standing.twin_value(value) or value

    @cached_property
    def quirks(self) -> dict[str, Experiment]:
        """Those that hold, by slug."""
        return {e.slug: e for e in self.record.experiments if e.verdict == "yes"}

    def unsettled(self, slug: str) -> bool:
        return any(e.slug == slug and e.verdict == "inconclusive" for e in self.record.experiments)

    def holds(self, slug: str, blocks: Sequence[int]) -> bool:
        """Whether a quirk holds on any of these blocks."""
        found = self.quirks.get(slug)
        return found is not None and (found.blocks is None or bool({*found.blocks} & {*blocks}))

    def identities(self, name: str) -> list[Identity]:
        """Those that were evaluated and hold, of this name or of this name ``in`` some host."""
        found = self.standing.identities(False)
        return [i for i in found if i.holds and (i.name == name or i.name.startswith(f"{name} in "))]

    def measured_numbers(self, slug: str) -> dict[str, object]:
        """What the run behind the page measured for a quirk, whatever the verdict; empty where nothing ran."""
        found = self.run.experiments if self.run else []
        return next((dict(e.measured) for e in found if e.slug == slug), {})

    def fact(self, name: str) -> Fact | None:
        return next((fact for fact in self.facts if fact.name == name), None)

    @property
    def facts(self) -> list[Fact]:
        return self.run.facts if self.run else []

    @property
    def width(self) -> int | None:
        """How wide the stream of the run behind the page is."""
        return self.run.sizes.get("hidden_size") if self.run else None

    def shapes(self) -> Iterator[tuple[Shape, list[int]]]:
        """Every shape that occurs, with its blocks."""
        for index in dict.fromkeys(self.record.blocks):
            yield self.record.shapes[index], [i for i, s in enumerate(self.record.blocks) if s == index]

    def where(self, blocks: Sequence[int] | None) -> str:
        """``every block``, ``blocks 0–3``, ``all blocks but 3, 7``."""
        return some_blocks(blocks, self.total).replace("all but", "all blocks but")

    def briefly(self, blocks: Sequence[int]) -> str:
        """The same, or ``23 of 52 blocks: the first is 0, the last 50`` where that is long: blocks of no one step."""
        text = self.where(blocks)
        if len(text) <= LONG:
            return text
        return f"{len(blocks)} of {self.total} blocks: the first is {blocks[0]}, the last {blocks[-1]}"

    def among(self, blocks: Iterable[int]) -> str:
        """The same for the middle of a sentence: ``23 of 52 blocks (the first is 0, the last 50)``."""
        count, colon, few = self.briefly(sorted(blocks)).partition(": ")
        return f"{count} ({few})" if colon else count

    def config(self, name: str) -> object | None:
        """An entry of the config; the first of that name, nested or not."""
        return next((row.value for row in self.record.config if row.name.rpartition(".")[2] == name), None)

    def link(self, value: Value) -> Markup:
        """The value's name, leading to its row; with its host where several hosts of a block have one of that name."""
        hosts = {other.host for other in self.record.values if other.name == value.name and is_served(other)}
        host = value.host.removeprefix(BLOCK).removeprefix(".")
        return self.linked(value, f"{host}.{value.name}" if len(hosts) > 1 and host else value.name)

    def linked(self, value: Value, name: str) -> Markup:
        """A name that leads to the value's row."""
        return Markup('<a href="#{}"><code>{}</code></a>').format(row_id(value, self.record.values), name)

    def links(self, values: Sequence[Value]) -> Markup:
        """Several of them, each name once."""
        return listing(each_once(map(self.link, values)))

    def quirk(self, slug: str, follows: Markup | str = "") -> Markup:
        """The quirk's statement, what follows from it, and its name leading to its page."""
        found = self.quirks[slug]
        url = self.standing.up + quirk_url(slug)
        words = Markup(" ").join(part for part in (prose(found.statement or ""), follows) if part)
        return Markup('{} <a class="by" href="{}">{}</a>').format(words, url, found.label)

    @cached_property
    def block_path(self) -> str | None:
        """Native path of a block, with ``{i}`` for its index."""
        for name in ("layer_output", "layer_input"):
            found = self.value(BLOCK, name)
            if found and found.hf and found.hf.side != "op":
                return found.hf.path
        return None

    def native(self, host: str) -> str | None:
        """Native path of a host, told from a value that is read on it or below it."""
        return next((path for v in self.record.values if v.host == host and (path := host_path(v)) is not None), None)


def of_run(subject: Subject, statement: str, size: str = "") -> Markup:
    """A statement with a number of the run's sizes or config: where only the twin ran, said to be the twin's."""
    if subject.run is subject.record:
        return prose(statement)
    return prose(f"On the twin{', ' + size + ',' if size else ''} {statement[:1].lower()}{statement[1:]}")


def with_groups(subject: Subject, expression: str) -> str:
    """An equation of a choice among groups of experts with the page's own numbers of groups: the twin has others. No
    groups are told where the page's config has one.
    """
    found = GROUPS.search(expression)
    own = [subject.config(name) for name in ("topk_group", "n_group")]
    if found is None or subject.run is subject.record or not all(isinstance(number, int) for number in own):
        return expression
    told = "" if own == [1, 1] else f" within {own[0]} of {own[1]} groups{found[1]}"
    return expression.replace(found[0], told)


def many(fact: Fact, name: str) -> list[Scalar]:
    """What a fact measured under a name, as a list; empty where it has none of that name."""
    found = fact.measured.get(name, [])
    return found if isinstance(found, list) else [found]


def host_path(value: Value) -> str | None:
    """Native path of the host that a value is read on or below; None where its place does not tell."""
    if value.hf is None or not value.location or value.location.startswith("parent"):
        return None
    below = modules(value.location)
    if below and value.hf.path.count(".") < len(below):
        return None
    return ".".join(value.hf.path.split(".")[: -len(below) or None])


def modules(location: str) -> list[str]:
    """The steps of a location that name modules: those before its side and before any operation."""
    steps = location.partition("[")[0].split(".")
    return steps[: steps.index("source")] if "source" in steps else steps[:-1]
