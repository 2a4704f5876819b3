"""What a cache holds after a forward: bytes a token, blocks that store nothing, what is kept in another form, and
blocks that keep a window only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...instruments.extra import CANNOT, FEW, SHORT, attentions, decoder, forward, once, token_ids
from ...instruments.listening import listening
from ...instruments.rows import removed
from ...instruments.tap import Tap
from ...measure.run import Run
from ...schema import Fact
from ...standard.stack import same
from ..answers import tolerance
from ..attention.prompts import reach
from ..base import some


@dataclass(frozen=True)
class Stored:
    """What a cache holds of one block.

    Attributes:
        size: bytes of keys and values, and of whatever else has an entry for each position.
        positions: how many positions it holds.
        state: bytes that do not depend on the number of positions.
        rest: bytes of whatever else grows, though not by an entry for each position.
        keys: shape of the keys; None where there are none.
    """

    size: int = 0
    positions: int = 0
    state: int = 0
    rest: int = 0
    keys: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Caches:
    """A cache after a few positions, and the name under which a model takes it back.

    ``few`` is None where the model returned none, and then ``error`` names the exception it raised, if it did.
    ``alike`` says of each block whether the keys that its scores were made of are stored; None where the stored ones
    have another shape, or none were seen. ``by_block`` is whether each block has a layer of its own in the cache, which
    else is one state for all.
    """

    few: Any
    name: str = ""
    error: str | None = None
    alike: list[bool | None] = field(default_factory=list)

    @property
    def by_block(self) -> bool:
        return hasattr(self.few, "layers")

    def keys(self, index: int) -> torch.Tensor | None:
        """The keys that are stored for a block, ``[batch, heads, seq, head_dim]``; None where there are none."""
        layers = getattr(self.few, "layers", [])
        pair = [getattr(layers[index], name, None) for name in ("keys", "values")] if index < len(layers) else [None]
        return pair[0] if all(isinstance(held, torch.Tensor) and held.numel() for held in pair) else None


@once
def caches(run: Run) -> Caches:
    """The cache of a few positions."""
    tap, held = _filled(run)
    if not held:
        try:
            forward(run, token_ids(run, FEW), use_cache=True)
        except CANNOT as error:
            return Caches(None, error=type(error).__name__)
        return Caches(None)
    name, cache = held[0]
    alike = [_stored(run, cache, index, tapped.keys) for index, tapped in enumerate(tap.blocks)]
    return Caches(cache, name, alike=alike)


@listening
@contextmanager
def _filled(run: Run) -> Iterator[tuple[Tap, list[tuple[str, Any]]]]:
    """What the attentions passed, and the cache that the model returned, with its name."""
    found: list[tuple[str, Any]] = []

    def keep(_: torch.nn.Module, __: Any, out: Any) -> None:
        found.extend([held] if (held := returned(out)) is not None else [])

    with Tap(attentions(run)) as tap, removed(decoder(run).register_forward_hook(keep)):
        yield tap, found


@dataclass(frozen=True)
class Growth:
    """The names of a layer's tensors that are of another shape after a longer prompt: those with an entry for each of
    its positions, and others.
    """

    each: frozenset[str] = frozenset()
    rest: frozenset[str] = frozenset()


@once
def _growing(run: Run) -> list[Growth]:
    """What grows in each layer of the cache. The two prompts differ by an odd number of positions: what is filled and
    emptied in turns would else be alike after both.
    """
    longer = returned(forward(run, token_ids(run, SHORT + 1), use_cache=True))
    return [] if longer is None else growing(caches(run).few, longer[1])


@once
def _held(run: Run) -> list[Stored]:
    """What the cache of a few positions holds of each block."""
    return contents(caches(run).few, len(run.text), _growing(run))


def growing(short: Any, longer: Any) -> list[Growth]:
    """For each layer of a cache the names of the tensors that are of another shape in that of a longer prompt."""
    pairs = zip(getattr(short, "layers", []), getattr(longer, "layers", []), strict=False)
    found = []
    for layers in pairs:
        one, other = (dict(_named(vars(layer))) for layer in layers)
        grown = {name for name, held in one.items() if name not in other or other[name].shape != held.shape}
        keys = [getattr(layer, "keys", None) for layer in layers]
        counts = [held.shape[-2] if isinstance(held, torch.Tensor) and held.ndim > 1 else -1 for held in keys]
        each = {
            name
            for name in grown & other.keys()
            if counts[0] in one[name].shape[1:] and counts[1] in other[name].shape[1:]
        }
        found.append(Growth(frozenset(each), frozenset(grown - each)))
    return found


@once
def continued(run: Run) -> tuple[list[Stored], list[Stored]]:
    """What a cache holds after a prompt longer than any window, and after one token more; nothing where the model
    refuses to be continued.
    """
    name = caches(run).name
    length, _ = reach(run)
    kept = returned(forward(run, token_ids(run, length), use_cache=True)) if name else None
    if kept is None:
        return [], []
    name, cache = kept
    grows = _growing(run)
    before = contents(cache, len(run.text), grows)
    try:
        forward(run, token_ids(run, 1, seed=2), attention_mask=None, use_cache=True, **{name: cache})
    except CANNOT:
        return [], []
    return before, contents(cache, len(run.text), grows)


def _stored(run: Run, cache: Any, index: int, used: torch.Tensor | None) -> bool | None:
    """Whether a cache stores these keys of a block: in its own layer, or in another where blocks run several times."""
    layers = getattr(cache, "layers", [])
    if used is None or index >= len(layers):
        return None
    own = _alike(run, layers[index], used)
    return any(_alike(run, layer, used) for layer in layers) if own is False else own


def _alike(run: Run, layer: Any, used: torch.Tensor) -> bool | None:
    """Whether a layer of a cache stores these keys ``[batch, heads, seq, head_dim]``, or one for several heads."""
    stored = getattr(layer, "keys", None)
    if not isinstance(stored, torch.Tensor) or stored.ndim != 4 or used.shape[1] % stored.shape[1]:
        return None
    shared = used.shape[1] // stored.shape[1]
    ways = (stored.repeat_interleave(shared, dim=1), stored.repeat(1, shared, 1, 1))
    if ways[0].shape != used.shape:
        return None
    return any(same(way.float(), used.float(), tolerance(run)) for way in ways)


def returned(out: Any) -> tuple[str, Any] | None:
    """The cache among a model's outputs, by the name under which it takes it back."""
    for name in ("cache", "past_key_values", "state"):
        held = getattr(out, name, None)
        if held is not None:
            return name, held
    return None


