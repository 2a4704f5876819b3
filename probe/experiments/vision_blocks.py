"""Quirks of a vision encoder's blocks: places, masks, norms, scales, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..measure.rounding import digits, one_digit
from ..measure.run import Run
from ..measure.tower_positions import ATTENTION, added, patch_rows, turning
from ..measure.tower_runs import BLOCKS, TOWER, Row, TowerRuns
from .base import Measured, Quirk, Verdict, some

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
    return Verdict("yes", found, measured | {"of_blocks": total}) if found else Verdict("no", measured=measured | {"of_blocks": total})


def _rotary(runs: TowerRuns) -> Verdict:
    """The same vector in every row: which dimensions of queries and keys change with a patch's column, and which with its row?"""
    seen = {block: turning(runs, block) for block in range(len(runs.stack))}
    known = {block: found for block, found in seen.items() if found is not None}
    if len(known) < len(seen):
        return Verdict("inconclusive", why="Where a patch lies, or its queries, could not be measured.")
    turned = [block for block, found in known.items() if found.columns or found.rows]
    if not turned:
        return Verdict("no", measured={"dimensions_that_turn": 0, "head_dim": known[0].head_dim})
    first = known[turned[0]]
    measured: Measured = {"columns": list(first.columns), "rows": list(first.rows), "head_dim": first.head_dim, "pairs": first.pairs}
    if first.class_row_turns is not None:
        measured["class_row_turns"] = first.class_row_turns
    if any(known[block] != first for block in turned):
        measured["alike_on_every_block"] = False
    return on_blocks(turned, len(seen), measured)


def _positions(runs: TowerRuns) -> Verdict:
    """What enters the first block less the patch embedding: not zero, and the same on other pixels?"""
    if patch_rows(runs) is None:
        return Verdict("inconclusive", why="Patches and rows of the tower could not be matched.")
    found = added(runs)
    if found is None:
        return Verdict("no", measured={"added": False})
    measured: Measured = {"table": found.table, "table_shape": list(found.table_shape or ()), "by": found.by, "norm_after": runs.pre_norm and runs.pre_norm.path}
    if not found.only_position:
        return Verdict("inconclusive", measured=measured, why="What is added to the patch embeddings changes with the pixels.")
    return Verdict("yes", measured=measured)


def _unmasked(runs: TowerRuns) -> Verdict:
    """Does a change of one patch reach every row of its image, before and after it, and no row of another?"""
    if runs.pattern(0) is None:
        return Verdict("n/a", why="This load gives no attention pattern of the tower.")
    read = ~runs.unread
    blocks, least = [], math.inf
    for block in range(len(runs.stack)):
        pattern = runs.pattern(block)
        assert pattern is not None
        among = pattern.amin(dim=1)[read[:, :, None] & read[:, None, :]]
        least = min(least, float(among.min()))
        if bool((among > 0).all()):
            blocks.append(block)
    moved = runs.moved(Row.ONE_PATCH, "layer_output", BLOCKS, len(runs.stack) - 1)
    measured: Measured = {"patch_rows": int(read[0].sum()), "rows": read.shape[0], "least_attention": one_digit(least)}
    if moved is not None:
        measured |= {"reached_in_its_row": int((moved[0] & read[0]).sum()), "reached_in_others": int(moved[1:].sum())}
    return on_blocks(blocks, len(runs.stack), measured)


def _norms(runs: TowerRuns, block: int) -> Iterator[tuple[str, torch.nn.Module]]:
    for term in runs.stack.anatomy[block].terms:
        for path in (term.pre_norm, term.post_norm):
            if path is not None:
                yield path, runs.stack.envoys[block]._module.get_submodule(path)


