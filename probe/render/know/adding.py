"""Where a vector is added so that the residual stream moves by exactly it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from probe.render.know.subject import BLOCK, Subject, code, each_once, listing, many, say, within
from probe.render.know.terms import Term, terms
from probe.render.text import figure, prose
from probe.schema import Fact, Value

BETWEEN = "stream between blocks"
ADDS = {"scaled-residual-adds", "hyper-connections"}


def adding(subject: Subject) -> list[Markup]:
    """The block's output first, then every contribution by where it is made, then what a run showed."""
    found = terms(subject)
    said = [*_stream(subject), *_passes(subject)]
    said += [*_places(subject, found), *_factors(subject, found), *_moved(subject, found)]
    if subject.run is None:
        said.append(say("No run stands behind this page, so this is how it is wired and not what an edit did."))
    return said


def _stream(subject: Subject) -> list[Markup]:
    """Whether the stream follows an edit of a block's output, and how the module returns it."""
    output = subject.value(BLOCK, "layer_output")
    if output is None:
        return [say("No row gives the stream that leaves a block, so nothing here says where a vector goes in.")]
    link, returned = subject.link(output), _returned(subject, output)
    lanes = subject.quirks.get("hyper-connections")
    said = [prose(lanes.statement or "")] if lanes else []
    aim = (
        say("one lane to move by exactly a vector, add it to that lane of")
        if lanes
        else say("the stream to move by exactly a vector, add it to")
    )
    for identity in subject.identities(BETWEEN):
        text = "For {aim} {out}{returned}: what leaves a block is {error} what enters the next."
        return [*said, say(text, aim=aim, out=link, returned=returned, error=within(identity.max_abs_error))]
    if fact := subject.fact("unkept_stream_between_blocks"):
        return [*said, _between(subject, fact, say("{aim} {out}{returned}", aim=aim, out=link, returned=returned))]
    return [*said, say("The stream leaves a block as {out}{returned}.", out=link, returned=returned)]


def _returned(subject: Subject, output: Value) -> Markup:
    """What a hook on the block's module gets, and which axis of it the lanes are, in brackets."""
    if output.hf is None or not output.hf.path:
        return Markup("")
    first = ", its first element" if "tuple-blocks" in subject.quirks else ""
    view = output.hf.held.view if output.hf.held else None
    text = " (what {path} returns{first})"
    if "lanes" in output.dims:
        text = " (what {path} returns{first}, of which {index} is lane k)"
        axis = output.dims.index("lanes")
        if view:
            text = " (what {path} returns{first}; {index} of its {view} is lane k)"
        index = code(f"[{':, ' * axis}k]")
        return say(text, path=code(output.hf.path), first=first, index=index, view=code(view))
    return say(text, path=code(output.hf.path), first=first)


def _between(subject: Subject, fact: Fact, aim: Markup) -> Markup:
    """That some blocks take in another stream than the block before gave, and where a vector is kept all the same."""
    blocks = many(fact, "blocks") if subject.run is subject.record else []
    entered = [block for block in blocks if isinstance(block, int)]
    left = [block - 1 for block in entered if block]
    if not left or len(left) >= subject.total - 1:
        text = (
            "What leaves a block is not on every block what enters the next: the two differ by up to {n}, so a vector "
            "added to a block's output is changed on its way."
        )
        return say(text, n=figure(fact.value))
    text = (
        "For {aim}, but not on {left}: what enters {entered} is another stream than what leaves the block before, by "
        "up to {n}. Between the other blocks the two are the same."
    )
    return say(text, aim=aim, left=subject.where(left), entered=subject.where(entered), n=figure(fact.value))


def _passes(subject: Subject) -> list[Markup]:
    """Blocks that one forward runs several times: a hook adds its vector on each pass."""
    if "looped-blocks" not in subject.quirks:
        return []
    statement = subject.quirks["looped-blocks"].statement or ""
    return [prose(f"{statement} A hook that counts its calls tells the passes apart.")]


