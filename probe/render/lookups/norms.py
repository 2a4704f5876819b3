"""The table of norms: what each one's value is, whether its gain is in it, and what the gain is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from probe.render.answers import Lookup
from probe.render.know.subject import BLOCK, Subject, code, each_once, listing, many, say
from probe.render.know.terms import host_of
from probe.render.lookups.stream import place
from probe.render.text import figure, prose
from probe.schema import Scalar, Sublayer, Value
from probe.wording import added_under_root

NORMS = ((BLOCK, "attention_norm_output"), (BLOCK, "mlp_norm_output"), ("model", "final_norm_output"))


def norms(subject: Subject) -> Lookup | None:
    """For each norm of the stream its value, and whether that is with the gain."""
    values = [value for value in (subject.value(host, name) for host, name in NORMS) if value and value.hf]
    if not values:
        return None
    readers = _readers(subject)
    reading, told = bool(readers), {value.hf.path for value in values if value.hf}
    rows = [
        [
            subject.link(value),
            place(value),
            _included(value),
            _gain(subject, value),
            *([_read_by(_of_value(value, readers))] if reading else []),
        ]
        for value in values
    ]
    rows += [
        [Markup("no value"), say("{path} output", path=code(path)), Markup(""), Markup(""), _read_by(by)]
        for path, by in readers.items()
        if path not in told
    ]
    lead = prose(
        "A norm's output is what its module returns, gain and bias included; tools that name the quotient before "
        "them mean another tensor. What the gain is was found by calling the norms with weights of zero and one."
    )
    lead += _root(subject) + _named_after(subject)
    head = ["value", "PyTorch", "gain included", "gain", *(["read by"] if reading else [])]
    return Lookup("l-norms", "Norms and their gain", lead, head, rows)


def inner(subject: Subject) -> Lookup | None:
    """The norms inside sublayers, as the run behind the page found them; what follows an entry of the config is
    the checkpoint's own.
    """
    fact = subject.fact("inner_norms")
    if fact is None:
        return None
    keys = ("norms", "over", "groups", "gains", "gain", "gated", "to", "added", "entries", "fixed")
    rows = {
        (str(one["norms"]), str(_together(subject, one)), str(_gain_of(subject, one)), str(_under(subject, one))): [
            code(one["norms"]),
            _together(subject, one),
            Markup("yes" if one["to"] == "variance" else "no" if one["to"] else ""),
            _gain_of(subject, one),
            _under(subject, one),
            Markup("takes a gate" if one["gated"] else ""),
        ]
        for one in (dict(zip(keys, each, strict=True)) for each in zip(*(many(fact, key) for key in keys), strict=True))
    }
    lead = prose(
        "These stand inside sublayers, at paths below the block, and need not be like the norms before and after them. "
        "Each was called with other inputs and weights, and built again from a config with another epsilon."
    )
    head = ["norm", "normed together", "subtracts the mean", "gain", "added under the root", "gate"]
    return Lookup("l-inner-norms", "Norms inside sublayers", lead, head, [*rows.values()])


def _together(subject: Subject, one: Mapping[str, Scalar]) -> Markup:
    """Which of a token's numbers are normed together."""
    sizes = subject.run.sizes if subject.run else {}
    if one["groups"] is None:
        return Markup("")
    if one["groups"] == 1:
        return Markup("all that it takes of a token")
    if one["over"] in (sizes.get("head_dim"), sizes.get("qk_head_dim")):
        return Markup("each head by itself")
    return Markup("groups of channels, each by itself")


def _gain_of(subject: Subject, one: Mapping[str, Scalar]) -> Markup:
    """What its gain is, and whether groups share one."""
    if one["gain"] == "none" or one["groups"] in (None, 1):
        return prose("none" if one["gain"] == "none" else f"`{one['gain']}`")
    shared = "shared by all" if one["gains"] == one["over"] else "another for each"
    return say("{gain}, {shared}", gain=code(one["gain"]), shared=shared)


def _under(subject: Subject, one: Mapping[str, Scalar]) -> Markup:
    """What it adds, to what, and by which entry of the config."""
    if one["added"] is None:
        return Markup("not told")
    number, entry = one["added"], one["entries"]
    own = subject.config(str(entry)) if entry else None
    if isinstance(own, float):
        number = own
    where = f", {code(entry)}" if entry else ", whatever the config has" if one["fixed"] else ""
    twin = " on the twin" if not entry and not one["fixed"] and subject.run is not subject.record else ""
    return say(
        "{number}{where}{twin}, to the {under}", number=figure(number), where=Markup(where), twin=twin, under=one["to"]
    )


def _readers(subject: Subject) -> dict[str, list[str]]:
    """Path of each norm of the text model -> the modules with a matrix that are called with what it returns."""
    found: dict[str, list[str]] = {}
    classes = {row.path: row.module for row in subject.record.returned if not row.vision}
    for row in subject.record.returned:
        if row.reads and "norm" in classes.get(row.reads, "").lower() and row.path not in found.get(row.reads, []):
            found.setdefault(row.reads, []).append(row.path)
    return found