def contents(cache: Any, blocks: int, grows: list[Growth] | None = None) -> list[Stored]:
    """What a cache holds of each block, in its layers or in lists beside them with an entry for each; nothing for a
    block that it has neither for. A cache without layers is one state, told of the first block.

    Args:
        grows: for each layer what grows with the prompt (see :func:`growing`); where it is not given, what has an axis
            as long as the keys' is taken to grow.
    """
    if not hasattr(cache, "layers"):
        return [Stored(state=_bytes(cache)), *[Stored()] * (blocks - 1)]
    found = [
        _layer(layer, grows[index] if grows is not None and index < len(grows) else None)
        for index, layer in enumerate(cache.layers)
    ]
    found += [Stored()] * (blocks - len(found))
    lists = [held for name, held in vars(cache).items() if name != "layers" and isinstance(held, (list, tuple))]
    beside = [sum(_bytes(held[index]) for held in lists if index < len(held)) for index in range(len(found))]
    return [replace(one, state=one.state + more) for one, more in zip(found, beside, strict=True)]


def _layer(layer: Any, grows: Growth | None) -> Stored:
    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    rest = {name: held for name, held in vars(layer).items() if name not in ("keys", "values")}
    if not isinstance(keys, torch.Tensor) or not isinstance(values, torch.Tensor) or keys.numel() == 0:
        return Stored(state=_bytes(rest))
    positions = keys.shape[-2]
    each, other = 0, 0
    for name, tensor in _named(rest):
        if tensor.ndim > 1 and (positions in tensor.shape[1:-1] if grows is None else name in grows.each):
            each += _size(tensor)
        elif grows is not None and name in grows.rest:
            other += _size(tensor)
    state = _bytes(rest) - each - other
    return Stored(_size(keys) + _size(values) + each, positions, state, other, tuple(keys.shape))


