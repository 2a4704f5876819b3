"""Derivations made wrong on purpose: changes of a draft between its derivation and the model that is built on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
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
from probe.wiring.anatomy import BlockAnatomy
from probe.wiring.nodes import Node, ProductNode, every, rebuilt

Mutation = Callable[[Draft], None]


def loaded(family: str, name: str) -> Loaded:
    target = next(t for t in targets(family) if t.kind == "tiny" and t.id == name)
    return load(target, attn="eager")


@dataclass
class Subject:
    """A twin's right draft, the forward it comes from, and what is said against the right one too: the equations that
    its family does not keep.

    Attributes:
        twin: as it was loaded; a model is built on a copy.
        wiring: of blocks by their paths, what each way to derive it found, which no draft bears on.
    """

    twin: Loaded
    draft: Draft
    recording: Recording
    reported: frozenset[str] = frozenset()
    wiring: dict[tuple[Callable[..., list[BlockAnatomy]], tuple[str, ...]], list[BlockAnatomy]] = field(
        default_factory=dict
    )

    def reports(self, drafted: Draft) -> Generator[str]:
        """What is said against a draft: the values that the model cannot give, and the equations that do not hold."""
        model = replace(self.twin, module=copy.deepcopy(self.twin.module))
        paths = {module: path for path, module in model.module.named_modules()}
        derive = measuring.derive

        def derived(blocks: list[torch.nn.Module], forward: Callable[[], object]) -> list[BlockAnatomy]:
            key = derive, tuple(paths[block] for block in blocks)
            if key not in self.wiring:
                self.wiring[key] = derive(blocks, forward)
            return self.wiring[key]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(default, "draft", lambda model, inputs: drafted)
            patch.setattr("probe.standard.transformer.family_of", default.derived)
            patch.setattr(measuring, "derive", derived)
            standard = StandardizedTransformer(model)
            for key, host, value in declared(standard):
                if not isinstance(value, Unserved) and host.refusal(value) is not None:
                    yield f"no {key.name}"
            text, _ = all_identities(measuring.measure(standard))
            yield from (identity.name for identity in text if not identity.holds)


@lru_cache(maxsize=2)
def subject(family: str, name: str) -> Subject:
    twin = loaded(family, name)
    model = copy.deepcopy(twin.module)
    right = draft(model, default_inputs(model))
    with recorder(model, [right.container]) as recording:
        model(**several(default_inputs(model)))
    found = Subject(twin, right, recording)
    return replace(found, reported=frozenset(found.reports(right)))


def caught(family: str, name: str, mutate: Mutation) -> str | None:
    """What reports a mutated draft first: a value that is refused, an equation that breaks, or the error that ends the
    probe; None where nothing does.
    """
    known = subject(family, name)
    wrong = copy.deepcopy(known.draft)
    mutate(wrong)
    try:
        with closing(known.reports(wrong)) as reports:
            return next((found for found in reports if found not in known.reported), None)
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