def _of_value(value: Value, readers: Mapping[str, list[str]]) -> list[str]:
    """The modules that read a norm's value: where no module returns it, the one that is called with it."""
    if value.hf is None:
        return []
    return [value.hf.path] if value.hf.side == "in" else readers.get(value.hf.path, [])


def _read_by(paths: list[str]) -> Markup:
    """Modules by their paths, inside a block without what they share."""
    if not paths:
        return Markup("no module with a matrix, as it is")
    return Markup(", ").join(code(path.partition(".{i}.")[2] or path) for path in paths)


def _root(subject: Subject) -> Markup:
    """What the norms add under their root; where only the twin ran, with the checkpoint's own entry for it."""
    fact = subject.fact("norm_epsilon")
    if fact is None:
        return Markup("")

    found: dict[tuple[Scalar, Scalar], list[Scalar]] = {}
    for norm, added, entry in zip(*(many(fact, name) for name in ("norms", "added", "entries")), strict=True):
        own = subject.config(entry) if isinstance(entry, str) else None
        found.setdefault((own if isinstance(own, float) else added, entry), []).append(norm)
    parts = [
        (figure(number), str(entry) if entry else None, [*map(str, norms)]) for (number, entry), norms in found.items()
    ]
    return Markup(" ") + prose(added_under_root(parts, map(str, many(fact, "to"))))


def _named_after(subject: Subject) -> Markup:
    """Which norm an MLP's input passes, where a norm of the block is named as if it came after a sublayer."""
    found: dict[tuple[str, str | None, bool], _Told] = {}
    for shape, blocks in subject.shapes():
        mixing = [
            sub for sub in shape.sublayers if sub.kind in ("attention", "mixer") and _after_by_name(sub.post_norm)
        ]
        for mlp in (sub for sub in shape.sublayers if sub.kind in ("mlp", "moe")):
            ahead = _after_by_name(mlp.pre_norm)
            for sub in [mlp] if ahead else mixing:
                norm = mlp.pre_norm if ahead else sub.post_norm
                told = found.setdefault((str(norm), mlp.pre_norm, ahead), _Told([], [], set()))
                told.givers.append(_module(subject, sub))
                told.readers.append(_module(subject, mlp))
                told.blocks.update(blocks)
    norms = [norm for norm, _, _ in found]
    said = []
    for (norm, pre, ahead), told in found.items():
        text = "{where}{norm} norms what {givers} {return_}, before the add; in front of {mlp} stands {pre}."
        if ahead:
            text = (
                "{where}{norm} stands in front of {mlp}, in spite of its name: it norms the stream, not what a module "
                "returns."
            )
        where = f"On {subject.among(told.blocks)} " if norms.count(norm) > 1 else ""
        givers = each_once(told.givers)
        parts = {"givers": listing(givers), "return_": "return" if len(givers) > 1 else "returns"}
        parts |= {"mlp": listing(each_once(told.readers)), "pre": code(pre) if pre else "no norm"}
        said.append(Markup(" ") + say(text, where=where, norm=code(norm), **parts))
    return Markup("").join(said)


@dataclass(frozen=True)
class _Told:
    """Of a norm the modules whose return it norms, the MLPs of these blocks, and the blocks."""

    givers: list[Markup]
    readers: list[Markup]
    blocks: set[int]


def _after_by_name(norm: str | None) -> bool:
    return norm is not None and norm.startswith("post_")


def _module(subject: Subject, sublayer: Sublayer) -> Markup:
    """A sublayer's module by its path below the block."""
    path = subject.native(host_of(sublayer)) or ""
    return code(path.partition(".{i}.")[2] or sublayer.host)


def _included(value: Value) -> Markup:
    told = value.hf is not None and value.hf.side == "out"
    return Markup("yes, it is the module's return" if told else "not told: it is no module's return")


def _gain(subject: Subject, value: Value) -> Markup:
    """What multiplies, as calls of the norms found it."""
    if value.host != BLOCK:
        found = subject.fact("final_norm_gain")
        if found is None:
            return Markup("not examined")
        return prose("none" if found.measured.get("weight") is False else "`1 + weight`" if found.value else "`weight`")
    verdicts = {e.slug: e for e in subject.record.experiments}
    gain, without = verdicts.get("gain-norm"), verdicts.get("weightless-norms")
    parts = []
    if without and without.verdict == "yes":
        parts.append(say("none on {where}", where=subject.where(without.blocks)))
    if gain and gain.verdict == "yes":
        parts.append(say("`1 + weight` on {where}", where=subject.where(gain.blocks)))
    elif gain and gain.verdict == "no":
        parts.append(prose("`weight`"))
    return Markup("; ").join(parts) or prose((gain.statement if gain else None) or "not known")
