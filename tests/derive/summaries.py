"""What was found on one twin, kept small: built, derived, read and edited once for all tests of these values."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import torch

from probe.checkpoints import factory, load, targets
from probe.measure.collect import all_identities
from probe.measure.edits import edit_all
from probe.measure.run import Run, measure
from probe.standard import StandardizedTransformer
from probe.standard.trace import Key, declared
from probe.values.hosts import Host

SIZES = ("num_heads", "num_kv_heads", "head_dim", "qk_head_dim", "intermediate_size", "num_experts", "top_k")


def twins() -> list[tuple[str, str]]:
    """Every twin of every decoder that has one: ``(family, name)``."""
    built = [name for name in factory.decoders() if name not in factory.unbuildable()]
    return [(family, t.id) for family in built for t in targets(family) if t.kind == "tiny"]


def standardized(family: str, name: str) -> StandardizedTransformer:
    """A twin under its standard names, built anew."""
    target = next(t for t in targets(family) if t.kind == "tiny" and t.id == name)
    return StandardizedTransformer(load(target, attn="eager"))


def label(key: Key) -> str:
    return f"{key.host.removeprefix('model.')}.{key.name}"


@dataclass
class Summary:
    """What the run of one twin showed.

    Attributes:
        blocks: how many the text model has.
        summed: blocks on which the block's sum holds.
        read: how many values were read.
        unread: values that `support()` calls readable and no run read.
        misshapen: values with another number of axes than their layout.
        odd: for each axis whose size is not the model's, the sizes it has.
        unedited: writable values whose edit was not made.
        silent: values whose edit reaches no logit on any block.
        sizes: for each size that a host measured, its values.
    """

    blocks: int
    summed: set[int]
    read: int = 0
    unread: list[str] = field(default_factory=list)
    misshapen: list[str] = field(default_factory=list)
    odd: dict[str, set[int]] = field(default_factory=dict)
    unedited: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    sizes: dict[str, set[int]] = field(default_factory=dict)


@cache
def summary(family: str, name: str) -> Summary:
    """Measure a twin, once a session; its model is let go."""
    return _summary(measure(standardized(family, name)))


def _summary(run: Run) -> Summary:
    text, _ = all_identities(run)
    sums = [identity for identity in text if identity.name == "block sum" and identity.holds]
    found = Summary(len(run.text), {index for identity in sums for index in identity.blocks or ()})
    effects = edit_all(run)
    reached: dict[str, bool] = {}
    for key, host, value in declared(run.model):
        if host.refusal(value) is not None:
            continue
        held = run.readings.get(key)
        if held is None:
            found.unread.append(label(key))
            continue
        found.read += 1
        dims = value.layout.dims
        if isinstance(held, torch.Tensor) and held.ndim != len(dims):
            found.misshapen.append(label(key))
        elif isinstance(held, torch.Tensor):
            known = _known(run, key, host)
            for axis, size in zip(dims, held.shape, strict=True):
                if known.get(axis) not in (None, size):
                    found.odd.setdefault(axis, set()).add(size)
        if value.writable:
            effect = effects.get(key)
            if effect is None or effect.reaches is None:
                found.unedited.append(label(key))
            else:
                reached[label(key)] = reached.get(label(key), False) or effect.reaches
        for size in SIZES:
            if isinstance(number := getattr(host, size, None), int):
                found.sizes.setdefault(size, set()).add(number)
    found.silent = {name for name, reaches in reached.items() if not reaches}
    return found


def _known(run: Run, key: Key, host: Host) -> dict[str, int | None]:
    """The sizes that the axes of a value should have: those of the prompt, of the config, and the host's own."""
    batch, seq = run.inputs["input_ids"].shape
    if key.host.startswith("model.vision.layers"):
        batch, seq = run.readings[Key("model.vision.layers[i]", key.block, "layer_input")].shape[:2]
    known: dict[str, int | None] = {"batch": batch, "seq": seq, "query": seq, "key": seq}
    known |= {name: getattr(run.model.text_config, name, None) for name in ("hidden_size", "vocab_size")}
    return known | {size: getattr(host, size, None) for size in SIZES}
