"""How a mixture chooses its experts and weights them: the forms in which families write it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from ..identities import Block, Form, Pair

Written = tuple[str, torch.Tensor]

INPUTS = ("mlp_input", "mlp_norm_output", "layer_mid", "layer_input", "attention_norm_output")
"""Values of the block that a router may read, the likeliest first."""

DEEP = 3
"""How many modules below the host a router's parameters may be."""


def inputs(block: Block) -> Iterator[Written]:
    for name in INPUTS:
        given = block.value("", name)
        if given is not None:
            yield name, given


def below(block: Block, host: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules of a mixture by native path from it; then those of the block, where a router stands beside."""
    module = block.part(host)
    if module is not None:
        yield from ((path, part) for path, part in module.named_modules() if path.count(".") < DEEP)
    yield from ((path, part) for path, part in block.module.named_modules() if path.count(".") < DEEP)


def vectors(block: Block, host: str, length: int, *, deep: bool = True) -> Iterator[Written]:
    """Parameters and buffers of a mixture that hold ``length`` numbers: those of the host alone, or of all below."""
    seen: set[int] = set()
    for path, module in below(block, host) if deep else (("", block.part(host)),):
        if module is None:
            continue
        for name, held in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if held.numel() == length and held.is_floating_point() and id(held) not in seen:
                seen.add(id(held))
                yield f"{path}.{name}".lstrip("."), held.detach().float().flatten()


def numbers(module: torch.nn.Module) -> Iterator[tuple[str, float]]:
    """The numbers, other than one, that a module keeps as attributes, and its parameters of one number."""
    for name, held in vars(module).items():
        if isinstance(held, float) and held not in (0.0, 1.0):
            yield name, held
    for name, parameter in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        if parameter.numel() == 1 and parameter.is_floating_point():
            yield name, float(parameter)


def count(block: Block, host: str, logits: torch.Tensor) -> int:
    """The number of experts, where the router has a logit for more than these."""
    known = getattr(block.envoy(host), "num_experts", None)
    return int(known) if known else int(logits.shape[-1])


def scored(block: Block, host: str, logits: torch.Tensor) -> Iterator[Written]:
    """The logits, and the scores that families make of them."""
    for name, given in (("router_logits", logits), *_capped(block, host, logits)):
        yield name, given
        yield f"softmax({name})", given.softmax(-1)
        yield f"sigmoid({name})", given.sigmoid()
        yield f"sqrt(softplus({name}))", functional.softplus(given).sqrt()


def _capped(block: Block, host: str, logits: torch.Tensor) -> Iterator[Written]:
    for path, module in below(block, host):
        for name, cap in numbers(module):
            if "cap" in name:
                shown = f"{path}.{name}".lstrip(".")
                yield f"{shown} * tanh(router_logits / {shown})", cap * torch.tanh(logits / cap)


def choice(block: Block, host: str) -> Iterator[Form]:
    logits, indices = block.value(host, "router_logits"), block.value(host, "expert_indices")
    if logits is None or indices is None:
        return
    experts = count(block, host, logits)
    for name, table in _tables(block, host, indices.shape[-1]):
        ids = block.run.inputs.get("input_ids")
        if isinstance(ids, torch.Tensor) and int(ids.max()) < table.shape[0]:
            yield Form(f"{name}[input_ids] == expert_indices", (table[ids].float(), indices.float()))
    if experts < logits.shape[-1]:
        yield from _skipping(block, host, logits, indices, experts)
    plain = list(scored(block, host, logits[..., :experts]))
    biased = [
        (f"{written} + {name}", scores + bias)
        for name, bias in vectors(block, host, experts)
        for written, scores in plain
    ]
    for written, scores in biased:
        yield Form(f"topk({written}) == expert_indices", chosen(scores, indices))
    yield Form("topk(router_logits) == expert_indices", chosen(plain[0][1], indices))
    for written, scores in (*biased, *plain):
        yield from _grouped(written, scores, indices)


def chosen(scores: torch.Tensor, indices: torch.Tensor) -> Pair:
    """The largest scores, and those of the chosen experts: equal where these are the top ones, in any order."""
    if int(indices.max()) >= scores.shape[-1] or int(indices.min()) < 0:
        return scores.topk(indices.shape[-1]).indices.float(), indices.float()
    once = functional.one_hot(indices, scores.shape[-1]).sum(-2).amax(-1, keepdim=True) == 1
    held = torch.where(once, scores.gather(-1, indices), float("nan"))
    return scores.topk(indices.shape[-1]).values, held.sort(-1, descending=True).values


def _tables(block: Block, host: str, top_k: int) -> Iterator[Written]:
    """Tables with a row of experts for each token id."""
    for path, module in below(block, host):
        for name, held in module.named_buffers(recurse=False):
            if held.ndim == 2 and held.shape[1] == top_k and not held.is_floating_point():
                yield f"{path}.{name}", held


def _grouped(written: str, scores: torch.Tensor, indices: torch.Tensor) -> Iterator[Form]:
    """The choice within the best groups of experts: how many groups and which of them is read off the choice."""
    experts = scores.shape[-1]
    if int(indices.max()) >= experts:
        return
    for groups in (n for n in range(2, experts // 2 + 1) if experts % n == 0):
        size = experts // groups
        by_group = scores.unflatten(-1, (groups, size))
        used = functional.one_hot(indices // size, groups).amax(-2).sum(-1)
        seen = int(used.max())
        for kept in range(seen, min(groups, seen + 2)):
            for rule, rank in (("sum of the two best", by_group.topk(2).values.sum(-1)), ("best", by_group.amax(-1))):
                best = torch.zeros_like(rank).scatter(-1, rank.topk(kept).indices, 1.0).bool()
                allowed = best.repeat_interleave(size, -1)
                for filled, low in (("", float(scores.min()) - 1), (", others 0", 0.0)):
                    yield Form(
                        f"topk({written} within {kept} of {groups} groups by the {rule}{filled}) == expert_indices",
                        chosen(scores.masked_fill(~allowed, low), indices),
                    )


def _skipping(block: Block, host: str, logits: torch.Tensor, indices: torch.Tensor, experts: int) -> Iterator[Form]:
    for name, bias in vectors(block, host, logits.shape[-1]):
        for written, scores in scored(block, host, logits):
            best = (scores + bias).topk(indices.shape[-1]).indices
            yield Form(
                f"topk({written} + {name}) == expert_indices, 0 past the last expert",
                (best.masked_fill(best >= experts, 0).float(), indices.float()),
            )


def weights(block: Block, host: str) -> Iterator[Form]:
    logits, indices = block.value(host, "router_logits"), block.value(host, "expert_indices")
    held = block.value(host, "expert_weights")
    if indices is None or held is None:
        return
    if logits is None:
        sums = held.sum(-1)
        yield Form("expert_weights.sum(slots) == 1", (sums, torch.ones_like(sums)))
        return
    if int(indices.max()) >= logits.shape[-1]:
        yield Form("softmax(router_logits[expert_indices]) == expert_weights", (indices.float() * float("nan"), held))
        return
    plain = list(_weighted(block, host, logits, indices))
    scales = list(vectors(block, host, count(block, host, logits)))
    if count(block, host, logits) < logits.shape[-1]:
        skipped = (held == 0) & (indices == 0)
        for written, made in plain:
            yield Form(f"{written} == expert_weights, 0 past the last expert", (made.masked_fill(skipped, 0), held))
    for written, made in plain:
        yield Form(f"{written} == expert_weights", (made, held))
    for written, made in plain:
        for name, scale in scales:
            yield Form(f"{written} * {name}[expert_indices] == expert_weights", (made * scale[indices], held))
    factors = [
        (f"{path}.{name}".lstrip("."), number) for path, part in below(block, host) for name, number in numbers(part)
    ]
    for written, made in plain:
        for name, number in factors:
            yield Form(f"{name} * {written} == expert_weights", (number * made, held))
    for written, made in plain:
        factor = float((made * held).sum() / made.square().sum().clamp_min(1e-30))
        yield Form(f"c * {written} == expert_weights", (factor * made, held))


def _weighted(block: Block, host: str, logits: torch.Tensor, indices: torch.Tensor) -> Iterator[Written]:
    experts = count(block, host, logits)
    for written, scores in scored(block, host, logits):
        kept = scores.gather(-1, indices)
        yield f"{written}[expert_indices]", kept
        total = kept.sum(-1, keepdim=True)
        if written.startswith("softmax"):
            yield f"{written[:-1]}[expert_indices])", kept / total
        elif written.startswith("s"):
            yield f"normalised({written}[expert_indices])", kept / total
        if experts < logits.shape[-1] and written.startswith("s"):
            others = scores[..., experts:].sum(-1, keepdim=True)
            yield (
                f"{written}[expert_indices] / ({written}[expert_indices, past the last expert]).sum()",
                kept / (total + others),
            )
    yield from _sparse_mixer(block, host, logits, indices)


def _sparse_mixer(block: Block, host: str, logits: torch.Tensor, indices: torch.Tensor) -> Iterator[Written]:
    """Each slot's softmax over what is left of the logits and near the largest of these."""
    for path, module in below(block, host):
        for name, width in numbers(module):
            if "jitter" not in name or "input" in name:
                continue
            left, found = logits, []
            for slot in range(indices.shape[-1]):
                index = indices[..., slot : slot + 1]
                top = left.amax(-1, keepdim=True)
                far = (top - logits) / logits.abs().clamp(min=top) > 2 * width
                found.append(left.masked_fill(far, float("-inf")).softmax(-1).gather(-1, index))
                left = left.scatter(-1, index, float("-inf"))
            shown = f"{path}.{name}".lstrip(".")
            yield (
                f"softmax(router_logits left by earlier slots within 2 * {shown})[expert_indices]",
                torch.cat(found, -1),
            )
