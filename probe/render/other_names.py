"""What other tools call the values of one page: whether a tool loads the checkpoint, and what its name stands for here.

A name is declared once for all families (:mod:`probe.names`); quirks that a run found tell what it means on this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from probe import names
from probe.names.reach import ADAPTERS, CHILDREN, stacked
from probe.render.know.order import ATTENTION, turning
from probe.render.know.subject import BLOCK, Subject
from probe.render.know.terms import host_of
from probe.render.places import is_served
from probe.schema import Value

MIXERS = {f"{BLOCK}.linear_attn"}

ATTENTIONS: tuple[str | None, tuple[str, ...]] = ("self_attn", ("attention",))
READ = {"attention": ATTENTIONS, "attentions": ATTENTIONS, "mlps": ("mlp", ("mlp", "moe"))}
"""What nnterp reads for a name, by the name's first part: its own name of a block's module, and which sublayers."""


@dataclass(frozen=True)
class Told:
    """One name on one page.

    Attributes:
        name: as it was declared.
        differs: how its tensor differs from the value's on blocks that have the value; None where it is the same.
    """

    name: names.Name
    differs: str | None

    @property
    def words(self) -> str:
        """What follows the name: how it differs, or in what form it is the same."""
        return self.differs or self.name.form or ""


def told(subject: Subject, value: Value) -> list[Told]:
    """The names of a value on this page; none for a tool that does not load the checkpoint or reach the value."""
    if not is_served(value) or not _named(subject, value):
        return []
    blocks = value.blocks or range(subject.total)
    found = [
        Told(name, _differs(subject, name, blocks))
        for name in names.of(value.name)
        if loads(subject, name.tool) and _reaches(subject, name) and _holds(subject, name.needs, blocks)
    ]
    return [one for one in found if one.differs != names.ABSENT]


def by_tool(subject: Subject, value: Value) -> dict[str, tuple[str, str]]:
    """The name to show of each tool that has one, by its key in a page's switch of names; and whether it is another
    tensor's.
    """
    found: dict[str, tuple[str, str]] = {}
    for one in told(subject, value):
        found.setdefault(one.name.tool.lower(), (one.name.name, "another tensor" if one.differs else ""))
    return found


def loads(subject: Subject, tool: str) -> bool:
    """Whether a tool finds the blocks of the page's checkpoint, as its source tells."""
    if tool == "TransformerLens":
        return subject.record.checkpoint.architecture in ADAPTERS
    return subject.block_path is not None and stacked(subject.block_path)


def _named(subject: Subject, value: Value) -> bool:
    """Whether the value lies where the tools have names: on the model, a block, or one module of each block.

    A recurrent mixer's values have our attention's names, and no other tool's; those of an expert that is always used
    or of one of several MLPs are not told apart by the tools' names, nor is a norm's second reader.
    """
    if value.name.startswith("attention_norm"):
        return bool(_hosts(subject, ("attention",)))
    if value.name.startswith("mlp_norm"):
        first = subject.value(BLOCK, "attention_norm_output")
        return first is None or first.hf != value.hf
    if value.host in ("model", BLOCK):
        return True
    if value.name.startswith("attention_") and value.host != ATTENTION:
        return False
    hosts = {v.host for v in subject.record.values if is_served(v) and v.name == value.name}
    return {host for host in hosts if host.count(".") == ATTENTION.count(".")} - MIXERS == {value.host}


def _hosts(subject: Subject, kinds: Sequence[str]) -> set[str]:
    """The hosts of sublayers of these kinds."""
    found = [s for shape in subject.record.shapes for s in shape.sublayers]
    return {host_of(s) for s in found if s.kind in kinds and s.host}


def _reaches(subject: Subject, name: names.Name) -> bool:
    """Whether the module that nnterp reads goes by a name it knows; TransformerLens's adapters know theirs."""
    child, kinds = READ.get(name.name.partition("_")[0], (None, ()))
    if name.tool == "TransformerLens" or not name.name.endswith("[i]") or child is None:
        return True
    natives = {path.rpartition(".")[2] for host in _hosts(subject, kinds) if (path := subject.native(host))}
    return bool(natives & CHILDREN[child])


def _differs(subject: Subject, name: names.Name, blocks: Sequence[int]) -> str | None:
    found = next((unless for unless in name.unless if _holds(subject, unless.quirk, blocks)), None)
    return found.differs if found else name.differs


def _holds(subject: Subject, quirk: str | None, blocks: Sequence[int]) -> bool:
    if quirk == names.ROTARY:
        return bool((turning(subject) or frozenset()) & {*blocks})
    return quirk is None or subject.holds(quirk, blocks)
