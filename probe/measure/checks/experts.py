"""What the experts make of their input under the choice and the weights that were read."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import permutations

import torch

from ...wiring.norms import is_norm
from ..identities import Block, Form
from . import routing


def forms(block: Block, host: str) -> Iterator[Form]:
    """The experts' own module, called with the values that were read, each slot alone where its output is served."""
    indices, weights = block.value(host, "expert_indices"), block.value(host, "expert_weights")
    outputs, routed = block.value(host, "expert_outputs"), block.value(host, "routed_output")
    if indices is None or weights is None or routed is None:
        return
    for path, module in routing.below(block, host):
        if not _is_called_with_choice(module):
            continue
        for written, given in _entering(block, host):
            if outputs is not None:
                made = _each_slot(block, module, given, indices, weights)
                pair, left = (made, outputs), f"{path}({written}, expert_indices[slot], expert_weights[slot])"
                right = "expert_outputs[slot]"
            else:
                made = _call(block, module, given.flatten(0, 1), indices.flatten(0, 1), weights.flatten(0, 1))
                pair, left = (made, routed), f"{path}({written}, expert_indices, expert_weights)"
                right = "routed_output"
            if made is not None and made.numel() == pair[1].numel():
                yield Form(f"{left} == {right}", (made.view_as(pair[1]), pair[1]))
        if outputs is None:
            yield from _narrow(block, host, path, module, indices, weights, routed)
    entering = block.value("", "mlp_input")
    for function in _activations(block, host) if entering is not None else ():
        yield from _stacks(block, host, function, entering, indices, weights, routed)
        yield from _tables(block, host, function, entering, indices, weights, routed)


def _is_called_with_choice(module: torch.nn.Module) -> bool:
    names = _arguments(module)
    return len(names) == 3 and "weight" in names[1] + names[2] and ("ind" in names[1]) != ("ind" in names[2])


def _arguments(module: torch.nn.Module) -> list[str]:
    return list(inspect.signature(type(module).forward).parameters)[1:]


def _entering(block: Block, host: str) -> Iterator[routing.Written]:
    """What the experts may take: an input of the mixture, or what a norm beside the experts makes of one."""
    given = list(routing.inputs(block))
    yield from given
    parts = [block.part(host), block.module]
    for part in parts:
        for name, child in part.named_children() if part is not None else ():
            if given and is_norm(child, given[0][1].shape[-1]):
                yield from ((f"{name}({written})", block.apply(child, tensor)) for written, tensor in given[:3])


def _narrow(
    block: Block,
    host: str,
    path: str,
    module: torch.nn.Module,
    indices: torch.Tensor,
    weights: torch.Tensor,
    routed: torch.Tensor,
) -> Iterator[Form]:
    """Experts in a narrower width, between two linear layers of the mixture."""
    entering, host_module = block.value("", "mlp_input"), block.part(host)
    if entering is None or host_module is None:
        return
    linear = [(name, part) for name, part in host_module.named_children() if isinstance(part, torch.nn.Linear)]
    for (first, into), (second, out) in permutations(linear, 2):
        if into.out_features != out.in_features or into.in_features != entering.shape[-1]:
            continue
        narrow = block.apply(into, entering).flatten(0, 1)
        made = _call(block, module, narrow, indices.flatten(0, 1), weights.flatten(0, 1))
        if made is not None and out.out_features == routed.shape[-1]:
            written = f"{second}({path}({first}(mlp_input), expert_indices, expert_weights)) == routed_output"
            yield Form(written, (block.apply(out, made).view_as(routed), routed))


def _call(
    block: Block, module: torch.nn.Module, given: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor | None:
    order = (indices, weights) if "ind" in _arguments(module)[1] else (weights, indices)
    arguments = [item.to(block.run.dtype) if item.is_floating_point() else item for item in (given, *order)]
    try:
        with torch.no_grad():
            made: torch.Tensor = module(*arguments)
    except (RuntimeError, IndexError):
        return None
    return made.float()


def _each_slot(
    block: Block, module: torch.nn.Module, given: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor | None:
    tokens = given.flatten(0, 1).repeat_interleave(indices.shape[-1], 0)
    return _call(block, module, tokens, indices.reshape(-1, 1), weights.reshape(-1, 1))


def _activations(block: Block, host: str) -> list[torch.nn.Module]:
    """The mixture's own children without parameters or children."""
    module = block.part(host)
    return (
        []
        if module is None
        else [child for child in module.children() if not [*child.parameters(), *child.buffers(), *child.children()]]
    )


def _stacks(
    block: Block,
    host: str,
    function: torch.nn.Module,
    entering: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    routed: torch.Tensor,
) -> Iterator[Form]:
    """Gated experts whose two matrices are stacked in two modules."""
    stacks = [
        (path, part.weight.detach().float())
        for path, part in routing.below(block, host)
        if isinstance(getattr(part, "weight", None), torch.nn.Parameter) and part.weight.ndim == 3
    ]
    for (first, up), (second, down) in permutations(stacks, 2):
        if up.shape != (down.shape[0], 2 * down.shape[2], entering.shape[-1]) or down.shape[1] != routed.shape[-1]:
            continue
        made = torch.zeros_like(routed)
        for expert in range(up.shape[0]):
            share = (weights * (indices == expert)).sum(-1, keepdim=True)
            gate, rest = (entering @ up[expert].T).chunk(2, -1)
            made += share * ((block.apply(function, gate) * rest) @ down[expert].T)
        yield Form(
            f"sum over slots of expert_weights * {second}(gated {first}(mlp_input)) of the expert == routed_output",
            (made, routed),
        )


def _tables(
    block: Block,
    host: str,
    function: torch.nn.Module,
    entering: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    routed: torch.Tensor,
) -> Iterator[Form]:
    """Experts of one neuron each, the rows of two tables."""
    tables = [(path, part) for path, part in routing.below(block, host) if isinstance(part, torch.nn.Embedding)]
    for (first, keys), (second, values) in permutations(dict(tables).items(), 2):
        reached = block.apply(function, torch.einsum("bskh,bsh->bsk", keys.weight.float()[indices], entering))
        made = torch.einsum("bsk,bskh->bsh", reached * weights, values.weight.float()[indices])
        yield Form(
            f"sum over slots of expert_weights * act_fn({first}[expert_indices] @ mlp_input) * {second}[expert_indices]"
            " == routed_output",
            (made.detach(), routed),
        )
