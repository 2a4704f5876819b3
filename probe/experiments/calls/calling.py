"""Other ways to call a model than with token ids in evaluation mode: with embeddings, by `generate`, and in training
mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from ...instruments.extra import SHORT, token_ids
from ...instruments.tap import hooks, removed
from ...measure.native import of_any_block
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ...wiring.operands import first_given, first_tensor
from ..answers import tolerance
from ..base import in_words

Calls = dict[str, tuple[torch.Tensor | None, torch.Tensor]]
"""Native path of a module -> the first tensor it was given, and the first it returned, at its first call."""

REFUSED = (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError)


def calling_facts(run: Run) -> list[Fact]:
    """Those that could be measured."""
    ids = token_ids(run, SHORT)
    calls: Calls = {}
    try:
        logits = _logits(run, calls, input_ids=ids)
    except REFUSED:
        return []
    return [*_embeddings(run, ids, logits), *_generate(run, ids), *_training(run, ids, logits, calls)]


def _logits(run: Run, calls: Calls | None = None, **given: Any) -> torch.Tensor:
    """``[1, seq, vocab]`` in float32, of a prompt without a cache."""
    with torch.no_grad(), ExitStack() as stack:
        if calls is not None:
            for path, module in run.model._module.named_modules():
                before, after = _keeping(calls, path)
                stack.enter_context(removed(module.register_forward_pre_hook(before, with_kwargs=True)))
                stack.enter_context(removed(module.register_forward_hook(after)))
        mask = torch.ones(1, SHORT, dtype=torch.long, device=run.model.device)
        logits: torch.Tensor = run.model._module(**given, attention_mask=mask, use_cache=False).logits
    return logits.float()


def _keeping(calls: Calls, path: str) -> tuple[Callable[..., None], Callable[..., None]]:
    given: list[torch.Tensor | None] = []

    def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        first = first_given(args, kwargs)
        given.append(None if first is None else first.clone())

    def after(_: torch.nn.Module, __: Any, output: Any) -> None:
        made = first_tensor(output)
        if given and made is not None and made.is_floating_point():
            calls.setdefault(path, (given[0], made.clone()))

    return before, after


def _apart(run: Run, left: torch.Tensor, right: torch.Tensor) -> float:
    """Largest difference; 0 where that is rounding."""
    if left.shape != right.shape:
        return float("inf")
    most = float((left - right).abs().max())
    return 0.0 if most <= tolerance(run) * float(right.abs().max()) else one_digit(most)


def _embeddings(run: Run, ids: torch.Tensor, logits: torch.Tensor) -> list[Fact]:
    """Whether the embedding module's return stands for the ids; if not, whether what enters block 0 does."""
    table = run.model._module.get_input_embeddings()
    first = run.text.envoys[0]._module
    entering: dict[str, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        entering.setdefault("stream", tensor)
        return tensor

    label, stands = "Called with embeddings", "in the place of `input_ids`"
    try:
        with torch.no_grad():
            rows = table(ids)
        apart = _apart(run, _logits(run, inputs_embeds=rows), logits)
    except REFUSED as error:
        said = f"The model cannot be called with `inputs_embeds` {stands} ({in_words(error)})."
        return [Fact(name="inputs_embeds", label=label, value=-1, measured={"accepted": False}, statement=said)]
    said = f"Called with what the embedding module returns as `inputs_embeds`, {stands}, the model gives "
    if not apart:
        return [Fact(name="inputs_embeds", label=label, value=0, statement=f"{said}the same logits.")]
    said += f"other logits, by up to {apart:g}: "
    try:
        with hooks([(first, keep)]):
            _logits(run, input_ids=ids)
        near = _apart(run, _logits(run, inputs_embeds=entering["stream"]), logits)
    except REFUSED:
        near = apart
    said += (
        "the forward needs the ids for more than the embedding."
        if near
        else "what enters block 0, given as `inputs_embeds`, gives the same."
    )
    measured = {"with_what_enters_block_0": near}
    return [Fact(name="inputs_embeds", label=label, value=apart, measured=measured, statement=said)]


def _generate(run: Run, ids: torch.Tensor) -> list[Fact]:
    """At how many positions of the prompt `generate` calls the head; and where the config's own settings keep it from
    running, which of them that is.
    """
    module = run.model._module
    head = module.get_output_embeddings()
    counts: list[int] = []

    def count(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = first_given(args, kwargs)
        if given is not None and given.ndim == 3:
            counts.append(given.shape[1])

    def generate(**settings: bool) -> Exception | None:
        counts.clear()
        mask = torch.ones_like(ids)
        try:
            with torch.no_grad(), removed(head.register_forward_pre_hook(count, with_kwargs=True)):
                module.generate(ids, attention_mask=mask, max_new_tokens=1, do_sample=False, **settings)
        except REFUSED as error:
            return error
        return None

    if head is None:
        return []
    said = ""
    measured: dict[str, Any] = {}
    if (error := generate()) is not None:
        on = [name for name, value in module.generation_config.to_diff_dict().items() if value is True]
        off = next((name for name in on if generate(**{name: False}) is None), None)
        if off is None:
            return []
        said = f"`generate` fails with `{off}` on, as the config has it ({in_words(error)}); pass `{off}=False`. "
        measured = {"fails_with": off}
    if len(counts) != 1 or counts[0] not in (1, SHORT):
        return []
    said += (
        "`generate` has the head called at the last position alone, in the prompt's forward too: there "
        "`lm_head_output` and `logits` have one position."
        if counts == [1]
        else "`generate` has the head called at every position of the prompt."
    )
    return [Fact(name="head_in_generate", label="The head in generate", value=counts[0], unit="positions",
                 measured=measured, statement=said)]  # fmt: skip


def _training(run: Run, ids: torch.Tensor, logits: torch.Tensor, calls: Calls) -> list[Fact]:
    """Whether training mode moves the logits, and the modules that give something else for the same input then."""
    module = run.model._module
    tried: Calls = {}
    state = {part: part.training for part in module.modules()}
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module.train()
            apart = _apart(run, _logits(run, tried, input_ids=ids), logits)
    except REFUSED:
        return []
    finally:
        for part, training in state.items():
            part.training = training
    label = "Logits in training mode"
    if not apart:
        said = "`model.train()` changes no logit: no dropout or noise acts."
        return [Fact(name="training_mode", label=label, value=0, statement=said)]
    other = [path for path in calls if path and path in tried and _acts(run, calls[path], tried[path])]
    inner = [path for path in other if not any(found.startswith(f"{path}.") for found in other)]
    kinds = list(dict.fromkeys(map(of_any_block, inner)))
    first = ""
    if kinds:
        indices = re.findall(r"(?<=\.)\d+(?=\.|$)", inner[0])
        first = "; the first module that gives something else for the same input than in evaluation mode is "
        first += f"`{kinds[0]}`" + (f", on block {indices[0]}" if len(indices) == 1 else "")
    said = (
        f"`model.train()` moves logits, by up to {apart:g}{first}. A model that is built from a config is in training "
        "mode until `model.eval()`."
    )
    measured = {"first": kinds[0]} if kinds else {}
    return [Fact(name="training_mode", label=label, value=apart, measured=measured, statement=said)]


def _acts(run: Run, plain: Any, trained: Any) -> bool:
    """Whether a module that was given the same returned something else."""
    given, made = plain
    also, then = trained
    if given is None or also is None or given.shape != also.shape or made.shape != then.shape:
        return False
    return bool(torch.equal(given, also)) and bool(_apart(run, then.float(), made.float()))
