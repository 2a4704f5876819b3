"""Mixtures of experts: how many there are, how many a token takes, how their weights add up, and what the choice
depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from ...instruments.extra import BRIEF, LENGTH, forward, noisy, once, part, token_ids
from ...instruments.perturbed import Batch, perturbed
from ...instruments.rows import Rows, hooks
from ...measure.rounding import digits
from ...measure.run import Run
from ...values.hosts import Host
from ..answers import explain, per_block, phrase, spread, tolerance
from ..base import Measured, Quirk, Verdict, some
from .unrouted import unrouted

EXPERTS = ["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "ffn_config.moe_num_experts"]
CHOSEN = ["num_experts_per_tok", "top_k_experts", "num_experts_per_token", "moe_topk", "ffn_config.moe_top_k"]
NO_MIXTURE = "No block has a mixture."


def _is_mixture(run: Run) -> list[bool]:
    return [any(term.kind == "moe" for term in anatomy.terms) for anatomy in run.text.anatomy]


def _value(run: Run, index: int, name: str) -> torch.Tensor | None:
    """A value of a block's mixture, whatever host serves it; None where none does."""
    label = run.text.label
    hosts = (key.host for key in run.readings if key.block == index and key.name == name and key.host.startswith(label))
    host = next(hosts, None)
    return None if host is None else run.text.get(index, host.removeprefix(label).lstrip("."), name)


def number_of_experts(run: Run, index: int) -> int | None:
    """The experts that a block's router chooses among: as many as have weights, else as many as have a logit. A router
    may have logits for more, as for experts that every token passes, or for taking none.
    """
    host, logits = choosing(run).get(index), _value(run, index, "router_logits")
    known = getattr(host, "num_experts", None)
    return int(known) if known else None if logits is None else logits.shape[-1]


def _counts(run: Run, index: int) -> tuple[int, int, int] | None:
    """Experts, those that a token takes, and the router's logits beyond one an expert, on one block."""
    experts, logits = number_of_experts(run, index), _value(run, index, "router_logits")
    chosen = _value(run, index, "expert_indices")
    if experts is None or chosen is None:
        return None
    return experts, chosen.shape[-1], 0 if logits is None else logits.shape[-1] - experts


def mixture_of_experts(run: Run) -> Verdict:
    """A top-k on the way to a contribution, with the experts and those taken counted on the router's values and the
    experts' weights.
    """
    found = _is_mixture(run)
    counts = {_counts(run, index) for index, answer in enumerate(found) if answer} - {None}
    measured: Measured = {}
    if len(counts) == 1:
        measured["experts"], measured["chosen"], more = counts.pop() or (0, 0, 0)
        measured |= {"logits_of_no_expert": more} if more else {}
    return per_block(found, measured, explain(run, measured, {"experts": EXPERTS, "chosen": CHOSEN}))


def shared_expert(run: Run) -> Verdict:
    """On a mixture block, an MLP beside the routed experts that gives every token something, whatever the router
    chose: inside the mixture, also where only an output that is left without expert weights shows it, or as a
    contribution of its own that reads the same point of the stream.
    """
    found: list[bool | None] = []
    shares = []
    for index, mixture in enumerate(_is_mixture(run)):
        if not mixture:
            found.append(None)
            continue
        shared = _value(run, index, "shared_expert_output")
        if shared is None:
            shared = _beside(run, index)
        if shared is None:
            shared = unrouted(run)[index]
        least = 0.0 if shared is None else float(shared.norm(dim=-1).min() / shared.norm(dim=-1).max().clamp_min(1e-30))
        shares.append(least)
        found.append(least > 0)
    return per_block(found, {"least_over_largest_output": digits(min(shares), 2)} if shares else {}, absent=NO_MIXTURE)


def _beside(run: Run, index: int) -> torch.Tensor | None:
    """What the one MLP of a block adds that reads the same point of the stream as its mixture."""
    terms = run.text.anatomy[index].terms
    points = {id(term.reads) for term in terms if term.kind == "moe"}
    beside = [term for term in terms if term.kind == "mlp"]
    return beside[0].tensor.float() if len(beside) == 1 and id(beside[0].reads) in points else None


