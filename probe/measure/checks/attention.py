"""Checks of an attention's interior: scores, pattern, head outputs, and the way to the contribution."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ...standard.stack import Stack
from ..identities import Block, Check, Form
from .parts import MASKED, called, hosts, linear_outputs, named, term, through


def checks(stack: Stack) -> Iterator[Check]:
    for host in hosts(stack, "attention"):
        for name, forms in (
            ("scores", _scores),
            ("pattern", _pattern),
            ("pattern rows", _rows),
            ("head outputs", _heads),
            ("premix", _premix),
            ("output projection", _projection),
        ):
            yield Check(named(name, host), forms=partial(forms, host=host))


def _scores(block: Block, host: str) -> Iterator[Form]:
    scores, queries = block.value(host, "attention_scores"), block.value(host, "attention_queries")
    keys = block.value(host, "attention_keys")
    if scores is None or queries is None or keys is None:
        return
    product = "s * attention_queries @ attention_keys.T"
    products = _products(queries, keys)
    if products is None or scores.shape != products.shape:
        yield Form(f"attention_scores == {product} where not masked", (queries, scores))
        return
    seen = scores > -MASKED

    def pair(made: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.where(seen, made, 0), torch.where(seen, scores, 0)

    yield Form(f"attention_scores == {product} where not masked", pair(products * fitted_scale(scores, products)))
    cap = _fitted_cap(scores, products, seen)
    if cap is not None:
        scale, bound = cap
        bent = bound * torch.tanh(products * scale / bound)
        yield Form(f"attention_scores == cap * tanh({product} / cap) where not masked", pair(bent))
    yield Form(
        f"attention_scores == {product} + m[head] * key + a row's constant where not masked",
        pair(_with_slope(scores, products, seen)),
    )
    yield Form(
        f"attention_scores == {product} + b[head, key] where not masked", pair(_with_keys(scores, products, seen))
    )


def fitted_scale(scores: torch.Tensor, products: torch.Tensor) -> float:
    """The factor between products of queries and keys and the scores, by least squares over what is not masked."""
    seen = scores > -MASKED
    return float((scores[seen] * products[seen]).sum() / products[seen].square().sum().clamp_min(1e-30))


def _fitted_cap(scores: torch.Tensor, products: torch.Tensor, seen: torch.Tensor) -> tuple[float, float] | None:
    """Scale and cap of a softcap, from the two scores that it bends least and most; None where it bends none."""
    x, y = products[seen].double(), scores[seen].double()
    order = x.abs().argsort()
    small = order[len(order) // 4 : len(order) // 2]
    scale = float((x[small] * y[small]).sum() / x[small].square().sum())
    for _ in range(40):
        bent = (scale * x).abs() - y.abs()
        at = int(bent.argmax())
        if float(bent[at]) <= 0:
            return None
        bound = _bound(float((scale * x[at]).abs()), float(y[at].abs()))
        unbent = bound * torch.atanh((y / bound).clamp(-1 + 1e-9, 1 - 1e-9))
        better = float((x * unbent).sum() / x.square().sum())
        if abs(better - scale) <= 1e-12 * abs(scale):
            break
        scale = better
    return scale, bound


def _bound(given: float, taken: float) -> float:
    """The cap that turns ``given`` into ``taken``, by bisection."""
    low, high = taken, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        bent = middle * float(torch.tanh(torch.tensor(given / middle, dtype=torch.float64)))
        low, high = (middle, high) if bent < taken else (low, middle)
    return low


def _with_slope(scores: torch.Tensor, products: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Products with a slope over the key's position for each head, fitted with the scale; rows may be shifted."""
    key = torch.arange(scores.shape[-1], dtype=scores.dtype, device=scores.device).expand_as(scores)
    count = seen.sum(-1, keepdim=True).clamp_min(1)

    def centred(tensor: torch.Tensor) -> torch.Tensor:
        kept = torch.where(seen, tensor, 0)
        return torch.where(seen, tensor - kept.sum(-1, keepdim=True) / count, 0)

    y, x, k = centred(scores), centred(products), centred(key)
    made = torch.zeros_like(scores)
    for head in range(scores.shape[1]):
        columns = torch.stack([x[:, head].flatten(), k[:, head].flatten()], 1).double()
        fit = torch.linalg.lstsq(columns, y[:, head].flatten().double()[:, None]).solution.flatten()
        made[:, head] = (fit[0] * x[:, head].double() + fit[1] * k[:, head].double()).to(made.dtype)
    kept = torch.where(seen, scores, 0)
    return made + kept.sum(-1, keepdim=True) / count


def _with_keys(scores: torch.Tensor, products: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Products with a number added for each head and key, the same for every query, fitted with the scale."""
    count = seen.sum(-2, keepdim=True).clamp_min(1)

    def mean(tensor: torch.Tensor) -> torch.Tensor:
        return torch.where(seen, tensor, 0).sum(-2, keepdim=True) / count

    y, x = (torch.where(seen, tensor - mean(tensor), 0) for tensor in (scores, products))
    scale = (x * y).sum() / x.square().sum().clamp_min(1e-30)
    return scale * (products - mean(products)) + mean(scores)


def _products(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor | None:
    """Queries against keys: ``[batch, num_heads, query, key]``; None where their axes do not fit together."""
    keys = _shared(keys, queries.shape[1])
    if queries.shape[:2] != keys.shape[:2] or queries.shape[-1] != keys.shape[-1]:
        return None
    return queries @ keys.transpose(-1, -2)


def _shared(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Keys or values with each shared head repeated for the query heads it serves."""
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1) if heads % tensor.shape[1] == 0 else tensor