def _places(subject: Subject, found: Sequence[Term]) -> list[Markup]:
    """Where each contribution is made, those made alike together."""
    writers = {"own": _own, "norm": _norm, "child": _child, "beside": _beside, "inside": _inside}
    said = []
    for place, write in writers.items():
        groups: dict[tuple[object, ...], list[Term]] = {}
        for term in found:
            if term.place == place:
                alike = place in ("own", "child") or (place == "norm" and bool(term.sublayer.host))
                key = (place == "own" and _normed_after(subject, term),) if alike else (term.value.host, term.giver)
                groups.setdefault(key, []).append(term)
        said += [write(subject, mine) for mine in groups.values()]
    return said


def _parts(subject: Subject, mine: Sequence[Term]) -> dict[str, object]:
    """What the sentences on places name: the values with their blocks, what gives them, and what is around that."""
    blocks: dict[str, set[int]] = {}
    for term in mine:
        blocks.setdefault(subject.link(term.value).striptags(), set()).update(term.blocks)
    links = each_once(subject.link(term.value) for term in mine)
    names = [say("{link}{where}", link=link, where=_where(subject, blocks[link.striptags()])) for link in links]
    several = len(names) > 1
    return {
        "names": listing(names),
        "givers": listing(list(dict.fromkeys(map(_giver, mine)))),
        "modules": listing(list(dict.fromkeys(code(term.module or term.sublayer.host) for term in mine))),
        "are": "are" if several else "is",
        "them": "them" if several else "it",
        "return_": "return" if several else "returns",
        "norms": "the norms" if several else "the norm",
        "give": "give" if several else "gives",
    }


def _where(subject: Subject, blocks: Iterable[int]) -> str:
    mine = sorted(blocks)
    return "" if len(mine) == subject.total else f" ({subject.among(mine)})"


def _giver(term: Term) -> Markup:
    element = term.value.hf.element if term.value.hf and term.place == "own" else None
    path = code(term.giver or term.sublayer.post_norm or term.sublayer.host)
    return path if element is None else say("{path} (element {element})", path=path, element=element)


def _own(subject: Subject, mine: Sequence[Term]) -> Markup:
    if "hyper-connections" in subject.quirks:
        sums = listing([code(s) for s in dict.fromkeys(shape.identity for shape, _ in subject.shapes())])
        text = "{names} {are} what {givers} {return_}; the lanes take them up by the block's sum: {sums}."
        return say(text, sums=sums, **_parts(subject, mine))
    text = (
        "{names} {are} what {givers} {return_}: only the add comes after, so a vector added there is one term more of "
        "the block's sum."
    )
    if _normed_after(subject, mine[0]):
        text = (
            "{names} {are} what {givers} {return_}: the add comes after, and then a norm on the stream itself, so a "
            "vector added there does not arrive as it is."
        )
    return say(text, **_parts(subject, mine))


def _normed_after(subject: Subject, term: Term) -> bool:
    """Whether a norm of the stream stands between the add and the block's output."""
    edit = subject.measured(term.value).edit
    return subject.holds("post-ln", term.blocks) and (edit is None or edit.exact is None)


def _norm(subject: Subject, mine: Sequence[Term]) -> Markup:
    text = (
        "{names} {are} what {norms} {givers} {give}, not what {modules} {return_}: a vector added before a norm is "
        "normed with the rest and reaches the stream as another one; added after it, it enters the sum as it is."
    )
    if not mine[0].sublayer.host:
        text = "{names} is what the norm {givers} gives, and enters the sum as it is."
    return say(text, **_parts(subject, mine))


def _child(subject: Subject, mine: Sequence[Term]) -> Markup:
    text = "{names} {are} what {givers} {return_}, inside {modules}."
    if all(subject.holds("residual-inside-module", term.blocks) for term in mine):
        text = "{names} {are} what {givers} {return_}. Around {them}, {modules} {return_} the sum with the stream."
    return say(text, **_parts(subject, mine))


def _beside(subject: Subject, mine: Sequence[Term]) -> Markup:
    text = "{names} is what {givers} gives, which stands between {modules} and the add."
    return say(text, **_parts(subject, mine))


def _inside(subject: Subject, mine: Sequence[Term]) -> Markup:
    hf = mine[0].value.hf
    text = "{names} is formed by an operation inside the forward of {givers} ({at}): no module returns it."
    return say(text, at=code(hf.element if hf else ""), **_parts(subject, mine))


