"""The hosts of a block: where its stream passes, which modules do its work, and what each of them adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from ..values.hosts import Attention, Layer, Mlp
from ..wiring.anatomy import BlockAnatomy, Term
from . import attention, mixer, mixture, mlp
from .declare import BlockDraft, Declared, HostDraft
from .find import Found, find, location
from .modules import entering, last_projection, leaving
from .sites import Event, Recording, Site, within

NAMES = {"attention": "self_attn", "mixer": "linear_attn", "mlp": "mlp", "moe": "mlp"}
"""The standard name of a sublayer's module, by its kind."""

ADDS = {"attention": "attention_output", "mixer": "attention_output", "mlp": "mlp_output", "moe": "mlp_output"}
"""The standard name of what a sublayer adds, by its kind; another kind adds `branch_output`."""

BRANCH = "What this branch adds to the residual stream"


class Unlocated(Exception):
    """No place of the forward that can be named holds what the block adds; the message says which."""


def describe(
    model: torch.nn.Module, recording: Recording, path: str, index: int, anatomy: BlockAnatomy, batch: int
) -> BlockDraft:
    """Derive one block's hosts and values.

    Args:
        path: of the block, from the model.
        anatomy: its wiring, of a forward on the same inputs.
        batch: rows of the recorded forward.

    Raises:
        Unlocated: a contribution has no location.
    """
    recording.repeats = recording.calls[path, ()]
    block = HostDraft(path, "layer", "", "")
    draft = BlockDraft(index, path, [block])
    _stream(recording, block, path, anatomy, batch)
    named: Counter[str] = Counter(NAMES.get(term.kind, "") for term in anatomy.terms if _main(term))
    for term in anatomy.terms:
        draft.hosts += _sublayer(model, recording, block, term, batch, named)
    draft.hosts += _on_the_way(model, recording, draft, batch)
    return draft


def _on_the_way(model: torch.nn.Module, recording: Recording, draft: BlockDraft, batch: int) -> Iterator[HostDraft]:
    """Attentions that add nothing to the stream themselves, since what they give goes into another sublayer."""
    path, hosts = draft.path, [host.path for host in draft.hosts[1:]]
    given = leaving(recording, path)
    if given is None:
        return
    width = int(given.tensor.shape[-1])
    softmaxes = [event.inside[-1] for event in recording.inside(path) if _over_positions(event, batch)]
    for inner in dict.fromkeys(softmaxes):
        if inner == path or any(within(inner, host) or within(host, inner) for host in hosts):
            continue
        native = inner.removeprefix(f"{path}.")
        host = HostDraft(inner, "attention", native, native)
        attention.describe(model, recording, host, batch, last_projection(model, recording, inner, width))
        yield host


def _over_positions(event: Event, batch: int) -> bool:
    """Whether a softmax gives a row over all positions, or more keys, for each of them, ``[batch, heads, query, key]``,
    of which the first sees no later one: over lanes or earlier blocks all see all.
    """
    shape = event.output.shape
    if event.name != "softmax" or len(shape) != 4 or shape[0] != batch or not 1 < shape[2] <= shape[3]:
        return False
    return not bool(event.output[:, :, 0, 1 : shape[2]].any())


def _host(path: str, term: Term, block: HostDraft, named: Counter[str]) -> HostDraft:
    """The host of a term: the module that computes it, the last layer where there is none, the block for a branch."""
    native = _main(term)
    if not native or (term.kind not in NAMES and named[""] == 1):
        return block
    standard = NAMES.get(term.kind, "")
    name = standard if standard and term.hosts and named[standard] == 1 else native
    return HostDraft(f"{path}.{native}", term.kind, name, native)


def _main(term: Term) -> str:
    """Native path of the module that stands for the term."""
    if not term.hosts:
        return term.leaf
    standard = NAMES.get(term.kind)
    return standard if standard in term.hosts else term.hosts[-1]


def _sublayer(
    model: torch.nn.Module,
    recording: Recording,
    block: HostDraft,
    term: Term,
    batch: int,
    named: Counter[str],
) -> list[HostDraft]:
    path = block.path
    host = _host(path, term, block, named)
    name = ADDS.get(term.kind, "branch_output")
    described = {"attention_output": Attention.attention_output, "mlp_output": Mlp.mlp_output}
    added = _added(recording, path, term, batch)
    if added is None:
        raise Unlocated(f"no module or operation that runs once holds what {_main(term) or 'a term'} adds")
    host.values[name] = Declared(
        "Residual",
        added.at(host.path),
        str(described[name].description) if name in described else BRANCH,
        added.held,
    )
    if host is block:
        return []
    width = int(term.tensor.shape[-1])
    projection = last_projection(model, recording, host.path, width)
    inner: list[HostDraft] = []
    if term.kind == "attention":
        attention.describe(model, recording, host, batch, projection)
    elif term.kind == "mixer":
        mixer.describe(model, recording, host, width)
    elif term.kind == "mlp":
        mlp.describe(model, recording, host, projection, None if term.hosts else path)
    elif term.kind == "moe":
        inner = _mixture(model, recording, host, path, term)
    return [host, *inner]


