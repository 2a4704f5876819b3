"""The interactive figure of a stack of blocks: strip, slider, drawings, legend and the identity beneath."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from markupsafe import Markup, escape

from probe.render.context import Figure, Node, ShapeView, Strip, Sum, Tick, TypeLegend
from probe.render.diagram.block import draw
from probe.render.diagram.model import Reader
from probe.render.know.subject import Subject
from probe.render.naming import Name, lines, tool_lines
from probe.render.other_names import by_tool
from probe.render.roles import LEGEND, term_role
from probe.render.standing import Standing, error_text
from probe.render.templating import render
from probe.render.text import anchor, figure, plural, row_id, some_blocks, words
from probe.schema import PathNode, Record, Shape, Value, Vision

FORMS = ("solid", "hollow", "striped", "dotted")
TERM = re.compile(r"[A-Za-z_](?:\w|\.(?=\w)|\[[^\]]*\])*")
EARLIER = re.compile(r"\[[a-z]-\d+\]")
"""An index counted back from a block's, as in ``layers[i-1]``, in which no line should end."""
CALL = re.compile(r"(?<=\w)\((?=[\w<])")
"""The bracket behind a function's name, where a line may end."""

READOUT = (
    ("embed_tokens", "token_embeddings", "stream"),
    ("layers", "layer_output", "stream"),
    ("norm", "final_norm_output", "norm"),
    ("lm_head", "lm_head_output", "stream"),
    ("logits", "logits", "stream"),
)
UNNORMED = "layers[-1].layer_output == final_norm_output"
"""The sum of a model whose head reads the last block's output as it is."""

NOTED = {
    "softcapped-logits": "logits",
    "scaled-logits": "logits",
    "scaled-embeddings": "embed_tokens",
    "embedding-multiplier": "embed_tokens",
}


def model_strip(standing: Standing) -> Markup:
    """The way from tokens to logits, with the value read at each station."""
    record, subject = standing.record, Subject(standing)
    names = {v.name: v for v in record.values if v.host == "model"}
    notes = {NOTED[e.slug]: e.label.lower() for e in record.experiments if e.verdict == "yes" and e.slug in NOTED}
    handed = next((e for e in record.experiments if e.slug == "handed-state" and e.verdict == "yes"), None)
    if handed and isinstance(given := handed.measured.get("arguments"), list):
        notes["layers"] = f"beside the stream: {', '.join(map(str, given))}"
    nodes = []
    bare = any(found.holds and found.expression == UNNORMED for found in standing.identities(vision=False))
    for label, value, role in READOUT:
        if label == "norm" and bare:
            continue
        block = label == "layers"
        has = block or value in names
        nodes.append(
            Node(
                label=label,
                value=value if has and value != label and not block else None,
                names=_short(names[value], subject) if has and not block else {},
                card=anchor("model.layers[i]" if block else "model", value) if has else None,
                note=notes.get(label),
                repeat=len(record.blocks) if block else None,
                role=role,
            )
        )
    return render(Strip("model", _with_unlisted(record, nodes)))


def _with_unlisted(record: Record, nodes: list[Node]) -> list[Node]:
    """The stations with the blocks that are not in the list, where a forward runs them: behind it or in front of it."""
    found = next((e for e in record.experiments if e.slug == "unlisted-blocks" and e.verdict == "yes"), None)
    order, at, turns = (found.measured.get(name) if found else None for name in ("order", "at", "turns"))
    if not isinstance(order, list) or not isinstance(at, list) or not isinstance(turns, int):
        return nodes
    paths = [str(path) for path in at]
    stretches = []
    for name in map(str, order):
        if name == "layers":
            stretches += [node for node in nodes if node.label == name]
            continue
        many = sum(path == name or path.rpartition(".")[0] == name for path in paths)
        times = f", {turns} times in turns with layers" if turns > 1 else ""
        stretches.append(Node(name, None, {}, None, f"not in the list{times}", many if many > 1 else None, "stream"))
    place = next(index for index, node in enumerate(nodes) if node.label == "layers")
    return [*nodes[:place], *stretches, *nodes[place + 1 :]]


def _short(value: Value, subject: Subject) -> dict[str, Name]:
    """A value's other names as far as a station has room for them."""
    native = lines(value.hf)
    native = native and (native[0].rpartition(".")[2], native[1])
    tools = {tool: (tool_lines(name)[0], "") for tool, name in by_tool(subject, value).items()}
    return ({"native": native} if native else {}) | tools


def image_strip(vision: Vision) -> Markup:
    """The image's way into the text model."""
    rows = {v.name: row_id(v, vision.values) for v in vision.values if v.host == "model.vision"}

    def node(at: PathNode) -> Node:
        note = at.note or (f"[{', '.join(map(str, at.shape))}]" if at.shape else None)
        return Node(
            at.label,
            at.value if at.value != at.label else None,
            {},
            rows.get(at.value or at.label),
            note,
            at.repeat,
            "vision",
        )

    return render(Strip("image", [node(at) for at in vision.path]))