def dense_first_blocks(run: Run) -> Verdict:
    """The kinds of the blocks in order: some dense ones and then nothing but mixtures make the answer yes."""
    mixture = _is_mixture(run)
    if not any(mixture):
        return Verdict("n/a", why=NO_MIXTURE)
    first = mixture.index(True)
    holds = first > 0 and all(mixture[first:])
    measured: Measured = {"dense": first} if holds else {}
    explained = explain(run, measured, {"dense": ["first_k_dense_replace"]})
    return Verdict("yes" if holds else "no", list(range(first)) if holds else [], measured, explained)


def interleaved_moe(run: Run) -> Verdict:
    """The kinds of the blocks in order: a mixture at a fixed step, and dense blocks between, make the answer yes."""
    places = [index for index, mixture in enumerate(_is_mixture(run)) if mixture]
    if not places:
        return Verdict("n/a", why=NO_MIXTURE)
    steps = {after - before for before, after in zip(places, places[1:], strict=False)}
    step = min(steps, default=1)
    holds = len(steps) == 1 and step > 1 and places[0] < step and len(run.text) - places[-1] <= step
    measured: Measured = {"step": step} if holds else {}
    return Verdict(
        "yes" if holds else "no",
        places if holds else [],
        measured,
        explain(run, measured, {"step": ["interleave_moe_layer_step", "decoder_sparse_step"]}),
    )


@once
def weight_sums(run: Run) -> list[torch.Tensor | None]:
    """For each block the sum of every token's expert weights; where the weights multiply the experts' inputs, read
    off those.
    """
    found: list[torch.Tensor | None] = []
    dense: dict[int, torch.Tensor] = {}
    for index, mixture in enumerate(_is_mixture(run)):
        weights = _value(run, index, "expert_weights") if mixture else None
        found.append(None if weights is None else weights.sum(-1).flatten())
        if mixture and weights is None and part(run.text.envoys[index], "mlp.experts") is not None:
            dense[index] = torch.empty(0)
    if dense:
        for index, sums in _input_factors(run, list(dense)).items():
            found[index] = sums
    return found


def _input_factors(run: Run, blocks: list[int]) -> dict[int, torch.Tensor]:
    """One forward: the factor between what a mixture takes and what each expert takes, summed over the experts of a
    token.
    """
    taken: dict[tuple[str, int], torch.Tensor] = {}
    one = Rows(1)
    entering = []
    for index in blocks:
        for name in ("mlp", "mlp.experts"):
            host = part(run.text.envoys[index], name)
            if host is not None:
                entering.append((host._module, one.keep(taken, (name, index))))
    with hooks(entering):
        forward(run, token_ids(run, LENGTH))
    sums = {}
    for index in blocks:
        whole, each = taken["mlp", index][0], taken["mlp.experts", index][0]
        each = each.reshape(-1, *whole.shape)
        sums[index] = ((each * whole).sum(-1) / whole.square().sum(-1)).sum(0)
    return sums


def unnormalized_routing(run: Run) -> Verdict:
    """Sums the expert weights of every token, on the prompt and on tokens whose stream differs from it: one number for
    all of them makes the answer no, whatever it is.
    """
    if not any(_is_mixture(run)):
        return Verdict("n/a", why=NO_MIXTURE)
    more = changed_routes(run).sums
    sums = [
        None if total is None else torch.cat([total.float(), more.get(index, total).float()])
        for index, total in enumerate(weight_sums(run))
    ]
    found = [None if total is None else float(total.max() - total.min()) > 10 * tolerance(run) for total in sums]
    known = [number for total in sums if total is not None for number in spread(total.tolist())]
    measured: Measured = {"least_sum": digits(min(known), 3), "largest_sum": digits(max(known), 3)} if known else {}
    return per_block(found, measured, unknown="The weights of this mixture's experts were not read.")


@once
def choosing(run: Run) -> dict[int, Host]:
    """The hosts that serve a choice of experts, by block."""
    chosen = {(key.host, key.block) for key in run.readings if key.name == "expert_indices"}
    found: dict[int, Host] = {}
    for label, block, host in run.model.hosts() if chosen else ():
        if block is not None and (label, block) in chosen and label.startswith(run.text.label):
            found.setdefault(block, host)
    return found


