"""Editing every writable value, in one batched forward pass, and seeing what moves.

The prompt is repeated, one row an edit: in row ``r`` one value of one block is changed, and the row's logits are
compared with those of row 0, which nobody touches. A second unedited row gives the noise of the arithmetic. For a
contribution, another row holds the block's later contributions at row 0's, so that the block's output must move by
exactly the edit, times the block's factors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ..standard.stack import Stack
from ..standard.trace import Inputs, Key, Worker, by_host_and_name, repeat
from ..standard.trace import run as run_workers
from ..values.hosts import Host
from ..wiring.anatomy import held_value
from ..wiring.nodes import Factor
from ..wiring.sums import multiplier
from .run import Run

CONTROLS = 2
"""Rows nobody edits: the reference, and one that shows the noise."""

MAX_ROWS = 96
"""Rows of one batched forward; more edits take more forwards."""

DEEP = 16
"""Most blocks of a twin on each of which a value is edited."""

Hosts = dict[tuple[str, int | None], Host]
"""The hosts of a model by label and block; the model itself is ``("model", None)``."""


@dataclass(frozen=True)
class Effect:
    """What an edit did: the largest change of a logit in its row, and in an unedited row; None where only ``exact``,
    the move of the block's output, was looked at.
    """

    logits: float | None
    noise: float | None
    exact: float | None = None
    scale: float = 1.0

    @property
    def reaches(self) -> bool | None:
        """Whether the edit changed a logit by more than the arithmetic's noise; None where that was not looked at."""
        if self.logits is None or self.noise is None:
            return None
        return self.logits > 8 * self.noise + 1e-7 * self.scale

    @property
    def mixed(self) -> bool:
        """Whether unedited rows of one batch differ by more than rounding: the model mixes the rows of a batch."""
        return self.noise is not None and self.noise > 1e-2 * self.scale


def edit_all(run: Run) -> dict[Key, Effect]:
    """Edit every writable value, a row each: on every block of a twin, on three blocks of real weights and of a twin
    that is deep.

    Returns:
        The effect of each edit; contributions have ``exact``, the largest difference between the edit times the
        block's factors and what the block's output moved by.
    """
    hosts_of = _hosts(run)
    groups = by_host_and_name(run.model, lambda key: _writable(run, hosts_of, key)).values()
    plan = [key for hosts in groups for key in _chosen(run, [key for key, _ in hosts])]
    effects: dict[Key, Effect] = {}
    for start in range(0, len(plan), MAX_ROWS):
        effects |= _batch(run, plan[start : start + MAX_ROWS])
    if any(effect.mixed for effect in effects.values()):
        effects = _one_by_one(run, plan)
    for key, error in _exact(run).items():
        effects[key] = replace(effects.get(key, Effect(None, None)), exact=error)
    return effects


