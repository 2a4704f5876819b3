"""Checks of a recurrent mixer's interior: convolution, step size, recurrence, states, gate, output projection."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ...standard.stack import Stack
from ..identities import Block, Check, Form
from . import recurrence
from .parts import hosts, known_numbers, named, term, through

ACTIVATIONS = {
    "": lambda tensor: tensor,
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "gelu_tanh": lambda tensor: torch.nn.functional.gelu(tensor, approximate="tanh"),
    "gelu": torch.nn.functional.gelu,
}


def checks(stack: Stack) -> Iterator[Check]:
    for host in hosts(stack, "mixer"):
        for name, forms in (
            ("convolution", _convolution),
            ("around the convolution", _around),
            ("step size", _step),
            ("decay", _decay),
            ("recurrence", recurrence.outputs),
            ("state after the last token", recurrence.left),
            ("states of the tokens", recurrence.tokens),
            ("gate", _gate),
            ("output projection", _projection),
        ):
            yield Check(named(f"{name} of the mixer", host), forms=partial(forms, host=host))


def _convolution(block: Block, host: str) -> Iterator[Form]:
    given, taken, module = block.value(host, "conv_input"), block.value(host, "conv_output"), block.part(host)
    if given is None or taken is None or module is None:
        return
    for name, child in module.named_modules():
        if isinstance(child, torch.nn.Conv1d):
            bias = None if child.bias is None else child.bias.detach().float()
            padded = torch.nn.functional.pad(given.transpose(1, 2), (child.kernel_size[0] - 1, 0))
            weight = child.weight.detach().float()
            made = torch.nn.functional.conv1d(padded, weight, bias, groups=child.groups).transpose(1, 2)
            for called, activation in ACTIVATIONS.items():
                inner = f"causal {name}(conv_input)"
                yield Form(f"{through(called or None, inner)} == conv_output", (activation(made), taken))


def _around(block: Block, host: str) -> Iterator[Form]:
    """What the recurrence takes from the convolution, or what a convolution alone takes."""
    given, taken = block.value(host, "conv_input"), block.value(host, "conv_output")
    if given is None or taken is None:
        return
    for names in (("attention_queries", "attention_keys", "attention_values"), ("mixer_x", "mixer_b", "mixer_c")):
        parts = [block.value(host, name) for name in names]
        held = [_side_by_side(part, name) for part, name in zip(parts, names, strict=True) if part is not None]
        if len(held) == 3 and sum(part.shape[-1] for part in held) == taken.shape[-1]:
            yield Form(f"[{', '.join(names)}] side by side == conv_output", (torch.cat(held, -1), taken))
    x, enter, log_decay = (block.value(host, name) for name in ("mixer_x", "mixer_input_gate", "mixer_decay"))
    if x is None:
        return
    x = _side_by_side(x, "mixer_x")
    if enter is not None and log_decay is None:
        yield Form("mixer_input_gate * mixer_x == conv_input", (enter * x, given))
    elif enter is not None and log_decay is not None:
        kept = (1 - (2 * log_decay).exp()).sqrt()
        kept[:, 0] = 1
        entering = "conv_output * sigmoid(mixer_input_gate) * sqrt(1 - exp(2 * mixer_decay))"
        yield Form(f"{entering}, at the first token without the root, == mixer_x", (taken * enter.sigmoid() * kept, x))
    elif x.shape == taken.shape:
        yield Form("mixer_x == conv_output", (x, taken))


def _side_by_side(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """``[batch, seq, channels]`` of a value with heads."""
    if name.startswith("attention_") and tensor.ndim == 4:
        tensor = tensor.transpose(1, 2)
    return tensor.flatten(2)


def _step(block: Block, host: str) -> Iterator[Form]:
    raw, step, module = block.value(host, "mixer_dt"), block.value(host, "mixer_step_size"), block.part(host)
    if raw is None or step is None or module is None:
        return
    for name, bias in recurrence.parameters(module, raw[0, 0].numel()):
        made = torch.nn.functional.softplus(raw + bias.view(raw.shape[2:]))
        written = f"softplus(mixer_dt + {name})"
        yield Form(f"{written} == mixer_step_size", (made, step))
        for number in known_numbers(block.module):
            yield Form(f"max({written}, {number:g}) == mixer_step_size", (made.clamp(min=number), step))


def _decay(block: Block, host: str) -> Iterator[Form]:
    step, log_decay, module = (
        block.value(host, "mixer_step_size"),
        block.value(host, "mixer_decay"),
        block.part(host),
    )
    if step is None or log_decay is None or module is None or step.shape != log_decay.shape:
        return
    for name, rate in recurrence.parameters(module, step.shape[-1]):
        yield Form(f"-exp({name}) * mixer_step_size == mixer_decay", (-rate.exp() * step, log_decay))


def _gate(block: Block, host: str) -> Iterator[Form]:
    gate, premix = block.value(host, "mixer_gate"), block.value(host, "attention_premix")
    result, name = block.value(host, "recurrence_output"), "recurrence_output"
    if result is None and block.value(host, "mixer_b") is None:
        result, name = block.value(host, "conv_output"), "conv_output"
    if gate is None or premix is None or result is None or result.numel() != premix.numel():
        return
    flat, opened = result.reshape(premix.shape), gate.reshape(premix.shape)
    norms = list(_norms(block, host))
    for called, activation in ACTIVATIONS.items():
        factor = activation(opened)
        written = through(called or None, "mixer_gate")
        yield Form(f"{name} * {written} == attention_premix", (flat * factor, premix))
        for norm, module in norms:
            for size, given in _shapes(result, flat):
                made = _applied(block, module, given)
                if made is not None and made.numel() == premix.numel():
                    pair = (made.reshape(premix.shape) * factor, premix)
                    yield Form(f"{norm}({name}){size} * {written} == attention_premix", pair)
    for norm, module in norms:
        for size, given in _shapes(result, flat):
            made = _applied(block, module, given, opened.reshape(given.shape))
            if made is not None and made.numel() == premix.numel():
                pair = (made.reshape(premix.shape), premix)
                yield Form(f"{norm}({name}, mixer_gate){size} == attention_premix", pair)


def _norms(block: Block, host: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """The mixer's children whose only parameters are vectors."""
    module = block.part(host)
    for name, child in module.named_children() if module is not None else ():
        held = list(child.parameters())
        if held and all(p.ndim == 1 for p in held):
            yield name, child