def _factors(subject: Subject, found: Sequence[Term]) -> list[Markup]:
    """What multiplies a term, or the whole sum, before the next block takes it."""
    said = []
    if scaled := factors_of_terms(subject, found):
        text = "Before the add {scaled}: to move the stream by a vector, add the vector divided by that."
        said.append(say(text, scaled=scaled))
    elif {"scaled-residual-adds"} == subject.quirks.keys() & ADDS and not factors_of_sums(subject):
        whole = listing([code(s) for s in dict.fromkeys(shape.identity for shape, _ in subject.shapes())])
        text = "A contribution reaches the stream times what the block's sum multiplies it by: {whole}."
        said.append(say(text, whole=whole))
    if sums := factors_of_sums(subject):
        text = (
            "The block multiplies its whole sum by {factor}: what is added to a contribution is multiplied too, what "
            "is added to the block's output is not."
        )
        said.append(say(text, factor=listing([code(name) for name in sums])))
    return said


def factors_of_sums(subject: Subject) -> list[str]:
    """What multiplies a block's whole sum, by name."""
    return list(dict.fromkeys(f.name for shape, _ in subject.shapes() for f in shape.factors if f.applies_to == "sum"))


def factors_of_terms(subject: Subject, found: Sequence[Term]) -> Markup | None:
    """Which contributions are multiplied by what, as a clause; None where none is."""
    groups: dict[tuple[str, ...], list[Term]] = {}
    named: dict[Markup, list[str]] = {}
    for term in found:
        if term.factors:
            named.setdefault(subject.link(term.value), []).extend(term.factors)
    for term in found:
        if term.factors:
            groups.setdefault(tuple(dict.fromkeys(named[subject.link(term.value)])), []).append(term)
    if not groups:
        return None
    if all(_is_number(name) for names in groups for name in names):
        every = tuple(dict.fromkeys(name for names in groups for name in names))
        groups = {every: [term for mine in groups.values() for term in mine]}
    clauses = []
    for names, mine in groups.items():
        links = each_once(subject.link(term.value) for term in mine)
        verb = "are multiplied" if len(links) > 1 else "is multiplied"
        clauses.append(say("{links} {verb} by {by}", links=listing(links), verb=verb, by=factor_words(subject, names)))
    return listing(clauses)


def factor_words(subject: Subject, names: Sequence[str]) -> Markup:
    """Factors as a noun: the config's entry with its number, or the range of a constant that blocks have."""
    if all(_is_number(name) for name in names):
        numbers = sorted(map(float, names))
        if len(numbers) == 1:
            return say("{n}", n=figure(numbers[0]))
        text = "a constant, another one a block, from {low} to {high}"
        return say(text, low=figure(numbers[0]), high=figure(numbers[-1]))
    return listing(
        [
            say("{name} ({n})", name=code(name), n=figure(number))
            if isinstance(number := subject.config(name), (int, float))
            else code(name)
            for name in names
        ]
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _moved(subject: Subject, found: Sequence[Term]) -> list[Markup]:
    """By how much a block's output missed what an edit of a contribution should have moved it by."""
    said = []
    measured = [(term, subject.measured(term.value).edit) for term in found]
    errors = [edit.exact for _, edit in measured if edit and edit.exact is not None]
    missed = [term for term, edit in measured if edit and edit.exact is None]
    if errors:
        followed = [term.value for term, edit in measured if edit and edit.exact is not None]
        scaled = "scaled-residual-adds" in subject.quirks or any(shape.factors for shape, _ in subject.shapes())
        text = (
            "In {run} noise was added to {which}, with the block's later contributions held: `layer_output` moved by "
            "that noise{times} {error}."
        )
        times = ", times these factors," if scaled else ""
        which = subject.links(followed) if missed else "each contribution" if len(followed) > 1 else "the contribution"
        run = "the run" if subject.run is subject.record else "the twin's run"
        said.append(say(text, run=run, which=which, times=times, error=within(max(errors))))
    if missed:
        after = subject.holds("post-ln", [block for term in missed for block in term.blocks])
        why = ": the norm that follows the add takes it up" if after else ""
        text = "No edit of {names} was found that `layer_output` follows exactly{why}."
        said.append(say(text, why=why, names=subject.links([term.value for term in missed])))
    return said
