"""What a mixture gives a token whose expert weights are all zero: what none of its router's choices decides."""

from __future__ import annotations

import torch

from ..measure.run import Contribution, Run
from ..measure.trace import run as run_workers
from ..standard.hosts import Host
from .answers import tolerance
from .extra import SHORT, once, token_ids
from .tap import Rows, hooks

WEIGHTS = "expert_weights"
SHARES = (1.0, 0.0, 0.5)
"""What the weights of each row are multiplied by; the third shows that the output is linear in them."""


@once
def unrouted(run: Run) -> list[torch.Tensor | None]:
    """For each block what its mixture gives where no expert has any weight, ``[seq, width]``; None where the weights
    are not served, or the mixture's output does not follow them in a straight line.
    """
    places = {index: found for index in range(len(run.text)) if (found := _mixture(run, index)) is not None}
    given: dict[int, torch.Tensor] = {}
    rows = Rows(len(SHARES))

    def weigh() -> None:
        for weights, _, _ in places.values():
            held = getattr(weights, WEIGHTS)
            for row, share in enumerate(SHARES):
                rows.part(held, row).mul_(share)

    def read() -> None:
        for index, (_, host, name) in places.items():
            held = getattr(host, name).detach().float()
            given[index] = held.reshape(rows.total, -1, held.shape[-1]).clone()

    if places:
        ids = token_ids(run, SHORT, rows.total)
        with hooks([(envoy._module, rows.align) for envoy in run.text.envoys]):
            run_workers(run.model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, [weigh, read])
    return [_left(run, given.get(index)) for index in range(len(run.text))]


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


def _left(run: Run, given: torch.Tensor | None) -> torch.Tensor | None:
    """What is left without weights, where the output follows them: as it is, without them, and half the way. A vector
    that is the same for every token is a bias, and nothing is left beside it.
    """
    if given is None:
        return None
    whole, without, half = given
    off, moved = (half - (whole + without) / 2).abs().max(), (whole - without).abs().max()
    close = tolerance(run) * whole.abs().max()
    if bool(moved <= close) or bool(off >= close):
        return None
    return without if bool((without - without[0]).abs().max() > close) else torch.zeros_like(without)