def _shapes(result: torch.Tensor, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "", flat
    if result.ndim == 4:
        yield " of each head", result


def _applied(block: Block, module: torch.nn.Module, *given: torch.Tensor) -> torch.Tensor | None:
    try:
        with torch.no_grad():
            made: torch.Tensor = module(*(item.to(block.run.dtype) for item in given))
    except (AttributeError, RuntimeError, TypeError, ValueError):  # a module that is called otherwise
        return None
    return made.float()


def _projection(block: Block, host: str) -> Iterator[Form]:
    premix, added = block.value(host, "attention_premix"), block.value(host, "attention_output")
    sublayer, module = term(block, host, "mixer"), block.part(host)
    if premix is None or added is None or sublayer is None or module is None:
        return
    aliased = block.part(f"{host}.o_proj")
    linear = [(n, m) for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)]
    fitting = [(n, m) for n, m in linear if m.out_features == added.shape[-1] and m.in_features == premix.shape[-1]]
    for name, out in [("o_proj", aliased)] if aliased is not None else fitting:
        made = block.apply(sublayer.post_norm, block.apply(out, premix)).reshape(added.shape)
        written = f"{through(sublayer.post_norm, f'{name}(attention_premix)')} == attention_output"
        yield Form(written, (made, added))
        for number in known_numbers(block.module):
            yield Form(f"{number:g} * {written}", (number * made, added))
