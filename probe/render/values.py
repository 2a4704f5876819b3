"""The tables of values by host, and the facts that each value's card shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from markupsafe import Markup, escape

from probe.render import answers
from probe.render.context import Host, Row
from probe.render.know.adding import factor_words
from probe.render.know.order import SIDES, paths
from probe.render.know.subject import Subject, say
from probe.render.know.terms import terms
from probe.render.naming import Name, native
from probe.render.other_names import by_tool, told
from probe.render.places import is_served
from probe.render.recipes import FORMS, recipes
from probe.render.recipes.setup import SETUP
from probe.render.recipes.setup import setup as lines
from probe.render.recipes.slices import slices
from probe.render.roles import row_role
from probe.render.standing import Standing
from probe.render.templating import render
from probe.render.text import anchor, condition, figure, prose, row_id, some_blocks, value_url
from probe.schema import HfPath, Record, Shape, Value


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def tables(standing: Standing, vision: bool) -> list[Host]:
    """One table a host, in the record's order."""
    record = standing.record
    part = record.vision if vision else record
    if part is None:
        return []
    hosts: dict[tuple[str, str], list[Row]] = {}
    subject = Subject(standing)
    for value in part.values:
        made = row(value, subject, part.shapes, part.blocks, vision)
        hosts.setdefault((value.host, value.module), []).append(made)
    return [_host(host, module, rows) for (host, module), rows in hosts.items()]


def _host(host: str, module: str, rows: list[Row]) -> Host:
    """A host's table. Blocks that all of its values are on, and on some blocks only, are told once."""
    served = {row.where for row in rows if row.state != "never"}
    where = served.pop() if len(served) == 1 else ""
    told = [replace(row, where="") if where and row.where == where else row for row in rows]
    return Host(host, "h-" + anchor(host, module)[2:], module, where, told)


def row(value: Value, subject: Subject, shapes: Sequence[Shape], blocks: Sequence[int], vision: bool) -> Row:
    """A value's row and card."""
    standing = subject.standing
    never = value.blocks == [] or (value.reads is False and value.location is None)
    state = "never" if never else "built" if value.reads is None else "run" if value.reads else "refused"
    twin = standing.twin_value(value)
    first = value.blocks[0] if value.blocks else 0
    in_block = "layers[i]" in value.host and not never
    part = standing.record.vision if vision and standing.record.vision else standing.record
    identifier = row_id(value, part.values)
    return Row(
        id=identifier,
        name=value.name,
        names=names(value, None if vision else subject),
        role=row_role(value, part),
        layout=value.layout,
        dims=value.dims,
        description=prose(value.description) + ("" if vision else _times(value, subject)),
        read_at=value.read_at,
        condition=condition(value, standing.record.checkpoint.attn),
        warn=bool(value.needs or value.reason),
        state=state,
        state_text=_state_text(value, state, standing, twin),
        where=some_blocks(value.blocks, len(blocks)) if in_block and len(value.blocks or []) != len(blocks) else "",
        show=f"#{'vision-' if vision else ''}block-{first}.{identifier}" if in_block else None,
        card=_places(value, standing, twin, _sizes(value, standing.record, shapes))
        + ([] if vision else _order(value, subject) + _others(value, subject))
        + _found(value, state, standing, twin, len(blocks))
        + _recipe(value, standing),
    )


def names(value: Value, subject: Subject | None) -> dict[str, Name]:
    """A value's other names by the choices of a page's switch. ``subject``: the text model, where it is of that."""
    path = native(value.hf)
    return ({"native": path} if path else {}) | (by_tool(subject, value) if subject else {})


def _times(value: Value, subject: Subject) -> Markup | str:
    """What a contribution is multiplied by on its way into the block's sum; empty where it is added as it is."""
    if not any(shape.factors for shape, _ in subject.shapes()):
        return ""
    mine = [term for term in terms(subject) if term.value is value and term.factors]
    if not mine:
        return ""
    names = list(dict.fromkeys(name for term in mine for name in term.factors))
    blocks = sorted({block for term in mine for block in term.blocks})
    where = "" if blocks == value.blocks else say(" on {blocks}", blocks=subject.among(blocks))
    return say("; it is added times {by}{where}", by=factor_words(subject, names), where=where)


def _order(value: Value, subject: Subject) -> list[tuple[str, Markup]]:
    """Behind which steps queries and keys are read."""
    if value.name not in SIDES or not value.host.endswith(".self_attn"):
        return []
    found = paths(subject, value.name)
    ways = [
        Markup("{}").format(path.words)
        + (Markup(" on {}").format(subject.where(path.blocks)) if len(found) > 1 else "")
        for path in found
    ]
    return [("read behind", Markup("; ").join(ways))] if ways else []


def _others(value: Value, subject: Subject) -> list[tuple[str, Markup]]:
    """What other tools call it, one line a tool."""
    by_tool: dict[str, list[Markup]] = {}
    for other in told(subject, value):
        words = Markup(" ({}{})").format("another tensor: " if other.differs else "", prose(other.words))
        by_tool.setdefault(other.name.tool, []).append(code(other.name.name) + (words if other.words else ""))
    return [(tool, Markup("; ").join(found)) for tool, found in by_tool.items()]