def _chosen(run: Run, keys: list[Key]) -> list[Key]:
    """The blocks whose value is edited: all of a twin's, the first, the middle and the last one of real weights.

    An edit costs a row through every block, so a deep twin gets three as well: its cost then grows with its depth and
    not with the square of it.
    """
    if len(keys) <= (DEEP if run.model.loaded.target.kind == "tiny" else 3):
        return keys
    return [keys[0], keys[len(keys) // 2], keys[-1]]


def _writable(run: Run, hosts: Hosts, key: Key) -> bool:
    return key in run.readings and hosts[key[:2]].standard_values()[key.name].writable


def _hosts(run: Run) -> Hosts:
    return {(label, block): host for label, block, host in run.model.hosts()}


def _batch(run: Run, plan: list[Key]) -> dict[Key, Effect]:
    rows = {key: CONTROLS + index for index, key in enumerate(plan)}
    total = CONTROLS + len(plan)
    groups = by_host_and_name(run.model, lambda key: key in rows)
    seen = _logits(run, repeat(run.inputs, total), [_editor(hosts, rows, total) for hosts in groups.values()])
    scale = float(seen[0].abs().max())
    noise = float((seen[1] - seen[0]).abs().max())
    return {key: Effect(float((seen[row] - seen[0]).abs().max()), noise, scale=scale) for key, row in rows.items()}


def _one_by_one(run: Run, plan: list[Key]) -> dict[Key, Effect]:
    """Each edit in a forward of its own, for a model whose rows of a batch are not independent."""
    reference, again = _logits(run, run.inputs, []), _logits(run, run.inputs, [])
    scale, noise = float(reference.abs().max()), float((again - reference).abs().max())
    effects = {}
    hosts = _hosts(run)
    for key in plan:
        moved = _logits(run, run.inputs, [_editor([(key, hosts[key[:2]])], {key: 0}, 1)]) - reference
        effects[key] = Effect(float(moved.abs().max()), noise, scale=scale)
    return effects


def _logits(run: Run, inputs: Inputs, workers: list[Worker]) -> torch.Tensor:
    """``[batch, seq, vocab_size]`` of a forward with these edits."""
    logits: list[torch.Tensor] = []

    def keep_logits() -> None:
        logits.append(run.model.logits.detach().float().clone())

    run_workers(run.model, inputs, [*workers, keep_logits])
    return logits[0]


def _editor(hosts: list[tuple[Key, Host]], rows: dict[Key, int], total: int) -> Worker:
    def worker() -> None:
        for key, host in hosts:
            value = getattr(host, key.name)
            part = row_of(value, rows[key], total)
            part.copy_(changed(part, key.name, host))

    return worker


def row_of(value: torch.Tensor, row: int, total: int) -> torch.Tensor:
    """The part of a batched value that belongs to one row of the batch, however many images or tokens a row has."""
    size = value.shape[0] // total
    return value[row * size : (row + 1) * size]


def changed(part: torch.Tensor, name: str, host: Host) -> torch.Tensor:
    """Another value of the same kind: noise of the value's own scale on numbers, another index on indices."""
    if part.is_floating_point():
        finite = unmasked(part)
        scale = float(finite.float().std()) if finite.numel() > 1 else 1.0
        noise = noise_like(part) * (scale or 1.0)
        return part + (-noise.abs() if name == "mixer_decay" else noise).to(part.dtype)  # the log of a decay is below 0
    if name == "attention_mask":
        hidden = part.clone()
        hidden[:, 0] = 0
        return hidden
    if name == "input_ids":
        return torch.where(part >= part.amax(dim=-1, keepdim=True), part - 1, part)
    return (part + 1) % int(getattr(host, "num_experts", 0) or int(part.max()) + 1)


def unmasked(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, flat, without what stands for minus infinity, which in float16 is no large number."""
    return tensor[tensor.abs() < min(1e30, torch.finfo(tensor.dtype).max / 2)]


def noise_like(tensor: torch.Tensor) -> torch.Tensor:
    """Noise of unit scale, the same for every tensor of one shape."""
    generator = torch.Generator().manual_seed(tensor.numel())
    return torch.randn(tensor.shape, generator=generator).to(tensor.device)


def _exact(run: Run) -> dict[Key, float]:
    """Contribution -> largest difference between its edit times the block's factors and the move of layer_output."""
    found: dict[Key, float] = {}
    for stack in run.stacks():
        found |= _exact_in(run, stack)
    return found


def _exact_in(run: Run, stack: Stack) -> dict[Key, float]:
    """One forward: a row for each place in the block's order of adds; all blocks of the stack edit in the same rows.

    A row's earlier edits change what later blocks take in, so a block's move is measured between two rows that enter
    it alike: before each block every row's input is set to row 0's.
    """
    places = max(len(contributions) for contributions in stack.contributions)
    total = CONTROLS + places
    errors: dict[Key, float] = {}
    hosts = _hosts(run)

    def align() -> None:
        for index in range(len(stack)):
            stream = hosts[stack.label, index].layer_input
            _copy_row_0(stream, total)

    def edit(place: int) -> Worker:
        def worker() -> None:
            for index, contributions in enumerate(stack.contributions):
                if place >= len(contributions):
                    continue
                contribution = contributions[place]
                value = getattr(hosts[stack.host(contribution.host), index], contribution.name)
                _copy_row_0(value, total)
                part = row_of(value, CONTROLS + place, total)
                delta = noise_like(part).to(part.dtype) * float(part.float().std())
                edits[index, place] = delta.float()
                part.add_(delta)

        return worker

    edits: dict[tuple[int, int], torch.Tensor] = {}
    moves: dict[int, torch.Tensor] = {}

    def watch() -> None:
        for index in range(len(stack)):
            moves[index] = hosts[stack.label, index].layer_output.detach().float().clone()

    run_workers(run.model, repeat(run.inputs, total), [align, *(edit(place) for place in range(places)), watch])
    for index, contributions in enumerate(stack.contributions):
        output = moves[index]
        for place, contribution in enumerate(contributions):
            moved = row_of(output, CONTROLS + place, total) - row_of(output, 0, total)
            factor = factors(stack, index, place)
            if factor is None:
                continue
            wanted = edits[index, place] * factor
            errors[Key(stack.host(contribution.host), index, contribution.name)] = float(
                (moved - wanted.reshape(moved.shape)).abs().max()
            )
    return errors


def _copy_row_0(value: torch.Tensor, total: int) -> None:
    size = value.shape[0] // total
    value.copy_(value[:size].repeat(total, *[1] * (value.ndim - 1)))


def factors(stack: Stack, index: int, place: int) -> float | torch.Tensor | None:
    """What multiplies a contribution on its way into the block's output; None where a norm of the stream is."""
    return multiplier(stack.anatomy[index].tree, place, lambda factor: factor_value(stack, index, factor))


def factor_value(stack: Stack, index: int, factor: Factor) -> float | torch.Tensor:
    """The value of a factor on one block of a stack."""
    return held_value(stack.envoys[index]._module, stack.anatomy[index], factor)


__all__ = ["Effect", "edit_all", "factor_value", "factors"]
