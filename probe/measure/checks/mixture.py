"""Checks of a mixture's interior: the router, the choice, the weights, and what the experts give together.

The modules and parameters that a check recomputes with are found in the model's tree by their shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ...standard.stack import Stack
from ...wiring.anatomy import Term
from ...wiring.norms import is_norm
from ..identities import Block, Check, Form
from . import experts, routing
from .parts import hosts, named, term, through


def checks(stack: Stack) -> Iterator[Check]:
    for host in hosts(stack, "moe"):
        for name, forms in (
            ("router", _router),
            ("expert choice", routing.choice),
            ("expert weights", routing.weights),
            ("experts", experts.forms),
            ("routed sum", _routed_sum),
            ("mixture", _mixture),
        ):
            yield Check(named(name, host), forms=partial(forms, host=host))


def _router(block: Block, host: str) -> Iterator[Form]:
    logits = block.value(host, "router_logits")
    if logits is None:
        return
    inputs = list(routing.inputs(block))
    for path, weight, bias in _linears(block, host, logits.shape[-1]):
        for written, given in _prepared(block, host, path, inputs):
            if given.shape[-1] == weight.shape[-1]:
                made = given @ weight.T + (0 if bias is None else bias)
                plus = "" if bias is None else f" + {path}.bias"
                yield Form(f"{written} @ {path}.weight.T{plus} == router_logits", (made.view_as(logits), logits))


def _linears(block: Block, host: str, width: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    """Matrices with a row for each of ``width`` logits, and the biases beside them, by native path from the host."""
    for path, module in routing.below(block, host):
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        if isinstance(weight, torch.nn.Parameter) and weight.ndim == 2 and weight.shape[0] == width:
            fitting = isinstance(bias, torch.nn.Parameter) and bias.shape == (width,)
            yield path, weight.detach().float(), bias.detach().float() if fitting and bias is not None else None


def _prepared(
    block: Block, host: str, path: str, inputs: list[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """What the router's matrix may take: an input as it is, or normed and scaled by the router that holds it."""
    yield from inputs
    router = dict(routing.below(block, host)).get(path.rpartition(".")[0])
    if router is None:
        return
    for name, norm in router.named_children() if inputs else ():
        for written, given in inputs if is_norm(norm, inputs[0][1].shape[-1]) else ():
            normed = block.apply(norm, given)
            yield f"{name}({written})", normed
            for scale, vector in router.named_parameters(recurse=False):
                if vector.shape == given.shape[-1:]:
                    scaled = normed * vector.detach().float()
                    yield f"{name}({written}) * {scale}", scaled
                    for factor, number in routing.numbers(router):
                        yield f"{name}({written}) * {scale} * {factor}", scaled * number


def _routed_sum(block: Block, host: str) -> Iterator[Form]:
    outputs, routed = block.value(host, "expert_outputs"), block.value(host, "routed_output")
    if outputs is not None and routed is not None:
        yield Form("expert_outputs.sum(slots) == routed_output", (outputs.sum(2), routed))


def _mixture(block: Block, host: str) -> Iterator[Form]:
    """What the block adds, from the routed and the shared part."""
    routed, shared = block.value(host, "routed_output"), block.value(host, "shared_expert_output")
    added, sublayer = block.value(host, "mlp_output"), term(block, host, "moe")
    if routed is None or added is None or sublayer is None:
        return
    sums = list(_sums(block, host, routed, shared))
    for name, finish in _finishes(block, host, sublayer, added.shape[-1]):
        for written, made in sums:
            yield Form(f"{through(name, written)} == mlp_output", (block.apply(finish, made).view_as(added), added))
    for written, made in sums:
        factor = float((made * added).sum() / made.square().sum().clamp_min(1e-30))
        yield Form(f"c * ({written}) == mlp_output", (factor * made, added))
    if shared is not None:
        factor = float((routed * (added - shared)).sum() / routed.square().sum().clamp_min(1e-30))
        yield Form("c * routed_output + shared_expert_output == mlp_output", (factor * routed + shared, added))
        yield from _normed_apart(block, sublayer.post_norm, routed, shared, added)


def _sums(
    block: Block, host: str, routed: torch.Tensor, shared: torch.Tensor | None
) -> Iterator[tuple[str, torch.Tensor]]:
    """The routed part, as it is or times one of the module's numbers, with what stands beside it."""
    module = block.part(host)
    factors = list(routing.numbers(module)) if module is not None else []
    for name, number in (("", 1.0), *((f"{name} * ", number) for name, number in factors)):
        part = routed * number
        written = f"{name}routed_output"
        if shared is None:
            yield written, part
            for own, vector in routing.vectors(block, host, routed.shape[-1], deep=False):
                yield f"{written} + {own}", part + vector
            continue
        yield f"{written} + shared_expert_output", part + shared
        for path, weight, bias in _linears(block, host, 1):
            for source, given in routing.inputs(block):
                if given.shape[-1] == weight.shape[-1]:
                    gate = (given @ weight.T + (0 if bias is None else bias)).sigmoid()
                    yield f"{written} + sigmoid({path}({source})) * shared_expert_output", part + gate * shared


def _finishes(
    block: Block, host: str, sublayer: Term, width: int
) -> Iterator[tuple[str | None, torch.nn.Module | str | None]]:
    """What the sum may pass on its way out: nothing, the norm after it, a norm of its own, or what adds it."""
    leaf, post_norm = sublayer.leaf, sublayer.post_norm
    if post_norm is None:
        yield None, None
        module = block.part(host)
        for name, child in module.named_children() if module is not None else ():
            if is_norm(child, width):
                yield name, child
    else:
        yield post_norm, post_norm
    if leaf and leaf != post_norm and block.module.get_submodule(leaf) is not block.part(host):
        yield leaf, leaf


def _normed_apart(
    block: Block, post_norm: str | None, routed: torch.Tensor, shared: torch.Tensor, added: torch.Tensor
) -> Iterator[Form]:
    """The two parts, each through a norm of the block, through the norm after both."""
    norms = {name: child for name, child in block.module.named_children() if is_norm(child, routed.shape[-1])}
    of_routed = {name: block.apply(norm, routed) for name, norm in norms.items()}
    for first, norm in norms.items():
        of_shared = block.apply(norm, shared)
        for second, given in of_routed.items():
            if first != second:
                written = f"{first}(shared_expert_output) + {second}(routed_output)"
                made = block.apply(post_norm, of_shared + given)
                yield Form(f"{through(post_norm, written)} == mlp_output", (made.view_as(added), added))
