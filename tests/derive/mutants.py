"""Derivations made wrong on purpose: changes of a draft between its derivation and the model that is built on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from nnsight.intervention.interleaver import OutOfOrderError

from probe.checkpoints import Loaded, load, targets
from probe.checkpoints.factory import default_inputs
from probe.derive import default
from probe.derive.declare import Declared, Draft, HostDraft
from probe.derive.draft import draft, several
from probe.derive.find import location
from probe.derive.sites import Recording, Site, recorder
from probe.errors import ProbeError
from probe.measure import run as measuring
from probe.measure.collect import all_identities
from probe.standard import StandardizedTransformer
from probe.standard.trace import declared
from probe.values.value import Unserved
from probe.wiring.nodes import Node, ProductNode, every, rebuilt

Mutation = Callable[[Draft], None]


def loaded(family: str, name: str) -> Loaded:
    target = next(t for t in targets(family) if t.kind == "tiny" and t.id == name)
    return load(target, attn="eager")


@dataclass
class Subject:
    """A twin's right draft, the forward it comes from, and what is said against the right one too: the equations that
    its family does not keep.
    """

    draft: Draft
    recording: Recording
    reported: frozenset[str]


@lru_cache(maxsize=2)
def subject(family: str, name: str) -> Subject:
    model = loaded(family, name)
    right = draft(model.module, default_inputs(model.module))
    with recorder(model.module, [right.container]) as recording:
        model.module(**several(default_inputs(model.module)))
    with pytest.MonkeyPatch.context() as patch:
        return Subject(right, recording, frozenset(_reports(patch, family, name, right)))


def _reports(patch: pytest.MonkeyPatch, family: str, name: str, drafted: Draft) -> set[str]:
    """What is said against a draft: the equations that do not hold, and the values that the model cannot give."""
    patch.setattr(default, "draft", lambda model, inputs: drafted)
    patch.setattr("probe.standard.transformer.family_of", default.derived)
    model = StandardizedTransformer(loaded(family, name))
    refused = {
        f"no {key.name}"
        for key, host, value in declared(model)
        if not isinstance(value, Unserved) and host.refusal(value) is not None
    }
    text, _ = all_identities(measuring.measure(model))
    return refused | {identity.name for identity in text if not identity.holds}


def caught(patch: pytest.MonkeyPatch, family: str, name: str, mutate: Mutation) -> str:
    """What reports a mutated draft: the equations that break, or the error that ends the probe; empty where nothing."""
    known = subject(family, name)
    wrong = copy.deepcopy(known.draft)
    mutate(wrong)
    try:
        return ", ".join(sorted(_reports(patch, family, name, wrong) - known.reported))
    except (ProbeError, OutOfOrderError) as error:
        return str(error)


def hosts(drafted: Draft, *roles: str) -> Iterator[HostDraft]:
    return (host for block in drafted.blocks for host in block.hosts if host.role in roles)


def swap(role: str, first: str, second: str) -> Mutation:
    """Two values at each other's places."""

    def mutate(drafted: Draft) -> None:
        for host in hosts(drafted, role):
            if first in host.values and second in host.values:
                one, other = host.values[first], host.values[second]
                host.values[first] = replace(one, at=other.at, axes=other.axes)
                host.values[second] = replace(other, at=one.at, axes=one.axes)

    return mutate


def move(role: str, name: str, to: str) -> Mutation:
    """A value at another place."""

    def mutate(drafted: Draft) -> None:
        for host in hosts(drafted, role):
            if name in host.values:
                host.values[name] = replace(host.values[name], at=to, axes=None)

    return mutate


def before_the_norm(role: str, name: str) -> Mutation:
    """A contribution at what its last norm takes."""

    def mutate(drafted: Draft) -> None:
        for host in hosts(drafted, role):
            if name in host.values:
                at = host.values[name].at or ""
                assert at.endswith("norm.output"), at
                host.values[name] = replace(host.values[name], at=at.removesuffix("output") + "input")

    return mutate


def held_as(name: str, held: str) -> Mutation:
    """A value with its axes taken for others."""

    def mutate(drafted: Draft) -> None:
        for host in hosts(drafted, "attention"):
            if name in host.values:
                host.values[name] = replace(host.values[name], axes=held)

    return mutate


def drop_factors(patch: pytest.MonkeyPatch) -> None:
    """The block's sum without what multiplies in it."""

    def bare(node: Node) -> Node:
        return node.of if isinstance(node, ProductNode) else node

    derive = measuring.derive

    def without(blocks: Any, forward: Any) -> Any:
        found = derive(blocks, forward)
        assert any(isinstance(node, ProductNode) for anatomy in found for node in every(anatomy.tree))
        return [replace(anatomy, factors=(), tree=rebuilt(anatomy.tree, bare)) for anatomy in found]

    patch.setattr(measuring, "derive", without)


def neighbours(known: Subject, host: HostDraft, value: Declared) -> list[str]:
    """Locations of the operations and modules of its block, next to a value, that hold another tensor of its shape."""
    block = next(block for block in known.draft.blocks if host in block.hosts)
    sites = [site for site in known.recording.below(block.path) if known.recording.once(site)]
    own = next((site for site in sites if location(site, host.path) == value.at), None)
    if own is None:
        return []
    others = [site for site in sites if site.tensor.shape == own.tensor.shape and _differs(site, own)]
    before = [site for site in others if site.order < own.order]
    after = [site for site in others if site.order > own.order]
    near = [*before[-1:], *after[:1]]
    return [location(site, host.path) for site in near]


def _differs(site: Site, own: Site) -> bool:
    if site.tensor.dtype != own.tensor.dtype:
        return False
    return not torch.allclose(site.tensor.float(), own.tensor.float(), rtol=1e-3, atol=1e-3)
