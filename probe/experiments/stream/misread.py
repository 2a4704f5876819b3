"""Facts on what is easily taken for something else: a module's return for what it adds, a final norm's gain, a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...instruments.extra import attentions, once, part
from ...instruments.rows import removed
from ...measure.native import native_path
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ...standard.stack import same
from ...wiring.norms import is_norm
from ...wiring.operands import first_tensor
from ..answers import tolerance
from ..base import some
from .norms import Call

FAR = 50.0
"""What is added to a parameter to see whether it joins the softmax: far above any score."""


def misread_facts(run: Run) -> list[Fact]:
    """Those that apply."""
    return [*_returns_as_terms(run), *_final_gain(run), *_sink(run)]


@once
def _returned(run: Run) -> dict[tuple[int, str], torch.Tensor]:
    """What the modules that host contributions return, by block and host: the first tensor."""
    found: dict[tuple[int, str], torch.Tensor] = {}

    def keeping(at: tuple[int, str]) -> Callable[..., None]:
        def keep(_: torch.nn.Module, __: Any, output: Any) -> None:
            tensor = first_tensor(output)
            if tensor is not None:
                found.setdefault(at, tensor.detach().clone().float())

        return keep

    with ExitStack() as stack, torch.no_grad():
        for index, block in enumerate(run.text.contributions):
            for host in {each.host for each in block if each.host}:
                envoy = part(run.text.envoys[index], host)
                assert envoy is not None, host
                stack.enter_context(removed(envoy._module.register_forward_hook(keeping((index, host)))))
        run.model._module(**run.inputs, use_cache=False)
    return found


def _returns_as_terms(run: Run) -> Iterator[Fact]:
    """How far a block's sum is off with what its modules return in place of what they add, where these differ."""
    returned = _returned(run)
    blocks, worst, exact = [], 0.0, 0.0
    for index, block in enumerate(run.text.contributions):
        entering, leaving = (run.text.get(index, "", name) for name in ("layer_input", "layer_output"))
        added = [run.text.get(index, part.host, part.name) for part in block]
        given = [returned.get((index, part.host)) for part in block]
        if entering is None or leaving is None or None in map(_shape, [*added, *given]):
            continue
        if {tensor.shape for tensor in [*added, *given] if tensor is not None} != {entering.shape}:
            continue
        right, wrong = (entering + torch.stack(terms).sum(0) for terms in (added, given))
        if not same(right, leaving, tolerance(run)) or same(wrong, leaving, tolerance(run)):
            continue
        scale = float(leaving.abs().max())
        blocks.append(index)
        worst = max(worst, float((wrong - leaving).abs().max()) / scale)
        exact = max(exact, float((right - leaving).abs().max()) / scale)
    if blocks:
        yield Fact(
            name="returns_as_terms",
            label="Module returns taken for contributions",
            value=one_digit(worst),
            measured={"blocks": [*blocks], "with_contributions": one_digit(exact)},
            statement=(
                f"Taking what the sublayers' modules return for what they add, the sum misses `layer_output` on "
                f"{some(blocks, len(run.text))} by up to {one_digit(worst):g} of its largest number; with the "
                f"contributions it misses by {one_digit(exact):g}."
            ),
        )


def _shape(tensor: torch.Tensor | None) -> torch.Size | None:
    return None if tensor is None else tensor.shape


def _final_gain(run: Run) -> Iterator[Fact]:
    """The final norm called with zero for its weight, and with one."""
    envoy = getattr(run.model, "norm", None)
    last = run.text.get(len(run.text) - 1, "", "layer_output")
    if envoy is None or last is None or not is_norm(envoy._module, last.shape[-1]):
        return
    call = Call(envoy._module, last.to(run.dtype), (), {})
    if not call.weights:
        said, more = "The final norm has no weight that its output follows.", 0
    elif abs(call.at_zero_weight() - 1) < 0.1:
        said, more = "The final norm multiplies by `1 + weight`: a weight of zero is a gain of one.", 1
    else:
        said, more = "The final norm multiplies by `weight`.", 0
    yield Fact(
        name="final_norm_gain",
        label="Added to the final norm's weight",
        value=more,
        measured={"weight": bool(call.weights)},
        statement=said,
    )


def _sink(run: Run) -> Iterator[Fact]:
    """The parameter, one number a head, with which far above any score the keys get nothing of a row's softmax."""
    hosts = [None if envoy is None else envoy._module for envoy in attentions(run)]
    before = _row_sums(run)
    held = [index for index, sums in enumerate(before) if sums is not None and float(sums.min()) < 1 - tolerance(run)]
    if not held:
        return
    for path in dict.fromkeys(path for index in held for path in _one_a_head(hosts[index], before[index])):
        with _raised([hosts[index] for index in held], path):
            after = _row_sums(run)
        left = [index for index in held if (sums := after[index]) is not None and float(sums.max()) < tolerance(run)]
        if left and (host := hosts[left[0]]) is not None:
            native = f"{native_path(run, left[0], host)}.{path}"
            yield Fact(
                name="sink_parameter",
                label="Logits of the sink",
                value=len(left),
                unit="blocks",
                measured={"parameter": native, "blocks": [*left]},
                statement=(
                    f"The learned logit is `{native}`, a number a head: with {FAR:g} added to it the keys get nothing "
                    f"of a row on {some(left, len(run.text))}."
                ),
            )
            return


def _one_a_head(module: torch.nn.Module | None, sums: torch.Tensor | None) -> list[str]:
    if module is None or sums is None:
        return []
    return [path for path, parameter in module.named_parameters() if parameter.numel() == sums.shape[1]]


def _row_sums(run: Run) -> list[torch.Tensor | None]:
    """Of each block's pattern ``[batch, heads, query]``; None where a forward gives none."""
    with torch.no_grad():
        out = run.model._module(**run.inputs, use_cache=False, output_attentions=True)
    given = getattr(out, "attentions", None) or ()
    if len(given) != len(run.text):
        return [None] * len(run.text)
    return [pattern.float().sum(-1) if isinstance(pattern, torch.Tensor) else None for pattern in given]


@contextmanager
def _raised(modules: list[torch.nn.Module | None], path: str) -> Iterator[None]:
    """A parameter of each module is far larger for a while."""
    every = [dict(module.named_parameters()).get(path) for module in modules if module is not None]
    held = [(parameter, parameter.detach().clone()) for parameter in every if parameter is not None]
    try:
        with torch.no_grad():
            for parameter, _ in held:
                parameter.add_(FAR)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in held:
                parameter.copy_(value)
