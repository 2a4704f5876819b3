"""Where a next token finds what it needs: in a cache of keys, in another form, inside modules, or nowhere."""

from __future__ import annotations

import torch

from ...instruments.extra import FEW, forward, once, token_ids
from ...measure.run import Run
from ..answers import explain, phrase
from ..attention.traced import attention_value, judged
from ..base import Measured, Quirk, Verdict, some
from .cache import caches


def cached_otherwise(run: Run) -> Verdict:
    """The keys in the cache against those the scores are made of, in shape and in numbers: others are computed anew
    from what is stored.
    """
    found: list[bool | None] = []
    shapes: set[tuple[int, int, int, int]] = set()
    held = caches(run)
    for index in range(len(run.text)):
        keys = attention_value(run, index, "attention_keys")
        stored = held.keys(index)
        if keys is None or stored is None or stored.ndim != 4:
            found.append(False if keys is not None else None)
            continue
        shared = held.alike[index] is True  # one key for several heads
        reshaped = not shared and (stored.shape[1], stored.shape[3]) != (keys.shape[1], keys.shape[3])
        found.append(reshaped or held.alike[index] is False)
        if reshaped:
            shapes.add((stored.shape[1], stored.shape[3], keys.shape[1], keys.shape[3]))
    measured: Measured = {"in_the_keys_shape": not shapes}
    for heads, width, key_heads, key_width in sorted(shapes):
        measured["stored"] = [*measured.get("stored", []), heads, width]
        measured["keys"] = [*measured.get("keys", []), key_heads, key_width]
    if not any(found):
        return judged(run, found, {})
    if measured.get("stored", [])[:1] == [1] and len(measured["stored"]) == 2:
        measured["latent_width"] = measured["stored"][1]
    return judged(run, found, measured, explain(run, measured, {"latent_width": ["kv_lora_rank"]}))


def _otherwise(measured: Measured, blocks: list[int] | None, total: int) -> str:
    numbers = "as many other numbers" if measured.get("in_the_keys_shape") else "tensors of another shape"
    if measured.get("stored"):
        pairs = zip(_by_two(measured["stored"]), _by_two(measured["keys"]), strict=True)
        numbers = f"heads x width: {', '.join(f'{stored} for {keys}' for stored, keys in pairs)}"
    elif "latent_width" in measured:
        numbers = f"in the keys' place one vector of {measured['latent_width']} numbers for all heads"
    return (
        f"On {some(blocks or [], total)} the cache does not hold the keys that the scores are made of ({numbers}): "
        "they are computed anew from what is stored."
    )


def _by_two(numbers: list[int]) -> list[str]:
    """``1 x 28`` of each two numbers."""
    return [f"{heads} x {width}" for heads, width in zip(numbers[::2], numbers[1::2], strict=True)]


def no_cache(run: Run) -> Verdict:
    """Asks a forward for its cache: one that returns nothing and keeps nothing inside its modules makes the answer
    yes.
    """
    found = caches(run)
    if found.few is not None:
        return Verdict("no")
    if found.error is not None:
        return Verdict("yes", measured={"raises": found.error})
    kept = _kept_inside(run)
    return Verdict("no" if kept else "yes", measured={"kept_in": kept} if kept else {})


@once
def _kept_inside(run: Run) -> list[str]:
    """The attributes in which modules of the blocks keep tensors of a call, by class: they are others after another
    prompt.
    """
    one, other = (_held(run, seed) for seed in (0, 1))
    return sorted(
        {name for (block, path, name), kept in one.items() if not _equal(kept, other.get((block, path, name)))}
    )


def _held(run: Run, seed: int) -> dict[tuple[int, str, str], list[torch.Tensor]]:
    """The tensors in the attributes of the blocks' modules after a call for its cache, by block, path and name."""
    forward(run, token_ids(run, FEW, seed=seed), use_cache=True)
    found = {}
    for index, block in enumerate(run.text.envoys):
        for path, module in block._module.named_modules():
            for name, item in (*vars(module).items(), *module.named_buffers(recurse=False)):
                kept = [item] if isinstance(item, torch.Tensor) else item if isinstance(item, (list, tuple)) else []
                if kept and all(isinstance(tensor, torch.Tensor) for tensor in kept):
                    found[index, path, f"{type(module).__name__}.{name}"] = [tensor.detach().clone() for tensor in kept]
    return found


def _equal(one: list[torch.Tensor], other: list[torch.Tensor] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(torch.equal, one, other))


def cache_in_modules(run: Run) -> Verdict:
    """Asks a forward for its cache, and where it returns none looks for tensors of the call that its modules keep."""
    found = caches(run)
    kept = _kept_inside(run) if found.few is None and found.error is None else []
    return Verdict("yes" if kept else "no", measured={"kept_in": kept} if kept else {})


QUIRKS = (
    Quirk(
        "cached-otherwise",
        "Cache is not the keys",
        "text",
        cached_otherwise,
        _otherwise,
    ),
    Quirk(
        "no-cache",
        "No cache",
        "text",
        no_cache,
        lambda m, b, n: (
            f"A forward returns no cache{phrase(m, 'raises', ' but raises {}')}, so that each generated token runs the "
            "whole prompt again."
        ),
    ),
    Quirk(
        "cache-in-modules",
        "Cache inside modules",
        "text",
        cache_in_modules,
        lambda m, b, n: (
            f"What a next token needs is kept in the modules ({', '.join(m.get('kept_in') or [])}) and not returned: a "
            "second prompt must not run in between."
        ),
    ),
)