def _layernorm(runs: TowerRuns) -> Verdict:
    """A constant added along the all-ones direction: do the block's norms give the same? A norm without a mean would not."""
    blocks, worst = [], 0.0
    for block in range(len(runs.stack)):
        value = runs.base("layer_input", BLOCKS, block)
        norms = list(_norms(runs, block))
        if value is None or not norms:
            continue
        changes = []
        for _, norm in norms:
            with torch.no_grad():
                plain, shifted = (norm((value + shift).to(runs.run.dtype)).float() for shift in (0.0, 3.0 * float(value.std())))
            changes.append(float((shifted - plain).abs().max() / plain.abs().max()))
        worst = max(worst, *changes)
        if max(changes) < 100 * runs.tolerance:
            blocks.append(block)
    return on_blocks(blocks, len(runs.stack), {"change_under_a_shift": one_digit(worst)})


def _sandwich(runs: TowerRuns) -> Verdict:
    """The derived wiring: does every contribution pass a norm before the sublayer and another before the add?"""
    blocks = [
        block for block, anatomy in enumerate(runs.stack.anatomy) if all(term.pre_norm and term.post_norm for term in anatomy.terms)
    ]  # fmt: skip
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
            return Verdict("inconclusive", why=f"Doubled projections changed {' and '.join(names)} by {digits(max(answers), 3):g}, neither 1 nor 2.")
    return on_blocks(blocks, len(runs.stack), {"answer_to_doubling": digits(max(answers), 3)})


def _qk_norm(runs: TowerRuns) -> Verdict:
    """The outputs of the query and key projections doubled: unchanged queries and keys mean a norm, doubled ones none."""
    return _normed(runs, ("attention_queries", "attention_keys"))


def _value_norm(runs: TowerRuns) -> Verdict:
    """The output of the value projection doubled: are the values unchanged? And is each head's mean square one, so without a gain?"""
    verdict = _normed(runs, ("attention_values",))
    values = runs.base("attention_values", ATTENTION, 0)
    if verdict.verdict != "yes" or values is None:
        return verdict
    squares = values.square().mean(-1)
    flat = float((squares - 1).abs().max()) < 100 * runs.tolerance
    return Verdict("yes", verdict.blocks, verdict.measured | {"gain": not flat})


def _unscaled(runs: TowerRuns) -> Verdict:
    """Scores fitted against query · key: a factor of 1, or 1/sqrt(head_dim), or another?"""
    blocks, factors, width = [], [], 0
    for block in range(len(runs.stack)):
        q, k, scores = (runs.base(name, ATTENTION, block) for name in ("attention_queries", "attention_keys", "attention_scores"))
        if q is None or k is None or scores is None:
            return Verdict("n/a", why="This load gives no attention scores of the tower.")
        width = q.shape[-1]
        products = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).mT
        open_ = scores > -1e30
        factors.append(float((products * scores)[open_].sum() / products[open_].square().sum()))
        if abs(factors[-1] - 1) < 100 * runs.tolerance:
            blocks.append(block)
    return on_blocks(blocks, len(runs.stack), {"factor": digits(factors[0]), "one_over_sqrt_head_dim": digits(width**-0.5)})


def _clipped(runs: TowerRuns) -> Verdict:
    """Each projection called on a thousand times its input: an output that stays bounded was clipped, a linear one grows."""
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
    return on_blocks(blocks, len(runs.stack), {"clipped": clipped, "projections": total, "least_growth": digits(min(growth), 2)})


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


def _both_ways(run: Run) -> Verdict:
    """The text model's pattern among one image's tokens: does a token attend to later ones?"""
    mask = run.root("image_token_mask", TOWER)
    if mask is None:
        return Verdict("n/a", why="This checkpoint takes no images.")
    places = mask[0].nonzero().flatten()
    blocks = []
    for block in range(len(run.text)):
        pattern = run.text.get(block, "self_attn", "attention_probabilities")
        if pattern is None:
            return Verdict("n/a", why="This load gives no attention pattern of the text model.")
        among = pattern[0][:, places][:, :, places].amax(0)
        if bool((among.triu(1) > 0).any()):
            blocks.append(block)
    return on_blocks(blocks, len(run.text), {"image_tokens": len(places)})


def _ranges(dimensions: list[int]) -> str:
    if dimensions and dimensions == list(range(dimensions[0], dimensions[-1] + 1)):
        return f"{dimensions[0]} to {dimensions[-1]}"
    return ", ".join(map(str, dimensions))


