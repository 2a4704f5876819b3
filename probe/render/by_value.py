"""The pages of values: where every family has a value, and which of them are odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from markupsafe import Markup

from probe import names
from probe.render import overviews as o
from probe.render.facets import held
from probe.render.places import Place, Spot
from probe.render.roles import row_role
from probe.render.text import anchor, cell, condition, plural, quirk_url, value_url, words

UP = "../../"
"""From a value's page to the site's root."""

SIDES = {"in": "input", "out": "output", "op": "inside the forward"}
PARTS = (("text", "In the text model"), ("vision", "In the vision encoder"))


def page(name: str, places: Sequence[Place], families: int) -> o.ValuePage:
    """The page of one value. ``families``: how many there are in all."""
    parts = [
        _part(key, title, mine, families)
        for key, title in PARTS
        if (mine := [p for p in places if p.vision == (key == "vision")])
    ]
    return o.ValuePage(name, parts, UP + "values/", names.of(name), names.TOOLS, _labels(name, places))


def _labels(name: str, places: Sequence[Place]) -> dict[str, Markup]:
    """What the quirks are called that other tools' names depend on, each leading to its page where it has one."""
    slugs = {unless.quirk for other in names.of(name) for unless in other.unless}
    found = {e.slug: e.label for place in places for e in held(place.stored.record) if e.slug in slugs}
    linked = {slug: Markup('<a href="{}">{}</a>').format(UP + quirk_url(slug), label) for slug, label in found.items()}
    return {slug: Markup("{}").format(words(slug).capitalize()) for slug in slugs} | linked


def index(values: Mapping[str, Sequence[Place]], families: int) -> o.ValueIndex:
    """All values by host, in the order in which a family's page has them."""
    hosts: dict[str, dict[str, list[Place]]] = {}
    for name, places in values.items():
        for place in places:
            hosts.setdefault(place.value.host, {}).setdefault(name, []).append(place)
    made = []
    for host in sorted(hosts, key=lambda h: (h.startswith("model.vision"), h.count("."), h)):
        entries = []
        for name, places in hosts[host].items():
            served = [p for p in places if p.served]
            if served:
                usual = _usual(served)
                url = value_url(name).removeprefix("values/")
                layout, dims, text = usual.value.layout, usual.value.dims, usual.value.description
                entries.append(o.ValueEntry(name, url, layout, dims, text, _count(served), _role(usual)))
        if entries:
            made.append(o.ValueHost(host, "h-" + anchor(host, "")[2:].strip("-"), entries))
    unserved = [
        (name, list(dict.fromkeys(place.value.reason or "no reason given" for place in places)))
        for name, places in values.items()
        if not any(place.served for place in places)
    ]
    return o.ValueIndex(made, unserved, families)


def _part(key: str, title: str, places: Sequence[Place], families: int) -> o.ValuePart:
    served = [place for place in places if place.served]
    usual = _usual(served or places)
    absent: dict[str, list[o.Link]] = {}
    here = {place.family.name for place in served}
    for place in places:
        if not place.served and place.family.name not in here:
            absent.setdefault(place.value.reason or "no reason given", []).append(_link(place))
    return o.ValuePart(
        name=key,
        title=title,
        layout=usual.value.layout,
        dims=usual.value.dims,
        description=usual.value.description,
        places=[_place(place) for place in served],
        odd=list(_odd(served, usual)),
        several_hosts=len({place.value.host for place in served}) > 1,
        absent=sorted(absent.items(), key=lambda item: -len(item[1])),
        summary=f"{plural(len(here), 'family serves', 'families serve')} it, of {families}.",
    )


def _usual(places: Sequence[Place]) -> Place:
    """The place whose layout, dimensions and description most have."""
    counts = Counter(map(_form, places))
    return max(places, key=lambda place: counts[_form(place)])


def _form(place: Place) -> tuple[str, tuple[str, ...], str]:
    return place.value.layout, tuple(place.value.dims), place.value.description


def _count(places: Sequence[Place]) -> int:
    return len({place.family.name for place in places})


def _role(place: Place) -> str:
    part = place.stored.record.vision if place.vision else place.stored.record
    return row_role(place.value, part) if part else "vision"


def _link(place: Place) -> o.Link:
    return o.Link(place.family.default.record.about.title, UP + place.url)


def _place(place: Place) -> o.ValuePlace:
    value = place.value
    run = place.run
    return o.ValuePlace(
        id=f"f-{place.family.name}-{anchor(value.host, value.name)[2:]}",
        family=_link(place),
        host=value.host,
        module=value.module,
        spots=[
            (spot_words(spot), "" if count == place.serving else f"{count} of {plural(place.serving, 'checkpoint')}")
            for spot, count in place.spots.most_common()
        ],
        held=place.held.held.view if place.held and place.held.held else None,
        where="" if place.where == "every block" else place.where,
        condition="eager load" if value.needs else condition(value, place.attn),
        warn=bool(value.needs),
        edit="not run" if run is None or run.edits is None else "edited" if run.edits else "read-only",
    )


def spot_words(spot: Spot) -> Markup:
    """A native place as code, with its side and what of it."""
    path, side, element = spot
    where = Markup("<code>{}</code>").format(path) if path else Markup("the model itself")
    if side == "op":
        return cell(Markup("{}, inside its forward at <code>{}</code>").format(where, element))
    which = "" if element in (None, 0) else f", element {element}"
    return cell(Markup("{}, {}{}").format(where, SIDES[side], which))


def _odd(served: Sequence[Place], usual: Place) -> list[o.Odd]:
    """What sets families apart; what holds nowhere is left out."""
    tests: list[tuple[str, str, Callable[[Place], bool]]] = [
        ("held in another shape", "a hook there gets a tensor that must be viewed anew", lambda p: p.held is not None),
        ("needs an eager load", _reason(served), lambda p: p.value.needs is not None),
        ("read-only", "an edit had no effect, or none is possible", lambda p: bool(p.run and p.run.edits is False)),
        (
            "inside a forward",
            "no module takes or returns it; it is read at an operation",
            lambda p: bool(p.value.hf and p.value.hf.side == "op"),
        ),
        ("on some blocks only", "the table says on which", lambda p: p.where not in ("", "every block")),
        (
            "other dimensions",
            f"than {usual.value.layout} [{' '.join(usual.value.dims)}]",
            lambda p: _form(p)[:2] != _form(usual)[:2],
        ),
    ]
    found = [_group(label, note, served, test) for label, note, test in tests]
    texts = Counter(place.value.description for place in served)
    del texts[usual.value.description]
    found += [_group("said in other words", text, served, partial(_described, text)) for text, _ in texts.most_common()]
    return [odd for odd in found if odd is not None]


def _reason(served: Sequence[Place]) -> str:
    """Why a load is needed, as most families' rows say it."""
    reasons = Counter(condition(place.value, place.attn) for place in served if place.value.needs)
    return reasons.most_common(1)[0][0] or "" if reasons else ""


def _described(text: str, place: Place) -> bool:
    return place.value.description == text


def _group(label: str, note: str, served: Sequence[Place], test: Callable[[Place], bool]) -> o.Odd | None:
    mine = {p.family.name: p for p in served if test(p)}
    others = {p.family.name: p for p in served if p.family.name not in mine}
    if not mine:
        return None
    inverted = len(mine) > len(others)
    listed = others if inverted else mine
    return o.Odd(label, note, len(mine), _count(served), inverted, [_link(place) for place in listed.values()])