def _named(held: Any, at: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that something holds, each with the way to it."""
    if isinstance(held, torch.Tensor):
        yield at, held
    elif isinstance(held, Mapping):
        for name, item in held.items():
            yield from _named(item, f"{at}.{name}")
    elif isinstance(held, (list, tuple)):
        yield from _named(dict(enumerate(held)), at)
    elif hasattr(held, "__dict__") and not isinstance(held, (torch.nn.Module, type)):
        yield from _named({name: item for name, item in vars(held).items() if name != "config"}, at)


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _bytes(held: Any) -> int:
    return sum(_size(tensor) for _, tensor in _named(held) if tensor.ndim > 0)


def cache_facts(run: Run) -> list[Fact]:
    """Bytes a token on a short prompt, states of a fixed size, and by how much the cache still grows where windows
    are full.
    """
    found = caches(run)
    if found.few is None:
        raised = f"Asked for a cache, the model raises {found.error}" if found.error else "The model returns no cache"
        return [
            Fact(
                name="kv_cache_bytes_per_token",
                label="Cache a token",
                value=0,
                unit="bytes",
                statement=f"{raised}.",
            )
        ]
    facts = [_per_token(run, _held(run))]
    if any(block.state for block in _held(run)):
        facts.append(_states(run, found))
    before, after = continued(run)
    full = [
        index for index, (one, two) in enumerate(zip(before, after, strict=True)) if one.size and one.size == two.size
    ]
    return [*facts, _past_windows(run, before, after, full)] if full else facts


def _places(run: Run, places: list[int], total: int) -> tuple[str, dict[str, Any]]:
    """What a cache has by number, in words and as what was measured: blocks, or entries of the cache where it has
    another number of them than there are blocks.
    """
    if total == len(run.text):
        return some(places, total), {"blocks": [*places]}
    return f"{some(places, total, 'entry', 'entries')} of the cache", {"entries": [*places]}


def _states(run: Run, found: Caches) -> Fact:
    """The bytes of all states together; and of one, where several are of one size."""
    sizes = [block.state for block in _held(run)]
    where, total = [index for index, size in enumerate(sizes) if size], len(sizes)
    each = set(sizes) - {0}
    words, measured = _places(run, where, total)
    if not found.by_block:
        said = f"The cache holds one state of {sum(sizes):,} bytes for all blocks, whatever the length"
        measured = {}
    elif len(where) == 1:
        said = f"{_begin(words)} holds a state of {sum(sizes):,} bytes whatever the length"
    else:
        one = f"a state of {max(each):,} bytes" if len(each) == 1 else "a state"
        said = f"{_begin(words)} {_verb('hold', where, total)} {one} whatever the length"
        said += f", {sum(sizes):,} bytes together"
    return Fact(
        name="cache_state_bytes",
        label="State in the cache",
        value=sum(sizes),
        unit="bytes",
        measured=measured | ({"each": max(each)} if len(each) == 1 and found.by_block else {}),
        statement=f"{said}.",
    )


def _begin(words: str) -> str:
    return words[0].upper() + words[1:]


def _verb(plain: str, blocks: list[int], total: int) -> str:
    """A verb as it follows the words for these blocks: one block, or every block, is one."""
    return f"{plain}s" if len(blocks) in (1, total) else plain


def _per_token(run: Run, held: list[Stored]) -> Fact:
    total = sum(block.size // max(block.positions, 1) for block in held)
    empty = [index for index, block in enumerate(held) if block.size == 0]
    storing = "every block stores its keys and values"
    words, measured = _places(run, empty, len(held))
    if empty:
        storing = f"{words} {_verb('store', empty, len(held))} nothing a token"
    dtype = str(run.dtype).removeprefix("torch.")
    return Fact(
        name="kv_cache_bytes_per_token",
        label="Cache a token",
        value=total,
        unit="bytes",
        measured={"dtype": dtype} | {f"empty_{what}": numbers for what, numbers in measured.items() if numbers},
        statement=f"A cache of this load holds {total:,} bytes a token ({dtype}): {storing}.{_other_growth(run, held)}",
    )


def _other_growth(run: Run, held: list[Stored]) -> str:
    """That some of what is stored grows otherwise, where it does."""
    places = [index for index, block in enumerate(held) if block.rest]
    words, _ = _places(run, places, len(held))
    said = f" {_begin(words)} {_verb('hold', places, len(held))} more, which grows, but not by an entry a token."
    return said if places else ""


def _past_windows(run: Run, before: list[Stored], after: list[Stored], full: list[int]) -> Fact:
    growth = sum(block.size for block in after) - sum(block.size for block in before)
    positions = sorted({before[index].positions for index in full})
    kept = " or ".join(map(str, positions))
    (where, measured), hold = _places(run, full, len(before)), _verb("hold", full, len(before))
    other = _other_growth(run, after)
    part = ("its" if hold == "holds" else "their") + (" keys and values stop" if other else " part stops")
    return Fact(
        name="kv_cache_bytes_per_token_past_window",
        label="Cache a token, past the window",
        value=growth,
        unit="bytes",
        measured={**measured, "positions": [*positions]},
        statement=(
            f"Once {where} {hold} {kept} positions, {part} growing: a token then adds {growth:,} bytes"
            f"{' of them' if other else ''}.{other}"
        ),
    )