def _pattern(block: Block, host: str) -> Iterator[Form]:
    scores, pattern = block.value(host, "attention_scores"), block.value(host, "attention_probabilities")
    if scores is None or pattern is None:
        return
    yield Form("softmax(attention_scores) == attention_probabilities", (scores.softmax(-1), pattern))
    for name, sink in _by_head(block, host, pattern.shape[1]):
        column = sink.float()[None, :, None, None].expand(*scores.shape[:-1], 1)
        with_sink = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        yield Form(f"softmax([attention_scores, {name}])[..., :-1] == attention_probabilities", (with_sink, pattern))


def _rows(block: Block, host: str) -> Iterator[Form]:
    pattern = block.value(host, "attention_probabilities")
    if pattern is None:
        return
    sums = pattern.sum(-1)
    yield Form("attention_probabilities.sum(key) == 1", (sums, torch.ones_like(sums)))
    scores = block.value(host, "attention_scores")
    if scores is not None:
        for name, sink in _by_head(block, host, pattern.shape[1]):
            mass = torch.sigmoid(sink.float()[None, :, None] - scores.logsumexp(-1))
            yield Form(
                f"attention_probabilities.sum(key) + the mass of {name} == 1", (sums + mass, torch.ones_like(sums))
            )


def _by_head(block: Block, host: str, heads: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters of the attention that hold one number a head: its sinks."""
    module = block.part(host)
    if module is not None:
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.numel() == heads:
                yield name, parameter.flatten()


def _heads(block: Block, host: str) -> Iterator[Form]:
    pattern, values = block.value(host, "attention_probabilities"), block.value(host, "attention_values")
    outputs = block.value(host, "attention_head_outputs")
    if pattern is None or values is None or outputs is None:
        return
    values = _shared(values, pattern.shape[1])
    if values.shape[1:3] != pattern.shape[1::2]:
        yield Form("attention_probabilities @ attention_values == attention_head_outputs", (values, pattern))
        return
    mixed = (pattern @ values).transpose(1, 2)
    yield Form("attention_probabilities @ attention_values == attention_head_outputs", (mixed, outputs))
    scores = block.value(host, "attention_scores")
    if scores is not None:
        for name, sink in _by_head(block, host, pattern.shape[1]):
            kept = torch.sigmoid(scores.logsumexp(-1) - sink.float()[None, :, None]).transpose(1, 2)[..., None]
            yield Form(
                f"attention_probabilities @ attention_values * sigmoid(logsumexp(attention_scores) - {name}) "
                "== attention_head_outputs",
                (mixed * kept, outputs),
            )


def _premix(block: Block, host: str) -> Iterator[Form]:
    outputs, premix = block.value(host, "attention_head_outputs"), block.value(host, "attention_premix")
    if outputs is None or premix is None:
        return
    yield Form("attention_head_outputs == attention_premix", (outputs, premix))
    entering = _entering(block)
    flat = outputs.flatten(-2)
    for name, norm in _inner_norms(block, host):
        for size, given in (("", flat), (" of each head", outputs)):
            try:
                made = block.apply(norm, given)
            except RuntimeError:
                continue
            yield Form(
                f"{name}(attention_head_outputs){size} == attention_premix", (made.reshape(premix.shape), premix)
            )
    if entering is None:
        return
    heads, width = outputs.shape[-2:]
    for name, gate in linear_outputs(block, host, entering):
        for place, part in _parts(gate, heads, width):
            written = called(name, "attention_norm_output") + place
            for gated, opened in _opened(block, host, written, part):
                yield Form(f"attention_head_outputs * {gated} == attention_premix", (outputs * opened, premix))


def _entering(block: Block) -> torch.Tensor | None:
    normed = block.value("", "attention_norm_output")
    return block.value("", "layer_input") if normed is None else normed


def _inner_norms(block: Block, host: str) -> Iterator[tuple[str, torch.nn.Module]]:
    envoy = block.envoy(host)
    if envoy is not None:
        for name, child in envoy._named_children():
            if all(p.ndim < 2 for p in child._module.parameters()):
                yield name, child._module


def _parts(gate: torch.Tensor, heads: int, width: int) -> Iterator[tuple[str, torch.Tensor]]:
    """A linear layer's output as a gate of heads: one number a head, one a channel, or each head's second half."""
    shape = gate.shape[:-1]
    if gate.shape[-1] == heads:
        yield "", gate[..., None]
    if gate.shape[-1] == heads * width:
        yield "", gate.reshape(*shape, heads, width)
    if gate.shape[-1] == 2 * heads * width:
        yield "[each head's second half]", gate.reshape(*shape, heads, 2 * width)[..., width:]


def _opened(block: Block, host: str, written: str, gate: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A gate by each function that families open one with; a bias for each head may be added before."""
    yield f"sigmoid({written})", gate.sigmoid()
    yield f"softplus({written})", torch.nn.functional.softplus(gate)
    for name, bias in _by_head(block, host, gate.shape[-2]):
        yield f"sigmoid({written} + {name}[head])", (gate + bias.float()[:, None]).sigmoid()


def _projection(block: Block, host: str) -> Iterator[Form]:
    premix, added = block.value(host, "attention_premix"), block.value(host, "attention_output")
    sublayer = term(block, host, "attention")
    out = block.part(f"{host}.o_proj")
    if premix is None or added is None or sublayer is None or out is None:
        return
    made = block.apply(sublayer.post_norm, block.apply(out, premix.flatten(-2)))
    written = f"{through(sublayer.post_norm, 'o_proj(attention_premix)')} == attention_output"
    yield Form(written, (made.reshape(added.shape), added))
    factor = float((made.reshape(added.shape) * added).sum() / made.square().sum().clamp_min(1e-30))
    yield Form(f"c * {written}", (factor * made.reshape(added.shape), added))
