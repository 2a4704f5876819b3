"""What a bounded MLP gives, and what clipped projections are made into, while their input grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...instruments.extra import SHORT, attentions
from ...instruments.perturbed import Batch, alone
from ...instruments.projected import linear_paths
from ...instruments.rows import Change, Rows, Times, hooks
from ...instruments.tap import Tapped
from ...measure.rounding import digits
from ...measure.run import Run
from ...schema import Picture, Series
from ..attention.clipping import limits, unturned
from ..mlp.bounded import responses

FACTORS = tuple(10.0**power for power in range(-2, 7))


def of_mlps(run: Run) -> list[Picture]:
    """One picture of the first block on which a module of an MLP is bounded: the largest number that it takes and that
    it gives, at inputs of growing size.
    """
    found = next(((i, curves) for i, curves in enumerate(responses(run, FACTORS)) if curves), None)
    if found is None:
        return []
    index, curves = found
    name, sizes = next(iter(curves.items()))
    takes, gives = [digits(s.taken, 3) for s in sizes], [digits(s.given, 3) for s in sizes]
    said = (
        f"While the input of `{name}` on block {index} grows from {takes[0]:g} to {takes[-1]:g}, what it gives goes "
        f"from {gives[0]:g} to {gives[-1]:g}."
    )
    label = f"The largest number that {name} takes and gives"
    return [_picture("response", label, "bounded-mlps", index, "input", {"taken": takes, "given": gives}, said)]


def of_projections(run: Run) -> list[Picture]:
    """One picture of the first block whose queries, keys or values are clipped: their largest number, while what the
    projections give grows.
    """
    index, clipped = next(((index, found) for index, found in enumerate(limits(run)) if found), (0, None))
    if not clipped:
        return []
    tapped = alone(run, lambda run: len(FACTORS), _grown, SHORT)[index]
    rows = [unturned(tapped, row) for row in range(1, 1 + len(FACTORS))]
    sizes = {name: [digits(float(row[name].abs().max()), 3) for row in rows] for name in rows[0]}
    ends = ", ".join(f"{name} {numbers[-1]:g}" for name, numbers in sizes.items() if name in clipped)
    said = f"However large what the projections of block {index} give becomes, the largest number stays at: {ends}."
    names = ", ".join(sizes)
    label = f"The largest number of the {names}"
    return [_picture("clipping", label, "clipped-projections", index, "what they give", sizes, said)]


@contextmanager
def _grown(run: Run, batch: Batch, rows: Rows) -> Iterator[list[Tapped]]:
    """Rows in which what every projection of the attentions gives is multiplied by each factor."""
    every: dict[int, Change] = {row: Times(factor) for row, factor in enumerate(FACTORS, 1)}
    changes = rows.changes(every)
    found: list[Tapped] = []
    modules = [a._module.get_submodule(path) for a in attentions(run) if a is not None for path in linear_paths(a)]
    with hooks(leaving=[(module, changes) for module in modules]):
        yield found
    found += [tapped.only(rows) for tapped in batch.inside]


def _picture(
    name: str, label: str, slug: str, block: int, what: str, sizes: dict[str, list[float]], statement: str
) -> Picture:
    return Picture(
        name=name,
        kind="response",
        label=label,
        quirks=[slug],
        blocks=[block],
        axes=[f"{what}, multiplied", "largest number"],
        series=[Series(name=name, numbers=[*numbers]) for name, numbers in sizes.items()],
        ticks=[f"{factor:g}" for factor in FACTORS],
        statement=statement,
    )