@dataclass
class Routes:
    """What routers do with other streams.

    Attributes:
        hashed: for each block whether the experts stay when noise is added to the stream, as in every row of row 0's
            token ids, and change with the ids; None where no choice of experts was read.
        sums: by block the sum of each token's expert weights, under the noise and with other ids.
    """

    hashed: list[bool | None]
    sums: dict[int, torch.Tensor] = field(default_factory=dict)


@perturbed(lambda run: 2 if choosing(run) else 0)
@contextmanager
def changed_routes(run: Run, batch: Batch, rows: Rows) -> Iterator[Routes]:
    """The routers in one row with noise in the stream, and in one with other token ids."""
    routes = Routes([None] * len(run.text))
    hosts = choosing(run)
    if not hosts:
        yield routes
        return
    noise, other = 1, 2
    rows.part(batch.ids, other).copy_(token_ids(run, BRIEF, seed=1))
    taken: dict[tuple[int, str], torch.Tensor] = {}

    def read(name: str) -> None:
        for index, host in hosts.items():
            if host.support().get(name, "lacking") is None:
                taken[index, name] = getattr(host, name).detach().clone()

    batch.workers += [partial(read, name) for name in ("expert_indices", "expert_weights")]
    with hooks([(envoy._module, rows.change(noise, noisy)) for envoy in run.text.envoys]):
        yield routes
    whole = Rows(len(batch.ids))
    same = [row for row, ids in enumerate(batch.ids) if torch.equal(ids, batch.ids[0])]
    for (index, name), value in taken.items():
        if name == "expert_weights":
            routes.sums[index] = torch.cat([rows.part(value, row).sum(-1).flatten() for row in (noise, other)])
            continue
        plain = rows.part(value, 0)
        stays = all(torch.equal(plain, whole.part(value, row)) for row in same)
        routes.hashed[index] = stays and not torch.equal(plain, rows.part(value, other))


def hash_routing(run: Run) -> Verdict:
    """Adds noise to the stream and keeps the token ids: the same experts for every token make the answer yes."""
    if not any(_is_mixture(run)):
        return Verdict("n/a", why=NO_MIXTURE)
    return per_block(changed_routes(run).hashed, unknown="The experts that tokens are sent to were not read.")


def _experts(measured: Measured, blocks: list[int] | None, total: int) -> str:
    experts, chosen = measured.get("experts"), measured.get("chosen")
    if experts is None or chosen is None:
        return f"On {some(blocks or [], total)} a router sends each token to a few experts."
    more = measured.get("logits_of_no_expert")
    beyond = f", and has {more} more {'logit' if more == 1 else 'logits'} than there are experts" if more else ""
    return f"On {some(blocks or [], total)} a router sends each token to {chosen} of {experts} experts{beyond}."


QUIRKS = (
    Quirk("mixture-of-experts", "Mixture of experts", "text", mixture_of_experts, _experts),
    Quirk(
        "shared-expert",
        "Shared expert",
        "text",
        shared_expert,
        lambda m, b, n: f"On {some(b or [], n)} an expert that every token passes stands beside the routed ones.",
    ),
    Quirk(
        "dense-first-blocks",
        "Dense first blocks",
        "text",
        dense_first_blocks,
        lambda m, b, n: (
            f"{some(b or [], n).capitalize()} {'is' if len(b or []) == 1 else 'are'} dense; every later block is "
            "a mixture."
        ),
    ),
    Quirk(
        "interleaved-moe",
        "Interleaved mixtures",
        "text",
        interleaved_moe,
        lambda m, b, n: (
            f"Mixtures alternate with dense blocks{phrase(m, 'step', ', one every {} blocks')}: mixtures are on "
            f"{some(b or [], n)}."
        ),
    ),
    Quirk(
        "unnormalized-routing",
        "Unnormalised routing",
        "text",
        unnormalized_routing,
        lambda m, b, n: (
            f"On {some(b or [], n)} the weights of a token's experts add up to another number for each token."
        ),
    ),
    Quirk(
        "hash-routing",
        "Routing by token id",
        "text",
        hash_routing,
        lambda m, b, n: f"On {some(b or [], n)} the token's id decides its experts, and the stream does not.",
    ),
)
