"""What is drawn of a block: its sublayers with the values on the way in, inside and on the way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from probe.recurrences import RECURRENCES
from probe.render.context import Part
from probe.render.diagram.canvas import Label
from probe.render.know.subject import host_path
from probe.render.naming import Name, lines, tool_lines
from probe.render.roles import KINDS, MIXTURE, value_role
from probe.render.text import figure, row_id, words
from probe.render.trunk import Met, met
from probe.schema import Factor, Feeder, Shape, Sublayer, Value

PANELS = (("router", re.compile(r"^router|^expert_(weights|indices)")), ("experts", re.compile(r"^expert_|^routed_")))
SIZE_NOTES = {
    "attention": (("num_heads", "heads"), ("num_kv_heads", "kv"), ("head_dim", "wide")),
    "mlp": (("intermediate_size", "wide"),),
    "moe": (("num_experts", "experts"), ("top_k", "a token")),
}


@dataclass
class Fed:
    """A module on the way to where its result joins what a sublayer reads, and the values that are served inside it."""

    box: Label
    subtitle: str
    inside: dict[str, Label]


@dataclass
class Lane:
    """A sublayer as it is drawn, in the order of its computation.

    Attributes:
        scaled: what multiplies the stream before this sublayer's add; None where nothing does.
        fed: what is added to the stream on the way into this sublayer alone, one module after another.
        joins: that add; None where there is none.
    """

    sub: Sublayer
    box: Label
    subtitle: str
    note: str
    entry: list[Label]
    inside: dict[str, Label]
    panels: list[tuple[str, list[Label]]]
    post: Label | None
    contribution: Label | None
    add: Label
    factor: Label | None = None
    scaled: Label | None = None
    fed: list[Fed] = field(default_factory=list)
    joins: Label | None = None


@dataclass
class Block:
    """A block as it is drawn.

    Attributes:
        starts: what stands on the stream before the first sublayer: the input, and a norm of the stream itself.
        mids: what stands on it behind each group's add.
        groups: lanes that join at one add stand together.
    """

    starts: list[Label]
    end: Label | None
    mids: list[list[Label]]
    groups: list[list[Lane]]
    factors: list[Label]
    others: list[Label]
    parts: list[Part] = field(default_factory=list)


def _nearest(values: Sequence[Value], blocks: set[int]) -> list[Value]:
    """One row a value: where several places serve it, the one that serves these blocks."""
    found: dict[tuple[str, str], Value] = {}
    for value in values:
        here = value.blocks is None or not blocks.isdisjoint(value.blocks)
        if here or (value.host, value.name) not in found:
            found[value.host, value.name] = value
    return list(found.values())


class Reader:
    """Reads a block out of a shape and the record's values.

    Args:
        shape: the shape, the record's of this ``index``.
        blocks: those that have it.
        values: of the record, or of its vision encoder.
        prefix: what the block's host begins with.
        name: of the figure.
        others: gives the other tools' names of a value, by tool.
    """

    def __init__(
        self,
        shape: Shape,
        index: int,
        blocks: Sequence[int],
        values: Sequence[Value],
        prefix: str,
        name: str,
        others: Callable[[Value], Mapping[str, Name]] | None = None,
    ) -> None:
        self.shape, self.blocks, self.name, self.index = shape, set(blocks), name, index
        self.others = others or (lambda value: {})
        self.shapes, self.values = [shape], values
        self.block_host = f"{prefix}layers[i]"
        mine = _nearest(values, self.blocks)
        self.here = {v.name: v for v in mine if v.host == self.block_host}
        self.below = [v for v in mine if v.host.startswith(self.block_host + ".")]
        self.used: set[str] = set()
        self.parts: list[Part] = []

    def read(self) -> Block:
        way = met(self.shape)
        lanes = [self._lane(sub, place, way) for place, sub in enumerate(self.shape.sublayers)]
        groups: list[list[Lane]] = []
        joined = False
        for lane in lanes:
            if joined:
                groups[-1].append(lane)
            else:
                groups.append([lane])
            joined = lane.sub.parallel_with_next
        start, end = self._value("layer_input"), self._value("layer_output")
        starts = [*([start] if start else []), *self._on_stream(way, 0)]
        mids: list[list[Label]] = []
        behind = 0
        for lanes_here in groups:
            behind += len(lanes_here)
            mid = self._value("layer_mid") if not mids and len(groups) > 1 else None
            value = [mid] if mid and mid.state != "absent" else []
            following = self.shape.sublayers[behind].pre_norm if behind < len(lanes) else None
            norms = self._on_stream(way, behind)
            own = [norm for norm in norms if norm.text != following]
            mids.append([*own, *value, *(norm for norm in norms if norm.text == following)])
        factors = [self._factor(f) for f in self.shape.factors if f.applies_to == "sum"]
        others = [
            label
            for name in self.here
            if name not in self.used and (label := self._value(name)) and label.state != "absent"
        ]
        return Block(starts, end, mids, groups, factors, others, self.parts)

    def _on_stream(self, way: Sequence[Met], behind: int) -> list[Label]:
        """The modules that the stream itself passes when it has taken up so many contributions."""
        rows = [("does", "takes the stream itself: all that follows reads its output")]
        return [
            self._part("norm", each.name, "norm", "norm", rows)
            for each in way
            if each.kind == "module" and each.behind == behind
        ]

    def _lane(self, sub: Sublayer, place: int, way: Sequence[Met]) -> Lane:
        role = KINDS[sub.kind]
        stem = sub.contribution.removesuffix("_output")
        on_stream = any(each.name == sub.pre_norm and each.behind == place for each in way)
        entry = (
            [self._norm(sub.pre_norm, f"norms the stream on the way into {sub.host or stem}", f"{stem}_norm_output")]
            if sub.pre_norm and not on_stream
            else []
        )
        entry += [
            label
            for name in (f"{stem}_norm_output", f"{stem}_input")
            if (label := self._value(name)) and label.state != "absent"
        ]
        host = f"{self.block_host}.{sub.host}" if sub.host else self.block_host
        native = self._native(host) if sub.host else ""
        inside: dict[str, Label] = {}
        for value in self.below:
            if (
                not sub.host
                or (value.host != host and not value.host.startswith(host + "."))
                or value.name == sub.contribution
            ):
                continue
            key = value.name if value.host == host else f"{value.host}:{value.name}"
            label = self._label(value, module=native)
            if label.state != "absent" or (sub.kind == "moe" and MIXTURE.match(value.name)):
                if sub.kind == "moe" or not MIXTURE.match(value.name):
                    inside[key] = label
        own = next(
            (v for v in self.below if v.host == host and v.name == sub.contribution), self.here.get(sub.contribution)
        )
        self.used.add(sub.contribution)
        contribution = self._label(own, role) if own else None
        post = (
            self._norm(sub.post_norm, f"norms what {sub.host or stem} gives, before the add", sub.contribution)
            if sub.post_norm
            else None
        )
        sizes = [(self.shape.sizes[k], unit) for k, unit in SIZE_NOTES.get(sub.kind, ()) if k in self.shape.sizes]
        note = " · ".join(f"{figure(size)} {unit}" for size, unit in sizes)
        title = sub.host or stem
        box = self._part(
            "box",
            title,
            role,
            {
                "attention": "attention",
                "mixer": RECURRENCES[sub.recurrence] if sub.recurrence else "sequence mixer",
                "mlp": "MLP",
                "moe": "mixture of experts",
                "branch": "branch of the block",
            }[sub.kind],
            [
                ("class", sub.module),
                ("contributes", sub.contribution),
                ("reads", f"the stream through {sub.pre_norm}" if sub.pre_norm else "the stream as it is"),
                ("before the add", sub.post_norm or "nothing"),
                *(
                    (words(k), figure(self.shape.sizes[k]))
                    for k, _ in SIZE_NOTES.get(sub.kind, ())
                    if k in self.shape.sizes
                ),
                *([("keys and values", f"{self.shape.lends}")] if sub.kind == "attention" and self.shape.lends else []),
            ],
            {"native": (native, "")} if native else {},
        )
        add = self._part(
            "add",
            "add",
            "stream",
            "add",
            [("adds", sub.contribution), ("to", "the residual stream"), ("identity", self.shape.identity)],
        )
        factor = next(map(self._factor, self.shape.factors_of(sub)), None)
        scales = [
            self._part("times", each.name, "mark", "factor", [("multiplies", "the stream before the add")])
            for each in way
            if each.kind == "factor" and each.behind == place
        ]
        return Lane(
            sub,
            box,
            sub.module if sub.kind != "branch" else "branch",
            note,
            entry,
            inside,
            self._panels(inside) if sub.kind == "moe" else [],
            post,
            contribution,
            add,
            factor,
            next(iter(scales), None),
            [self._fed(feeder, sub) for feeder in sub.fed_by],
            self._joins(sub) if sub.fed_by else None,
        )

    def _fed(self, feeder: Feeder, sub: Sublayer) -> Fed:
        """A module whose result joins what a sublayer reads, with the values that are served inside it."""
        host = f"{self.block_host}.{feeder.path}"
        served = [v for v in self.below if v.host == host or v.host.startswith(f"{host}.")]
        role = KINDS["attention"]
        inside = {v.name: label for v in served if (label := self._label(v, role)).state != "absent"}
        into = sub.host or sub.contribution
        rows = [("class", feeder.module), ("adds", f"its result to what {into} reads, and to nothing else")]
        if not inside:
            rows.append(("inside", "no value is served in it"))
        return Fed(self._part("box", feeder.path, role if inside else "flow", "feeder", rows), feeder.module, inside)

    def _joins(self, sub: Sublayer) -> Label:
        rows = [("adds", sub.fed_by[-1].path), ("to", f"what {sub.host or sub.contribution} reads, not the stream")]
        return self._part("add", "add", "flow", "add", rows)

    @staticmethod
    def _panels(inside: dict[str, Label]) -> list[tuple[str, list[Label]]]:
        found: dict[str, list[Label]] = {"router": [], "routed experts": [], "shared expert": []}
        for key, label in inside.items():
            name = key.rpartition(":")[2]
            if PANELS[0][1].match(name):
                found["router"].append(label)
            elif PANELS[1][1].match(name):
                found["routed experts"].append(label)
            else:
                found["shared expert"].append(label)
        found["shared expert"].sort(key=lambda label: label.text == "shared_expert_output")
        for labels in found.values():
            labels.sort(key=lambda label: label.state == "absent")
        return [(title, labels) for title, labels in found.items() if labels]

    def _value(self, name: str) -> Label | None:
        value = self.here.get(name)
        self.used.add(name)
        return self._label(value) if value else None

    def _native(self, host: str) -> str:
        """Native path, below the block, of the module that a host is; empty where no value tells."""
        found = next((path for v in self.below if v.host == host and (path := host_path(v)) is not None), "")
        return found.partition("{i}")[2].removeprefix(".")

    def _label(self, value: Value, role: str | None = None, module: str = "") -> Label:
        present = value.blocks is None or bool(self.blocks & set(value.blocks))
        state = "" if present else "absent"
        if present and value.needs == "eager":
            state = "eager"
        hint = f"{value.layout} [{' '.join(value.dims)}]" if present else "not on this block"
        return Label(
            value.name,
            row_id(value, self.values),
            role or value_role(value, self.shapes),
            state=state,
            hint=hint,
            names=self._names(value, module) if present else {},
        )

    def _names(self, value: Value, module: str) -> dict[str, Name]:
        native = lines(value.hf, module)
        tools = {tool: tool_lines(name) for tool, name in self.others(value).items()}
        return ({"native": native} if native else {}) | tools

    def _norm(self, name: str, what: str, value: str) -> Label:
        return self._part("norm", name, "norm", "norm", [("does", what), ("its output", value)])

    def _factor(self, factor: Factor) -> Label:
        what = "the block's sum" if factor.applies_to == "sum" else factor.contribution or "a contribution"
        return self._part("times", factor.name, "mark", "factor", [("multiplies", what), ("is a", factor.kind)])

    def _part(
        self,
        form: str,
        title: str,
        role: str,
        kind: str,
        rows: list[tuple[str, str]],
        names: Mapping[str, Name] | None = None,
    ) -> Label:
        part = Part(f"p-{self.name}-{self.index}-{len(self.parts)}", kind, title, role, rows)
        self.parts.append(part)
        return Label(title, part.id, role, form=form, hint=kind, names=names or {})
