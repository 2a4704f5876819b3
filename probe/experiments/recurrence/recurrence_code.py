"""Facts of a recurrence: which code ran it, how far another package's is from it, its states by steps of a cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType
from typing import Any

import torch

from ...derive.kernels import KINDS, chooser, parameters, stand_in
from ...instruments.extra import decoder, forward, once, token_ids
from ...measure.rounding import one_digit
from ...measure.run import Run
from ...schema import Fact
from ...standard.trace import Key, read_all
from ..base import some
from .stepping import cache_name, filled
from .steps import state_kept

TOKENS = 6
"""Tokens that are fed one at a time."""

AGREE = 1e-3
"""Largest difference, relative to the state's largest number, at which both ways gave the same states."""

Function = Callable[..., object]


def recurrence_facts(run: Run) -> list[Fact]:
    """The facts of a model with mixers; none of another."""
    return [*(_code(run, function) for function in recurrences(run)), *_by_steps(run)]


@once
def recurrences(run: Run) -> list[Function]:
    """The functions that run a prompt's recurrence and in whose place another package's may run, each once."""
    found: dict[str, Function] = {}
    for index, anatomy in enumerate(run.text.anatomy):
        block = run.text.envoys[index]._module
        for path in (host for term in anatomy.terms if term.kind == "mixer" for host in term.hosts):
            for function in named_in(block.get_submodule(path)):
                takes = set(parameters(function))
                if any(wanted <= takes for wanted in KINDS.values()) and "state" not in takes and stand_in(function):
                    found.setdefault(getattr(function, "__name__", ""), function)
    return [function for function in found.values() if _runs(run, function)]


def _runs(run: Run, function: Function) -> bool:
    """Whether a prompt's forward calls the function."""
    calls = 0
    held = choice(function)["implementation"].cell_contents

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return held(*args, **kwargs)

    with chosen(function, implementation=counted):
        forward(run, run.inputs["input_ids"])
    return calls > 0


def named_in(module: torch.nn.Module) -> Iterator[Function]:
    """What the forward of a module calls by name: functions of its file, and attributes of the module."""
    code = inspect.unwrap(type(module).forward)
    for name in code.__code__.co_names:
        found = vars(module).get(name, code.__globals__.get(name))
        if callable(found) and not inspect.isclass(found):
            yield found


def _code(run: Run, function: Function) -> Fact:
    other = stand_in(function)
    assert other is not None
    name = getattr(function, "__name__", "")
    measured: dict[str, Any] = {"package": other.package, "function": other.function}
    if other.runs:
        code = choice(function)["torch_function"].cell_contents
        taken = tuple(inspect.signature(code).parameters)
        with chosen(function, implementation=code, applicable_params=taken, is_new_implementation=False):
            plain = forward(run, run.inputs["input_ids"])[0]
        far = one_digit(float((plain - forward(run, run.inputs["input_ids"])[0]).abs().max()))
        measured["apart"] = far
        statement = (
            f"`{other.function}` of `{other.package}` ran in place of the PyTorch code of `{name}`: with that code the "
            f"last hidden state differs by at most {far:g}."
        )
    else:
        statement = (
            f"`{name}` ran as plain PyTorch. Where transformers can import `{other.package}`, it runs that package's "
            f"`{other.function}` instead, from import on."
        )
    return Fact(
        name=f"code_of_{name}",
        label=f"{other.package} runs {name}",
        value=other.runs,
        measured=measured,
        statement=statement,
    )


def choice(function: Function) -> dict[str, CellType]:
    """The cells in which transformers keeps what it chose to run in a function's place."""
    held = chooser(function)
    assert held is not None
    return dict(zip(held.__code__.co_freevars, held.__closure__ or (), strict=True))


@contextmanager
def chosen(function: Function, **values: Any) -> Iterator[None]:
    """The choice is another one for a while."""
    cells = choice(function)
    before = {name: cells[name].cell_contents for name in values}
    try:
        for name, value in values.items():
            cells[name].cell_contents = value
        yield
    finally:
        for name, value in before.items():
            cells[name].cell_contents = value