def _recipe(value: Value, standing: Standing) -> list[tuple[str, Markup]]:
    """The snippets to copy: those of the value, and those of each head's or expert's part of a weight."""
    own = [answers.RecipeForm(r.form, FORMS[r.form], r.read, r.edit, r.why) for r in recipes(standing, value)]
    card = [("recipe", render(answers.Recipe(own, SETUP)))] if own else []
    for found in slices(standing, value):
        forms = [answers.RecipeForm(form, label, found.code[form], None, None) for form, label in FORMS.items()]
        card.append((f"without one {found.what}{found.where}", render(answers.Recipe(forms, SETUP))))
    return card


def setup(record: Record) -> Markup:
    """What the snippets of a page stand on."""
    return render(
        answers.Recipe(
            [answers.RecipeForm(form, label, lines(record, form), None, None) for form, label in FORMS.items()], None
        )
    )


def _state_text(value: Value, state: str, standing: Standing, twin: Value | None) -> str:
    if state == "never":
        return "not on this checkpoint"
    if state == "refused":
        return "not readable here"
    if state == "built":
        return f"built; run on {standing.twin_id}" if twin and twin.reads else "built, not run"
    return "read and edited" if value.edits else "read" if value.edits is False else "read, edit not run"


def _sizes(value: Value, record: Record, shapes: Sequence[Shape]) -> str:
    """The value's dims with their numbers; several where blocks differ: ``[batch, 8, seq, 256 or 512]``."""
    whole = record.sizes | (record.vision.sizes if record.vision and value.host.startswith("model.vision") else {})
    out = []
    for dim in value.dims:
        found = (
            {shape.sizes.get(dim, whole.get(dim)) for shape in shapes}
            if "layers[i]" in value.host
            else {whole.get(dim)}
        )
        sizes = sorted(size for size in found if size is not None)
        out.append(" or ".join(map(str, sizes)) or dim)
    return f"[{', '.join(out)}]"


def _places(value: Value, standing: Standing, twin: Value | None, sizes: str) -> list[tuple[str, Markup]]:
    """How large a value is and where it is read."""
    dims = " ".join(value.dims)
    card: list[tuple[str, Markup]] = []
    if value.dims:
        card.append(("sizes", Markup('<code data-dims="{}">{}</code>').format(dims, sizes)))
    measured = value if value.shape is not None else twin
    if measured and measured.shape is not None:
        on = "" if measured is value else f" on {standing.twin_id}"
        card.append(("measured" + on, code(f"[{', '.join(map(str, measured.shape))}]")))
    card.append(("read at", escape(value.read_at)))
    if value.location:
        card.append(("nnsight", code(_nnsight(value))))
    if value.hf:
        card.append(("PyTorch", plain(value.hf)))
        card += _held(value.hf, twin.hf if twin else None, standing.twin_id)
    return card


def _found(value: Value, state: str, standing: Standing, twin: Value | None, total: int) -> list[tuple[str, Markup]]:
    """On which blocks and under what load a value is there, and what a run found of it."""
    card: list[tuple[str, Markup]] = []
    if value.blocks is not None:
        card.append(("on", escape(some_blocks(value.blocks, total))))
    if value.reason:
        card.append(("condition", escape(condition(value, standing.record.checkpoint.attn))))
    if state != "never":
        card.append(("edit", _edit(value, standing, twin)))
        card.append(("run", _evidence(value, standing, twin)))
    if is_served(value):
        page = standing.up + value_url(value.name)
        card.append(("elsewhere", Markup('<a href="{}">on all families</a>').format(page)))
    return card


def _nnsight(value: Value) -> str:
    return f"{value.host}.{value.location}" if value.location else value.host


def plain(hf: HfPath) -> Markup:
    """The same place for someone with a hook in hand."""
    path = Markup('<code>get_submodule("{}")</code>').format(hf.path) if hf.path else Markup("the model itself")
    if hf.side == "op":
        return Markup("{}, inside its forward: <code>{}</code>").format(path, hf.element)
    what = "output" if hf.side == "out" else "input"
    element = "" if hf.element is None else f", element {hf.element}"
    return Markup("{}, {}{}").format(path, what, element)


def _held(hf: HfPath, twin: HfPath | None, twin_id: str | None) -> list[tuple[str, Markup]]:
    """What the tensor at that place is and how it becomes the value, where it is not the value as it is."""
    source = hf if hf.held or twin is None else twin
    if source.held is None:
        return []
    shape = code(f"[{', '.join(map(str, source.held.shape))}]") if source.held.shape is not None else None
    view = Markup("the value is {}").format(code(source.held.view)) if source.held.view else None
    on = "" if source is hf else f" on {twin_id}"
    return [("held as" + on, Markup("; ").join(part for part in (shape, view) if part))]


def _edit(value: Value, standing: Standing, twin: Value | None) -> Markup:
    measured, on = (value, "") if value.edits is not None else (twin, f" on {standing.twin_id}")
    if measured is None or measured.edits is None:
        return Markup("not run: {}").format(value.why or "no reason given")
    if measured.edits is False:
        return Markup("read-only{}").format(on)
    if measured.edit is None:
        return Markup("reaches the logits{}").format(on)
    text = Markup("moved a logit by {}{}").format(figure(measured.edit.logits), on)
    if measured.edit.exact is not None:
        text += Markup("; <code>layer_output</code> moved as predicted, within {}").format(figure(measured.edit.exact))
    return text


def _evidence(value: Value, standing: Standing, twin: Value | None) -> Markup:
    if value.reads is not None:
        return Markup('{} <span class="versions">{}</span>').format(standing.words(), standing.versions())
    if twin is not None:
        return Markup('{} <span class="versions">{}</span>').format(standing.words(), standing.versions())
    return Markup("nothing has read it: {}").format(value.why or "no run")
