"""Checks of the residual stream: from block to block, within a block, and what its norms make of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...standard.stack import Stack
from ...wiring.nodes import Node, NormNode, ProductNode, children, has_stream, places
from ...wiring.norms import is_norm
from ...wiring.sums import text, value
from ..edits import factor_value
from ..identities import Block, Check, Form, Pair
from .parts import first


def checks(stack: Stack) -> Iterator[Check]:
    del stack
    yield Check("stream between blocks", "layers[i].layer_input == layers[i-1].layer_output", _continues)
    yield Check("norm before the first sublayer", forms=_first_norm)
    yield Check("stream inside the block", forms=_mid)
    yield Check("norm before the MLP", forms=_second_norm)
    yield Check("input of the MLP", forms=_mlp_input)


def _continues(block: Block) -> Pair | None:
    if block.index == 0:
        return None
    entering = block.value("", "layer_input")
    left = block.stack.get(block.index - 1, "", "layer_output")
    return None if entering is None or left is None else (entering, left)


def _first_norm(block: Block) -> Iterator[Form]:
    entering, normed = block.value("", "layer_input"), block.value("", "attention_norm_output")
    term = first(block, "attention", "mixer")
    if entering is None or normed is None or entering.shape != normed.shape:
        return
    if term is not None and term.pre_norm is not None:
        norm = term.pre_norm
        yield Form(f"{norm}(layer_input) == attention_norm_output", (block.apply(norm, entering), normed))
        for before, module in block.module.named_children():
            if before != norm and is_norm(module, entering.shape[-1]):
                twice = block.apply(norm, block.apply(before, entering))
                yield Form(f"{norm}({before}(layer_input)) == attention_norm_output", (twice, normed))


def _mid(block: Block) -> Iterator[Form]:
    """The part of the block's sum that the MLP's term is added to."""
    entering, mid = block.value("", "layer_input"), block.value("", "layer_mid")
    anatomy = block.stack.anatomy[block.index]
    contributions = block.stack.contributions[block.index]
    terms = [block.value(c.host, c.name) for c in contributions]
    held = [term for term in terms if term is not None]
    if entering is None or mid is None or len(held) < len(terms):
        return
    number = partial(factor_value, block.stack, block.index)
    for place, term in enumerate(anatomy.terms):
        node = _before(anatomy.tree, place) if term.kind in ("mlp", "moe") else None
        while node is not None:  # where what the MLP reads is scaled or normed before its term is added
            written = text(node, "layer_input", [c.name for c in contributions])
            yield Form(f"{written} == layer_mid", (value(node, entering, held, number, block.apply), mid))
            node = node.of if isinstance(node, (ProductNode, NormNode)) else None


def _before(tree: Node, place: int) -> Node | None:
    """The part of a sum to which the term at ``place`` is added: the stream as it is until then."""
    parts = children(tree)
    with_stream = [part for part in parts if has_stream(part)]
    holding = [part for part in parts if place in places(part)]
    if len(with_stream) == 1 and len(holding) == 1 and with_stream[0] is not holding[0]:
        return with_stream[0]
    for part in with_stream:
        if place in places(part):
            return _before(part, place)
    return None


def _second_norm(block: Block) -> Iterator[Form]:
    mid, normed = block.value("", "layer_mid"), block.value("", "mlp_norm_output")
    term = first(block, "mlp", "moe")
    if mid is not None and normed is not None and term is not None and term.pre_norm is not None:
        yield Form(f"{term.pre_norm}(layer_mid) == mlp_norm_output", (block.apply(term.pre_norm, mid), normed))


def _mlp_input(block: Block) -> Iterator[Form]:
    entering = block.value("", "mlp_input")
    if entering is None:
        return
    for name in ("mlp_norm_output", "layer_mid", "layer_input"):
        given = block.value("", name)
        if given is not None:
            yield Form(f"{name} == mlp_input", (given, entering))