def _by_steps(run: Run) -> list[Fact]:
    """The states that a cache holds after each of some tokens, beside those that one forward passes."""
    mixes = [any(term.kind == "mixer" for term in anatomy.terms) for anatomy in run.text.anatomy]
    if not any(mixes):
        return []
    ids = token_ids(run, TOKENS)
    mixing = [index for index, mixed in enumerate(mixes) if mixed]
    stepped = _stepped(run, ids, mixing)
    given = read_all(
        run.model,
        {**_plain(run), "input_ids": ids, "attention_mask": torch.ones_like(ids)},
        lambda key: key.name in ("token_states", "state_out"),
    )
    name = "token_states" if any(key.name == "token_states" for key in given) else "state_out"
    errors = {
        key.block: error
        for key, value in given.items()
        if key.name == name and key.block in stepped and (error := _apart(key, value, stepped[key.block])) is not None
    }
    if not errors:
        return []
    worst = max(errors.values())
    blocks = sorted(index for index in errors if index is not None)
    single = len(blocks) == len(mixes) or blocks != mixing
    where = some(blocks, len(mixes)) if single else "every block with a recurrence"
    near = f"{one_digit(worst):g} of its largest number"
    if worst > AGREE:
        said = f"the cached state of {where} is not `{name}`: they differ by {near}"
    elif name == "token_states":
        said = f"the cached state of {where} after each token is `token_states` there, to within {near}"
    else:
        said = (
            f"the cached state of {where} after the last token is `state_out`, to within {near}; so the cache has the "
            "state after each token, which no value of one forward is"
        )
    return [
        Fact(
            name="states_by_steps", label="States by steps", value=one_digit(worst),
            measured={"value": name, "blocks": [*blocks]},
            statement=f"Fed one token at a time with a cache, {said}.",
        )
    ]  # fmt: skip


def _plain(run: Run) -> dict[str, Any]:
    """Inputs of the run beside its tokens that are no tensors."""
    return {name: value for name, value in run.inputs.items() if not isinstance(value, torch.Tensor)}


def _stepped(run: Run, ids: torch.Tensor, mixing: list[int]) -> dict[int, list[list[torch.Tensor]]]:
    """Of each mixing block the tensors that may be its state, as the cache held them after each token."""
    takes = inspect.signature(decoder(run).forward).parameters
    name = cache_name(run)
    found: dict[int, list[list[torch.Tensor]]] = {}
    cache = filled(run, ids[:, :1])
    for position in range(ids.shape[1]):
        if position:
            given: dict[str, Any] = {} if name is None else {name: cache}
            if "position_ids" in takes:
                given["position_ids"] = torch.full_like(ids[:, :1], position)
            forward(run, ids[:, position : position + 1], attention_mask=None, use_cache=True, **given)
        for index in mixing:
            held = _held(run, cache, index)
            if held:
                found.setdefault(index, []).append([state.detach().clone() for state in held])
    return {index: states for index, states in found.items() if len(states) == ids.shape[1]}


def _held(run: Run, cache: Any, index: int) -> list[torch.Tensor]:
    """The tensors among which a block's state is; in a list of tensors the blocks stand on the last axis."""
    if isinstance(cache, list):
        return [state[..., index] for state in cache if state.shape[-1] == len(run.text)]
    held = state_kept(run, cache, index)
    return [] if held is None or held[0] is None else [held[0]]


def _apart(key: Key, value: torch.Tensor, held: list[list[torch.Tensor]]) -> float | None:
    """Largest difference relative to the largest number, of the nearest; None where none is as large."""
    errors = [_difference(key, value, [*states]) for states in zip(*held, strict=True)]
    return min((error for error in errors if error is not None), default=None)


def _difference(key: Key, value: torch.Tensor, states: list[torch.Tensor]) -> float | None:
    pairs = [(value, states[-1])] if key.name == "state_out" else list(zip(value.unbind(1), states, strict=True))
    worst = 0.0
    for one, other in pairs:
        if one.numel() != other.numel():
            return None
        ways = [other.reshape(one.shape)]
        if other.ndim > 2 and other.mT.shape == one.shape:
            ways.append(other.mT)
        scale = max(float(one.abs().max()), 1e-30)
        worst = max(worst, min(float((one.float() - way.float()).abs().max()) for way in ways) / scale)
    return worst
