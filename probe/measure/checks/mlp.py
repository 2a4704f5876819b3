"""Checks of a dense MLP's interior: its activation, its neurons, and the way to the contribution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ...standard.stack import Stack
from ..identities import Block, Check, Form
from .parts import called, first, hosts, inner_norms, known_numbers, linear_outputs, named, term, through

SHARED = ".shared_experts"


def checks(stack: Stack) -> Iterator[Check]:
    for host in hosts(stack, "mlp", "moe"):
        for inner in (host, f"{host}{SHARED}"):
            shown = host if host == "mlp" else inner
            yield Check(named("activation", shown), forms=partial(_activation, host=inner))
            yield Check(named("neurons", shown), forms=partial(_neurons, host=inner))
        yield Check(named("down projection", host), forms=partial(_down, host=host))
        yield Check(named("shared expert", host), forms=partial(_shared_expert, host=host))


def _entering(block: Block, host: str) -> torch.Tensor | None:
    """What the MLP takes; the normed stream where it is no module of its own. None where it is not the block's first
    and reads another point of the stream, which no value holds.
    """
    own, leading = term(block, host.removesuffix(SHARED), "mlp", "moe"), first(block, "mlp", "moe")
    if own is not None and leading is not None and own.pre_norm != leading.pre_norm:
        return None
    for name in ("mlp_input", "mlp_norm_output", "layer_mid"):
        given = block.value("", name)
        if given is not None:
            return given
    return None


def _sources(block: Block, host: str, entering: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """What the MLP's linear layers give, and those of its own parts; those of the block where the MLP is no module of
    its own.
    """
    envoy = block.envoy(host)
    yield from linear_outputs(block, host if envoy is not None else "", entering)
    for part, child in envoy._named_children() if envoy is not None else ():
        if any(True for _ in child._module.children()):
            for name, given in linear_outputs(block, f"{host}.{part}", entering):
                yield f"{part}.{name}", given
    if not _has_children(block, host):
        yield from linear_outputs(block, "", entering)


def _has_children(block: Block, host: str) -> bool:
    module = block.part(host)
    return module is not None and any(True for _ in module.children())


def _activation(block: Block, host: str) -> Iterator[Form]:
    activation, entering = block.value(host, "mlp_activation"), _entering(block, host)
    function = block.part(f"{host}.act_fn") or block.part("act_fn") or block.part("activation_fn")
    if activation is None or entering is None or function is None:
        return
    fitting = [
        (called(name, "mlp_input"), given.reshape(activation.shape))
        for name, given in _ordered(_sources(block, host, entering))
        if given.numel() == activation.numel()
    ]
    for written, given in fitting:
        yield Form(f"act_fn({written}) == mlp_activation", (block.apply(function, given), activation))
    for number in known_numbers(block.module):
        for written, given in fitting:
            yield Form(
                f"act_fn({number:g} * {written}) == mlp_activation", (block.apply(function, number * given), activation)
            )


def _ordered(sources: Iterator[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """The gate first, as the plainest reading."""
    return sorted(sources, key=lambda item: not item[0].startswith(("gate_proj", "fc1")))


def _neurons(block: Block, host: str) -> Iterator[Form]:
    activation, neurons, entering = (
        block.value(host, "mlp_activation"),
        block.value(host, "mlp_neurons"),
        _entering(block, host),
    )
    if activation is None or neurons is None or entering is None:
        return
    gates = list(_sources(block, host, entering))
    up = [item for item in gates if item[0] == "up_proj"]
    for name, given in [*up, *[item for item in gates if item[0] != "up_proj"]]:
        if given.numel() == neurons.numel():
            made = activation * given.reshape(neurons.shape)
            yield Form(f"mlp_activation * {called(name, 'mlp_input')} == mlp_neurons", (made, neurons))
            for norm, module in inner_norms(block, host, neurons.shape[-1]):
                yield Form(
                    f"{norm}(mlp_activation * {called(name, 'mlp_input')}) == mlp_neurons",
                    (block.apply(module, made), neurons),
                )
    yield Form("mlp_activation == mlp_neurons", (activation, neurons))


def _down(block: Block, host: str) -> Iterator[Form]:
    neurons, added = block.value(host, "mlp_neurons"), block.value(host, "mlp_output")
    sublayer = term(block, host, "mlp")
    if neurons is None or added is None or sublayer is None:
        return
    down = block.part(f"{host}.down_proj")
    name = "down_proj"
    if down is None and not _has_children(block, host):
        down, name = block.part(host), host
    if down is None:
        return
    made = block.apply(sublayer.post_norm, block.apply(down, neurons)).reshape(added.shape)
    written = f"{through(sublayer.post_norm, f'{name}(mlp_neurons)')} == mlp_output"
    yield Form(written, (made, added))
    factor = float((made * added).sum() / made.square().sum().clamp_min(1e-30))
    yield Form(f"c * {written}", (factor * made, added))


def _shared_expert(block: Block, host: str) -> Iterator[Form]:
    shared = block.value(host, "shared_expert_output")
    if shared is None:
        return
    for inner in (f"{host}{SHARED}", host):
        neurons, down = block.value(inner, "mlp_neurons"), block.part(f"{inner}.down_proj")
        if neurons is not None and down is not None:
            made = block.apply(down, neurons)
            yield Form("down_proj(mlp_neurons) == shared_expert_output", (made.reshape(shared.shape), shared))
            return