def figure_of(standing: Standing, vision: bool) -> Markup:
    """The figure of the text model's blocks, or of the vision encoder's."""
    record = standing.record
    part: Record | Vision = record.vision if vision and record.vision else record
    types = record.layer_types if not vision else ["vision"] * len(part.blocks)
    tones: dict[str, str] = {t: "v" if vision else str(k) for k, t in enumerate(dict.fromkeys(types))}
    order = list(dict.fromkeys(part.blocks))
    forms = _forms([part.shapes[s] for s in order])
    shape_form = dict(zip(order, forms, strict=True))
    name = "vision" if vision else "text"
    sizes = record.sizes | part.sizes
    others = None if vision else partial(by_tool, Subject(standing))
    views = [_shape_view(part, s, shape_form[s], vision, sizes, others) for s in order]
    ticks = [Tick(i, tones[types[i]], s, f"block {i}: {part.shapes[s].label}") for i, s in enumerate(part.blocks)]
    legend = [
        TypeLegend(
            label=part.shapes[s].label,
            tone=tones[types[part.blocks.index(s)]],
            form=shape_form[s],
            blocks=some_blocks(_blocks(part.blocks, s), len(part.blocks)),
        )
        for s in order
    ]
    used = {role for view in views for role in re.findall(r"r-(\w+)", view.wide)} - {"flow"}
    key = [(f"r-{role}", text) for role, text in LEGEND.items() if role in used]
    if any("is-eager" in view.wide for view in views):
        key.append(("is-eager", "needs an eager load"))
    return render(
        Figure(
            name=name,
            strip=image_strip(record.vision) if vision and record.vision else model_strip(standing),
            blocks=len(part.blocks),
            ticks=ticks,
            legend=legend,
            shapes=views,
            counts=", ".join([plural(len(part.blocks), "block"), plural(len(order), "shape")]),
            key=key,
            sums=_sums(standing, part, vision),
        )
    )


def _blocks(blocks: Sequence[int], shape: int) -> list[int]:
    return [i for i, s in enumerate(blocks) if s == shape]


def _forms(shapes: Sequence[Shape]) -> list[str]:
    """Shapes of one layer type take different forms, so that a tick tells them apart without its colour."""
    seen: dict[str | None, int] = {}
    out = []
    for shape in shapes:
        out.append(FORMS[seen.get(shape.layer_type, 0) % len(FORMS)])
        seen[shape.layer_type] = seen.get(shape.layer_type, 0) + 1
    return out


def _differing(shapes: Sequence[Shape], index: int) -> list[tuple[str, int]]:
    """The sizes in which this shape differs from some other."""
    here = shapes[index].sizes
    return [(k, v) for k, v in here.items() if any(other.sizes.get(k) != v for other in shapes)]


def _shape_view(
    part: Record | Vision,
    index: int,
    form: str,
    vision: bool,
    sizes: dict[str, int],
    others: Callable[[Value], Mapping[str, Name]] | None,
) -> ShapeView:
    shape, mine = part.shapes[index], _blocks(part.blocks, index)
    prefix, name = ("model.vision.", "vision") if vision else ("model.", "text")
    block = Reader(shape, index, mine, part.values, prefix, name, others).read()
    title = f"Block diagram, {shape.label}"
    stream = "vision" if vision else "stream"
    differing = {k for k, _ in _differing(part.shapes, index)}
    return ShapeView(
        index=index,
        label=shape.label,
        first=mine[0],
        blocks=some_blocks(mine, len(part.blocks)),
        form=form,
        wide=draw(block, False, title, stream),
        narrow=draw(block, True, title, stream),
        parts=block.parts,
        sizes=json.dumps(sizes | shape.sizes, separators=(",", ":"), sort_keys=True),
        size_line=[(words(k), figure(v), k in differing) for k, v in shape.sizes.items()],
    )


def _sums(standing: Standing, part: Record | Vision, vision: bool) -> list[Sum]:
    """The blocks' identities, each once, with what its evaluation gave."""
    shapes, blocks = part.shapes, part.blocks
    evaluated = {i.expression: i for i in standing.identities(vision)}
    out = []
    for expression in dict.fromkeys(shapes[s].identity for s in blocks):
        mine = [i for i, s in enumerate(blocks) if shapes[s].identity == expression]
        found = evaluated.get(expression)
        where = some_blocks(mine, len(blocks)) if len({s.identity for s in shapes}) > 1 else ""
        written = equation(expression, part, mine)
        if found is None:
            out.append(Sum(written, where, "", "", "", "not evaluated: " + standing.words(), None))
            continue
        count = plural(len(found.blocks), "block") if found.blocks is not None else "the model"
        on = f" of the twin {standing.twin_id}" if standing.borrowed(vision) else ""
        out.append(
            Sum(
                written,
                where,
                error_text(found.max_abs_error),
                figure(found.tolerance),
                found.dtype,
                f"{count}{on}",
                found.holds,
            )
        )
    return out


def equation(expression: str, part: Record | Vision, blocks: Sequence[int] | None) -> Markup:
    """An identity whose terms have the colours that the drawings give them.

    Args:
        part: the record, or its vision encoder.
        blocks: those that it was evaluated on; None for the whole model.
    """
    out, last = [], 0
    for match in TERM.finditer(expression):
        out.append(escape(expression[last : match.start()]))
        last = match.end()
        role = term_role(match[0], part, blocks)
        out.append(Markup('<span class="term r-{}">{}</span>').format(role, match[0]))
    out.append(escape(expression[last:]))
    whole = EARLIER.sub(r'<span class="whole">\g<0></span>', str(Markup("").join(out)))
    return Markup(CALL.sub(r"\g<0><wbr>", whole))
