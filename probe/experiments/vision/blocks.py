"""Quirks of a vision encoder's blocks: norms, scales, clipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from ...measure.rounding import digits, one_digit
from ...measure.run import Run
from ...measure.tower_positions import ATTENTION
from ...measure.tower_runs import BLOCKS, Row, TowerRuns
from ..base import Measured, Quirk, Verdict, some

NORMED = 0.02
"""How far from 1, or from 2, the answer to doubled projections may lie."""


def on_tower(experiment: Callable[[TowerRuns], Verdict]) -> Callable[[Run], Verdict]:
    """The experiment on a run's tower; n/a where there is none, or none with blocks."""

    def run_it(run: Run) -> Verdict:
        if run.vision is None or not len(run.vision):
            return Verdict("n/a", why="There is no vision encoder with blocks.")
        return experiment(TowerRuns.of(run))

    run_it.__doc__ = experiment.__doc__
    return run_it


def on_blocks(found: list[int], total: int, measured: Measured) -> Verdict:
    """Yes on the blocks found, no where there are none."""
    return (
        Verdict("yes", found, measured | {"of_blocks": total})
        if found
        else Verdict("no", measured=measured | {"of_blocks": total})
    )


def _norms(runs: TowerRuns, block: int) -> Iterator[tuple[str, torch.nn.Module]]:
    for term in runs.stack.anatomy[block].terms:
        for path in (term.pre_norm, term.post_norm):
            if path is not None:
                yield path, runs.stack.envoys[block]._module.get_submodule(path)


def _layernorm(runs: TowerRuns) -> Verdict:
    """A constant added to every dimension: do the block's norms give the same? Without a mean they would not."""
    blocks, worst = [], 0.0
    for block in range(len(runs.stack)):
        value = runs.base("layer_input", BLOCKS, block)
        norms = list(_norms(runs, block))
        if value is None or not norms:
            continue
        changes = []
        for _, norm in norms:
            with torch.no_grad():
                plain, shifted = (
                    norm((value + shift).to(runs.run.dtype)).float() for shift in (0.0, 3.0 * float(value.std()))
                )
            changes.append(float((shifted - plain).abs().max() / plain.abs().max()))
        worst = max(worst, *changes)
        if max(changes) < runs.rough:
            blocks.append(block)
    return on_blocks(blocks, len(runs.stack), {"change_under_a_shift": one_digit(worst)})


def _sandwich(runs: TowerRuns) -> Verdict:
    """The derived wiring: does every contribution pass a norm before the sublayer and another before the add?"""
    blocks = [
        block
        for block, anatomy in enumerate(runs.stack.anatomy)
        if all(term.pre_norm and term.post_norm for term in anatomy.terms)
    ]
    return on_blocks(blocks, len(runs.stack), {"norms_a_block": len(list(_norms(runs, 0)))})


def _answer(runs: TowerRuns, name: str, block: int) -> float | None:
    """The factor by which queries, keys or values answer when their projections' outputs are doubled."""
    control, scaled = (runs.seen(row, name, ATTENTION, block) for row in (Row.CONTROL, Row.SCALED))
    return None if control is None or scaled is None else float((control * scaled).sum() / control.square().sum())


def _normed(runs: TowerRuns, names: tuple[str, ...]) -> Verdict:
    blocks, answers = [], []
    for block in range(len(runs.stack)):
        found = [_answer(runs, name, block) for name in names]
        if any(answer is None for answer in found):
            return Verdict("n/a", why="This load gives no queries, keys or values of the tower.")
        answers += [answer for answer in found if answer is not None]
        if all(answer is not None and abs(answer - 1) < NORMED for answer in found):
            blocks.append(block)
        elif any(answer is None or abs(answer - 2) > 2 * NORMED for answer in found):
            return Verdict(
                "inconclusive",
                why=f"Doubled projections gave {' and '.join(names)} times {digits(max(answers), 3):g}, not 1 or 2.",
            )
    return on_blocks(blocks, len(runs.stack), {"answer_to_doubling": digits(max(answers), 3)})


def _qk_norm(runs: TowerRuns) -> Verdict:
    """The query and key projections' outputs doubled: unchanged queries and keys mean a norm, doubled ones none."""
    return _normed(runs, ("attention_queries", "attention_keys"))


def _value_norm(runs: TowerRuns) -> Verdict:
    """The value projection's output doubled: are the values unchanged? A mean square of 1 shows a norm without gain."""
    verdict = _normed(runs, ("attention_values",))
    values = runs.base("attention_values", ATTENTION, 0)
    if verdict.verdict != "yes" or values is None:
        return verdict
    squares = values.square().mean(-1)
    flat = float((squares - 1).abs().max()) < runs.rough
    return Verdict("yes", verdict.blocks, verdict.measured | {"gain": not flat})