def _say_rotary(m: Measured, blocks: list[int] | None, total: int) -> str:
    where = some(blocks or [], total)
    shared = set(m["columns"]) & set(m["rows"])
    if shared or not m["columns"] or not m["rows"]:
        what = f"dimensions {_ranges(sorted({*m['columns'], *m['rows']}))} of {m['head_dim']} turn with the patch's place"
    else:
        what = f"of a head's {m['head_dim']} dimensions {_ranges(m['columns'])} turn with the patch's column and {_ranges(m['rows'])} with its row"
    pairs = {"adjacent": ", in adjacent pairs", "halves": ", paired across the two halves of each part", None: ""}[m["pairs"]]
    still = "; the class row does not turn" if m.get("class_row_turns") is False else ""
    return f"In queries and keys on {where}, {what}{pairs}{still}."


def _say_positions(m: Measured, *_: Any) -> str:
    how = {"row": f"a row of {m['table']}", "axes": f"a column's and a row's vector from {m['table']}", None: "a vector that depends on its place alone"}[m["by"]]
    after = f", and {m['norm_after']} norms the sum" if m["norm_after"] else ""
    return f"patch_embeddings are not what enters the first block: each patch gets {how} added{after}."


def _say_unmasked(m: Measured, blocks: list[int] | None, total: int) -> str:
    apart = f", and none of the {m['rows'] - 1} other rows" if m["rows"] > 1 else ""
    return f"On {some(blocks or [], total)} a patch attends to every patch of its row, later ones too: a change of one reached all {m['reached_in_its_row']}{apart}."


def _on(sentence: str) -> Callable[[Measured, list[int] | None, int], str]:
    return lambda m, blocks, total: sentence.format(where=some(blocks or [], total), **m)


def _say_values(m: Measured, blocks: list[int] | None, total: int) -> str:
    gain = "" if m["gain"] else " without a gain: their mean square is 1"
    return f"On {some(blocks or [], total)} each head's values are normed too{gain}."


QUIRKS: tuple[Quirk, ...] = (
    Quirk("vision-rotary", "2D rotary", "vision", on_tower(_rotary), _say_rotary),
    Quirk("tower-positions", "Learned patch positions", "vision", on_tower(_positions), _say_positions),
    Quirk("unmasked-tower", "Unmasked tower", "vision", on_tower(_unmasked), _say_unmasked),
    Quirk("tower-layernorm", "LayerNorm tower", "vision", on_tower(_layernorm), _on("The tower's norms subtract the mean on {where}: a shift of all dimensions alike leaves their output as it was.")),
    Quirk("tower-sandwich-norms", "Sandwich norms in the tower", "vision", on_tower(_sandwich), _on("On {where} of the tower each sublayer is normed before and after: {norms_a_block} norms a block.")),
    Quirk("tower-qk-norm", "Query/key norms in the tower", "vision", on_tower(_qk_norm), _on("On {where} of the tower queries and keys are normed: doubling their projections changed them by a factor of {answer_to_doubling:g}.")),
    Quirk("tower-value-norm", "Value norms in the tower", "vision", on_tower(_value_norm), _say_values),
    Quirk("unscaled-scores", "Unscaled tower scores", "vision", on_tower(_unscaled), _on("On {where} of the tower scores are query · key times {factor:g}, not {one_over_sqrt_head_dim:g}, one over the root of the head width.")),
    Quirk("clipped-linears", "Clipped projections", "vision", on_tower(_clipped), _on("On {where} of the tower projections clip what they take or give: {clipped} of {projections} stay bounded on a thousandfold input.")),
    Quirk("no-tower-norm", "No final tower norm", "vision", on_tower(_no_final_norm), lambda *_: "vision.tower_output is the last block's stream itself: no norm follows the blocks."),
    Quirk("bidirectional-image-tokens", "Image tokens attend both ways", "text", _both_ways, _on("On {where} an image's tokens attend to later tokens of the image too, within the block's reach.")),
)  # fmt: skip
"""Quirks of the tower's blocks, and one of the text blocks that read its features."""