def _mixture(model: torch.nn.Module, recording: Recording, host: HostDraft, path: str, term: Term) -> list[HostDraft]:
    """A mixture that is one module, or a router and experts that stand in the block."""
    within = host.path if len(term.hosts) == 1 else path
    given = leaving(recording, host.path)
    before = entering(recording, f"{path}.{term.post_norm}") if term.post_norm else given
    if before is None or before.tensor.numel() != term.tensor.numel():
        return []
    return mixture.describe(model, recording, host, within, before.tensor.reshape(term.tensor.shape))


def _added(recording: Recording, path: str, term: Term, batch: int) -> Found | None:
    """Where the tensor that is added stands: the module that gives it, else the last operation that holds it."""
    sites = recording.below(path)
    leaf = f"{path}.{term.leaf}"

    def prefer(site: Site) -> float:
        own = site.module == leaf and not site.steps and site.side == "output" and bool(term.leaf)
        return (3e9 if own else 0) + (1e9 if not site.steps and site.side == "output" else 0) + site.order

    added = term.tensor if term.tensor.ndim == 3 else term.tensor.reshape(batch, -1, term.tensor.shape[-1])
    return find(recording, [s for s in sites if s.side == "output"], added, "Residual", prefer=prefer)


def _stream(recording: Recording, block: HostDraft, path: str, anatomy: BlockAnatomy, batch: int) -> None:
    """The points of the stream, and what the norms make of it."""
    first = entering(recording, path)
    last = leaving(recording, path)
    if first is None or last is None:
        raise Unlocated("the block takes or gives no tensor")
    block.values["layer_input"] = _point(first, path, str(Layer.layer_input.description), batch)
    mixing = next((term for term in anatomy.terms if term.kind in ("attention", "mixer")), None)
    feeding = next((term for term in anatomy.terms if term.kind in ("mlp", "moe")), None)
    if mixing is not None and mixing.pre_norm:
        _norm(recording, block, mixing.pre_norm, "attention_norm_output", str(Layer.attention_norm_output.description))
    if feeding is not None:
        if len(anatomy.terms) > 1 and anatomy.topology == "sequential" and first.tensor.ndim == 3:
            _mid(recording, block, path, feeding)
        if feeding.pre_norm:
            _norm(recording, block, feeding.pre_norm, "mlp_norm_output", str(Layer.mlp_norm_output.description))
        if feeding.hosts:
            given = entering(recording, f"{path}.{_main(feeding)}")
            if given is not None and recording.once(given):
                block.values["mlp_input"] = Declared(
                    "Residual", location(given, path), str(Layer.mlp_input.description), _tokens(given)
                )
    block.values["layer_output"] = _point(last, path, str(Layer.layer_output.description), batch)


def _point(site: Site, path: str, description: str, batch: int) -> Declared:
    """A point of the stream, which may have several lanes: on an axis before the last, or as the first axis."""
    if site.tensor.ndim < 4:
        return Declared("Residual", location(site, path), description, _tokens(site))
    last = "lanes batch seq hidden_size" if site.tensor.shape[0] != batch else None
    return Declared("ResidualLanes", location(site, path), f"{description}, in its lanes", last)


def _tokens(site: Site) -> str | None:
    return "(batch seq) hidden_size" if site.tensor.ndim == 2 else None


def _norm(recording: Recording, block: HostDraft, norm: str, name: str, description: str) -> None:
    given = leaving(recording, f"{block.path}.{norm}")
    if given is not None and recording.once(given):
        block.values[name] = Declared("Residual", location(given, block.path), description, _tokens(given))


def _mid(recording: Recording, block: HostDraft, path: str, feeding: Term) -> None:
    """The stream that the MLP's side reads: what its norm, or it itself, takes."""
    reader = feeding.pre_norm or (_first(feeding) if feeding.hosts else None)
    given = entering(recording, f"{path}.{reader}") if reader else None
    if given is not None and recording.once(given):
        block.values["layer_mid"] = Declared(
            "Residual",
            location(given, path),
            str(Layer.layer_mid.description),
            _tokens(given),
            (("live", True),),
        )


def _first(term: Term) -> str:
    return term.hosts[-1]


def conflicts(blocks: Sequence[BlockDraft]) -> dict[str, set[str]]:
    """Native paths that stand under several standard names in different blocks."""
    found: dict[str, set[str]] = {}
    for block in blocks:
        for host in block.hosts[1:]:
            found.setdefault(host.native, set()).add(host.name)
    return {native: names for native, names in found.items() if len(names) > 1}
