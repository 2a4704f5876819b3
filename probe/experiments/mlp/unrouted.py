"""What a mixture gives a token whose expert weights are all zero: what none of its router's choices decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...instruments.extra import once
from ...instruments.perturbed import Batch, perturbed
from ...instruments.rows import Rows
from ...measure.run import Run
from ...standard.stack import Contribution
from ...values.hosts import Host
from ..answers import tolerance

WEIGHTS = "expert_weights"
SHARES = (1.0, 0.0, 0.5)
"""What the weights of each row are multiplied by; the third shows that the output is linear in them."""

Places = dict[int, tuple[Host, Host, str]]


@once
def _places(run: Run) -> Places:
    """By block the hosts of a mixture's expert weights and of its contribution, and that contribution's name."""
    return {index: found for index in range(len(run.text)) if (found := _mixture(run, index)) is not None}


@perturbed(lambda run: len(SHARES) - 1 if _places(run) else 0)
@contextmanager
def unrouted(run: Run, batch: Batch, rows: Rows) -> Iterator[list[torch.Tensor | None]]:
    """For each block what its mixture gives where no expert has any weight, ``[seq, width]``; None where the weights
    are not served, or the mixture's output does not follow them in a straight line.
    """
    found: list[torch.Tensor | None] = [None] * len(run.text)
    places = _places(run)
    given: dict[int, torch.Tensor] = {}

    def weigh() -> None:
        for weights, _, _ in places.values():
            held = getattr(weights, WEIGHTS)
            for row, share in enumerate(SHARES):
                rows.part(held, row).mul_(share)

    def read() -> None:
        for index, (_, host, name) in places.items():
            given[index] = rows.by_row(getattr(host, name))

    if places:
        batch.workers += [weigh, read]
    yield found
    for index, held in given.items():
        found[index] = _left(run, held)


def _mixture(run: Run, index: int) -> tuple[Host, Host, str] | None:
    """The hosts of a block's expert weights and of its mixture's contribution, and that contribution's name."""
    mixture = next((each for each in run.text.contributions[index] if each.term.kind == "moe"), None)
    if mixture is None:
        return None
    within = {label: host for label, block, host in run.model.hosts() if block == index and _is_in(run, label, mixture)}
    weights = next((host for host in within.values() if _writable(host)), None)
    whole = within.get(run.text.host(mixture.host))
    return None if weights is None or whole is None else (weights, whole, mixture.name)


def _is_in(run: Run, label: str, mixture: Contribution) -> bool:
    whole = run.text.host(mixture.host)
    return label == whole or label.startswith(f"{whole}.")


def _writable(host: Host) -> bool:
    value = host.standard_values().get(WEIGHTS)
    return value is not None and host.refusal(value) is None and value.writable


def _left(run: Run, given: torch.Tensor) -> torch.Tensor | None:
    """What is left without weights, where the output follows them: as it is, without them, and half the way. A vector
    that is the same for every token is a bias, and nothing is left beside it.
    """
    whole, without, half = given
    off, moved = (half - (whole + without) / 2).abs().max(), (whole - without).abs().max()
    close = tolerance(run) * whole.abs().max()
    if bool(moved <= close) or bool(off >= close):
        return None
    return without if bool((without - without[0]).abs().max() > close) else torch.zeros_like(without)