def _unscaled(runs: TowerRuns) -> Verdict:
    """Scores fitted against query · key: a factor of 1, or 1/sqrt(head_dim), or another?"""
    blocks, factors, width = [], [], 0
    for block in range(len(runs.stack)):
        q, k, scores = (
            runs.base(name, ATTENTION, block) for name in ("attention_queries", "attention_keys", "attention_scores")
        )
        if q is None or k is None or scores is None:
            return Verdict("n/a", why="This load gives no attention scores of the tower.")
        width = q.shape[-1]
        products = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT
        open_ = scores > -1e30
        factors.append(float((products * scores)[open_].sum() / products[open_].square().sum()))
        if abs(factors[-1] - 1) < runs.rough:
            blocks.append(block)
    return on_blocks(
        blocks, len(runs.stack), {"factor": digits(factors[0]), "one_over_sqrt_head_dim": digits(width**-0.5)}
    )


def _clipped(runs: TowerRuns) -> Verdict:
    """Each projection on a thousandfold input: an output that stays bounded was clipped, a linear one grows."""
    blocks, clipped, total, growth = [], 0, 0, []
    for block, envoy in enumerate(runs.stack.envoys):
        answers = [_grows(module, runs) for _, module in _linears(envoy._module)]
        growth += answers
        total += len(answers)
        bounded = sum(answer < 100 for answer in answers)
        clipped += bounded
        if bounded:
            blocks.append(block)
    if not total:
        return Verdict("n/a", why="The blocks have no projections.")
    return on_blocks(
        blocks, len(runs.stack), {"clipped": clipped, "projections": total, "least_growth": digits(min(growth), 2)}
    )


def _linears(block: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The block's projections: a linear layer, or the module that wraps one and nothing else with weights."""
    for path, module in block.named_modules():
        matrices = [p for p in module.parameters() if p.ndim == 2]
        parent = block.get_submodule(path.rpartition(".")[0]) if path else block
        alone = sum(p.ndim == 2 for p in parent.parameters()) == 1
        if path and len(matrices) == 1 and not alone:
            yield path, module


def _grows(module: torch.nn.Module, runs: TowerRuns) -> float:
    """By how much a thousandfold input makes the output larger, a bias taken off."""
    matrix = next(p for p in module.parameters() if p.ndim == 2)
    probe = torch.linspace(-1, 1, 4 * matrix.shape[1], device=matrix.device).sin().reshape(4, -1).to(matrix.dtype)
    with torch.no_grad():
        none, small, large = (module(probe * factor).float() for factor in (0, 1, 1000))
    return float((large - none).abs().max() / (small - none).abs().max())


def _no_final_norm(runs: TowerRuns) -> Verdict:
    """Is tower_output the last block's stream itself, to the bit?"""
    last, output = runs.base("layer_output", BLOCKS, len(runs.stack) - 1), runs.base("tower_output")
    if last is None or output is None:
        return Verdict("n/a", why="The tower's output was not read.")
    if last.shape != output.shape:
        return Verdict("inconclusive", why=f"The last block gives {list(last.shape)}, the tower {list(output.shape)}.")
    difference = float((last - output).abs().max())
    return Verdict("yes" if difference == 0 else "no", measured={"difference": one_digit(difference)})


def on(sentence: str) -> Callable[[Measured, list[int] | None, int], str]:
    return lambda m, blocks, total: sentence.format(where=some(blocks or [], total), **m)


def _say_values(m: Measured, blocks: list[int] | None, total: int) -> str:
    gain = "" if m["gain"] else " without a gain: their mean square is 1"
    return f"On {some(blocks or [], total)} each head's values are normed too{gain}."


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "tower-layernorm", "LayerNorm tower", "vision", on_tower(_layernorm),
        on("The tower's norms subtract the mean on {where}: adding a constant leaves their output as it was."),
    ),
    Quirk(
        "tower-sandwich-norms", "Sandwich norms in the tower", "vision", on_tower(_sandwich),
        on("On {where} of the tower each sublayer is normed before and after: {norms_a_block} norms a block."),
    ),
    Quirk(
        "tower-qk-norm", "Query/key norms in the tower", "vision", on_tower(_qk_norm),
        on(
            "On {where} of the tower queries and keys are normed: "
            "with their projections doubled they were {answer_to_doubling:g} times what they had been."
        ),
    ),
    Quirk("tower-value-norm", "Value norms in the tower", "vision", on_tower(_value_norm), _say_values),
    Quirk(
        "unscaled-scores", "Unscaled tower scores", "vision", on_tower(_unscaled),
        on(
            "On {where} of the tower scores are query · key times {factor:g}, "
            "where one over the root of the head width is {one_over_sqrt_head_dim:g}."
        ),
    ),
    Quirk(
        "clipped-linears", "Clipped projections", "vision", on_tower(_clipped),
        on(
            "On {where} of the tower projections clip what they take or give: "
            "{clipped} of {projections} stay bounded on a thousandfold input."
        ),
    ),
    Quirk(
        "no-tower-norm", "No final tower norm", "vision", on_tower(_no_final_norm),
        lambda *_: "vision.tower_output is the last block's stream itself: no norm follows the blocks.",
    ),
)  # fmt: skip
"""Quirks of the tower's blocks."""
