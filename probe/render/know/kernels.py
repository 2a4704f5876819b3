"""How far another package's kernels are from the PyTorch code in whose place they run, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from probe.kernels import results
from probe.render.know.subject import Subject, code, listing, say, within
from probe.render.text import figure, prose
from probe.schema.kernels import Comparison, Difference, KernelResults

CALLED = {"prompt": "a prompt", "step": "one token more with its cache"}

ROUNDING = 1e-5
"""Largest difference, relative to the largest number, that float32's rounding of many sums explains."""


def comparisons(subject: Subject, found: KernelResults | None) -> list[Comparison]:
    """What was compared on the twin that ran behind the page."""
    run = subject.run
    return results.of(found, run.family, run.checkpoint.id) if run else []


def beside(subject: Subject, function: str, found: KernelResults | None) -> Markup:
    """What follows the sentence that names what may run in a function's place: how far it is apart, or why not."""
    named = [each for each in comparisons(subject, found) if each.function == function]
    if not found or not named:
        return prose("How far its numbers are apart was not measured.")
    said = []
    for each in named:
        if each.reason is None:
            said.append(_apart(each))
        else:
            said += [say("How far its numbers are apart was not measured: ") + _why(each), *_references(found, [each])]
    return Markup(" ").join(said)


def others(subject: Subject, told: Sequence[str], found: KernelResults | None) -> list[Markup]:
    """The same of further functions of the model, and on what the kernels ran."""
    if found is None:
        return []
    compared = comparisons(subject, found)
    further = [each for each in compared if each.function not in told]
    said = []
    for each in further:
        if each.reason is None:
            text = "Where {package} can be imported, transformers runs its {other} in place of {function}. "
            names = {"other": each.stand_in, "package": each.package, "function": each.function}
            said.append(say(text, **{name: code(value) for name, value in names.items()}) + _apart(each))
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for each in further:
        if each.reason is not None:
            groups.setdefault((each.package, each.reason), []).append(each)
    for (package, _), same in groups.items():
        text = (
            "Where {package} can be imported, transformers runs its {others}{too}; how far {which} numbers are from "
            "the PyTorch code's was not measured: "
        )
        parts = {
            "others": listing([code(each.stand_in) for each in same]),
            "which": "its" if len(same) == 1 else "their",
        }
        not_measured = say(text, package=code(package), too=" too" if told else "", **parts) + _why(same[0])
        said.append(Markup(" ").join([not_measured, *_references(found, same)]))
    ran = [each for each in compared if each.reason is None]
    return [*said, *([_where(found, ran)] if ran else []), *_open(compared)]


def _references(found: KernelResults, same: Sequence[Comparison]) -> list[Markup]:
    """How far a package's own PyTorch versions of its functions are from transformers', where they were called."""
    said = []
    for each in same:
        if each.reference is not None:
            text = "The package ({package}) also has a PyTorch version of {other}, {reference}. "
            version = f"{each.package} {found.packages[each.package]}"
            named = say(text, package=version, other=code(each.stand_in), reference=code(each.reference))
            said.append(named + _apart(each))
    return said


def _open(compared: Sequence[Comparison]) -> list[Markup]:
    """What the PyTorch versions show, and what they leave open."""
    stood_in = [each for each in compared if each.reference is not None]
    if not stood_in:
        return []
    far = [each for each in stood_in if any(d.apart > ROUNDING * d.largest for d in each.differences)]
    shown = (
        say(
            "more than rounding lies between the code of transformers and {references}",
            references=listing([code(each.reference) for each in far]),
        )
        if far
        else "such PyTorch versions compute what the code of transformers does, to within rounding"
    )
    said = [say("So on these arguments {shown}.", shown=shown)]
    if any(each.ran is None for each in stood_in):
        text = (
            "Whether a kernel that was not run keeps to its PyTorch version, and how a GPU rounds, is open: on a "
            "machine with a CUDA device {command} measures it."
        )
        said.append(say(text, command=code("python -m probe kernels")))
    return [Markup(" ").join(said)]


def _apart(each: Comparison) -> Markup:
    text = "Called on the same {dtype} arguments of {called}, it gives {parts}."
    parts = listing([_part(difference) for difference in each.differences])
    said = say(text, called=CALLED[each.during or "prompt"], dtype=each.dtype, parts=parts)
    padded = " It refused the strides of the twin's tensors, and got the same numbers in rows padded to multiples of 8."
    return said + prose(padded) if each.padded else said


def _part(difference: Difference) -> Markup:
    what = difference.of if difference.of in ("output", "state") else code(difference.of)
    text = "the {what} {within} (numbers up to {largest})"
    return say(text, what=what, within=within(difference.apart), largest=figure(difference.largest))


def _why(each: Comparison) -> Markup:
    return prose(f"{each.reason}.")


def _where(found: KernelResults, ran: Sequence[Comparison]) -> Markup:
    """On what the kernels ran, with the versions of what ran."""
    if any(each.ran == "cuda" for each in ran):
        text = (
            "The kernels that were measured ran on {device} ({versions}), the PyTorch code beside them in full float32 "
            "(without TF32)."
        )
        return say(text, device=found.device, versions=_versions(found, ran, "triton"))
    ways = []
    if interpreted := [each for each in ran if each.ran == "interpreter"]:
        text = "{functions} in Triton's interpreter ({versions})"
        ways.append(say(text, functions=_named(interpreted), versions=_versions(found, interpreted, "triton")))
    if compiled := [each for each in ran if each.ran == "compiled"]:
        text = "{functions} from CUDA source, compiled with a stand-in for CUDA's runtime ({versions})"
        ways.append(say(text, functions=_named(compiled), versions=_versions(found, compiled)))
    text = (
        "The kernels that were measured ran on a CPU, not on a GPU: {ways}. This executes their own code, but not a "
        "GPU's arithmetic: what a GPU rounds otherwise, or sums in another order, is not in these numbers."
    )
    return say(text, ways=listing(ways))


def _named(ran: Sequence[Comparison]) -> Markup:
    return listing([code(name) for name in dict.fromkeys(each.stand_in for each in ran)])


def _versions(found: KernelResults, ran: Sequence[Comparison], *further: str) -> str:
    names = dict.fromkeys([*(each.package for each in ran), *further])
    return ", ".join(f"{name} {found.packages[name]}" for name in names)
