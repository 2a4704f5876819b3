"""The identities that every family of pre-normed attention and MLP blocks should satisfy, text and vision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .anatomy import BlockAnatomy
from .identities import Block, Check, Pair
from .run import Run, Stack

HIDDEN = 1e30
"""Scores below minus this are masked."""


def block_checks(stack: Stack) -> Iterator[Check]:
    """Checks over one block, in the order of a forward pass."""
    first, second = _first_of(stack, "attention"), _first_of(stack, "mlp", "moe")
    yield Check("stream between blocks", "layers[i].layer_input == layers[i-1].layer_output", _continues)
    yield Check(
        "norm before the first sublayer", f"{first.pre_norm}(layer_input) == attention_norm_output", _first_norm
    )
    yield Check("scores", "attention_scores == s * attention_queries @ attention_keys.T where not masked", _scores)
    yield Check("pattern", "softmax(attention_scores) == attention_probabilities", _pattern)
    yield Check("pattern rows", "attention_probabilities.sum(key) == 1", _rows)
    yield Check("head outputs", "attention_probabilities @ attention_values == attention_head_outputs", _heads)
    yield Check("premix", "attention_head_outputs == attention_premix", _premix)
    yield Check(
        "output projection", f"{_through(first.post_norm, 'o_proj(attention_premix)')} == attention_output", _projection
    )
    yield Check("stream inside the block", "layer_input + attention_output == layer_mid", _mid)
    yield Check("norm before the MLP", f"{second.pre_norm}(layer_mid) == mlp_norm_output", _second_norm)
    yield Check("input of the MLP", "mlp_norm_output == mlp_input", _mlp_input)
    yield Check("activation", "act_fn(gate_proj(mlp_input)) == mlp_activation", _activation)
    yield Check("neurons", "mlp_activation * up_proj(mlp_input) == mlp_neurons", _neurons)
    yield Check("down projection", f"{_through(second.post_norm, 'down_proj(mlp_neurons)')} == mlp_output", _down)
    yield Check("expert choice", "topk(router_logits) == expert_indices", _choice)
    yield Check("shared expert", "down_proj(mlp_neurons) == shared_expert_output", _shared_expert)


def _continues(block: Block) -> Pair | None:
    if block.index == 0:
        return None
    entering = block.value("", "layer_input")
    left = block.stack.get(block.index - 1, "", "layer_output")
    return None if entering is None or left is None else (entering, left)


def _first_norm(block: Block) -> Pair | None:
    entering, normed = block.value("", "layer_input"), block.value("", "attention_norm_output")
    norm = _sublayer(block, "attention").pre_norm
    return None if entering is None or normed is None or norm is None else (block.apply(norm, entering), normed)


def _scores(block: Block) -> Pair | None:
    scores, product = block.value("self_attn", "attention_scores"), _products(block)
    if scores is None or product is None:
        return None
    seen = scores > -HIDDEN
    return torch.where(seen, product * fitted_scale(scores, product), 0), torch.where(seen, scores, 0)


def _products(block: Block) -> torch.Tensor | None:
    """Queries against keys: ``[batch, num_heads, query, key]``."""
    queries, keys = block.value("self_attn", "attention_queries"), block.value("self_attn", "attention_keys")
    if queries is None or keys is None:
        return None
    return queries @ _shared(keys, queries.shape[1]).transpose(-1, -2)


def fitted_scale(scores: torch.Tensor, products: torch.Tensor) -> float:
    """The factor between products of queries and keys and the scores, by least squares over what is not masked."""
    seen = scores > -HIDDEN
    return float((scores[seen] * products[seen]).sum() / products[seen].square().sum().clamp_min(1e-30))


def _shared(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Keys or values with each shared head repeated for the query heads it serves."""
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1) if heads % tensor.shape[1] == 0 else tensor


def _pattern(block: Block) -> Pair | None:
    scores, pattern = block.value("self_attn", "attention_scores"), block.value("self_attn", "attention_probabilities")
    return None if scores is None or pattern is None else (scores.softmax(-1), pattern)


def _rows(block: Block) -> Pair | None:
    pattern = block.value("self_attn", "attention_probabilities")
    return None if pattern is None else (pattern.sum(-1), torch.ones_like(pattern[..., 0]))


def _heads(block: Block) -> Pair | None:
    pattern, values = block.value("self_attn", "attention_probabilities"), block.value("self_attn", "attention_values")
    outputs = block.value("self_attn", "attention_head_outputs")
    if pattern is None or values is None or outputs is None:
        return None
    values = _shared(values, pattern.shape[1])
    if values.shape[1:3] != pattern.shape[1::2]:
        return values, pattern
    return (pattern @ values).transpose(1, 2), outputs


def _premix(block: Block) -> Pair | None:
    outputs, premix = block.value("self_attn", "attention_head_outputs"), block.value("self_attn", "attention_premix")
    return None if outputs is None or premix is None else (outputs, premix)


def _projection(block: Block) -> Pair | None:
    premix, added = block.value("self_attn", "attention_premix"), block.value("self_attn", "attention_output")
    if premix is None or added is None:
        return None
    return block.apply(
        _sublayer(block, "attention").post_norm, block.apply(block.part("self_attn.o_proj"), premix.flatten(-2))
    ), added


def _mid(block: Block) -> Pair | None:
    entering, added, mid = (
        block.value("", "layer_input"),
        block.value("self_attn", "attention_output"),
        block.value("", "layer_mid"),
    )
    return None if entering is None or added is None or mid is None else (entering + added, mid)


def _second_norm(block: Block) -> Pair | None:
    mid, normed = block.value("", "layer_mid"), block.value("", "mlp_norm_output")
    norm = _sublayer(block, "mlp", "moe").pre_norm
    return None if mid is None or normed is None or norm is None else (block.apply(norm, mid), normed)


def _mlp_input(block: Block) -> Pair | None:
    normed, entering = block.value("", "mlp_norm_output"), block.value("", "mlp_input")
    return None if normed is None or entering is None else (normed, entering)


def _dense(block: Block) -> str:
    """The host of the neurons: the MLP, or the shared expert inside a mixture."""
    return "mlp" if block.value("mlp", "mlp_neurons") is not None else "mlp.shared_experts"


def _activation(block: Block) -> Pair | None:
    host, entering = _dense(block), block.value("", "mlp_input")
    activation = block.value(host, "mlp_activation")
    gate = block.part(f"{host}.gate_proj") or block.part(f"{host}.fc1")
    if entering is None or activation is None or gate is None:
        return None
    return block.apply(block.part(f"{host}.act_fn"), block.apply(gate, entering)), activation


def _neurons(block: Block) -> Pair | None:
    host, entering = _dense(block), block.value("", "mlp_input")
    activation, neurons = block.value(host, "mlp_activation"), block.value(host, "mlp_neurons")
    if entering is None or activation is None or neurons is None:
        return None
    up = block.part(f"{host}.up_proj")
    return activation if up is None else activation * block.apply(up, entering), neurons


def _down(block: Block) -> Pair | None:
    neurons, added = block.value("mlp", "mlp_neurons"), block.value("mlp", "mlp_output")
    if neurons is None or added is None or _sublayer(block, "mlp").kind is None:
        return None
    return block.apply(_sublayer(block, "mlp").post_norm, block.apply(block.part("mlp.down_proj"), neurons)), added


def _shared_expert(block: Block) -> Pair | None:
    host = _dense(block)
    neurons, shared = block.value(host, "mlp_neurons"), block.value("mlp", "shared_expert_output")
    return (
        None if neurons is None or shared is None else (block.apply(block.part(f"{host}.down_proj"), neurons), shared)
    )


def _choice(block: Block) -> Pair | None:
    logits, indices = block.value("mlp", "router_logits"), block.value("mlp", "expert_indices")
    if logits is None or indices is None:
        return None
    return logits.topk(indices.shape[-1]).indices.float(), indices.float()


@dataclass(frozen=True)
class Norms:
    """The norms around a sublayer, as derived; all None where a block has no such sublayer."""

    kind: str | None = None
    pre_norm: str | None = None
    post_norm: str | None = None


def _norms(anatomy: BlockAnatomy, kinds: tuple[str, ...]) -> Norms:
    return next(
        (Norms(term.kind, term.pre_norm, term.post_norm) for term in anatomy.terms if term.kind in kinds), Norms()
    )


def _sublayer(block: Block, *kinds: str) -> Norms:
    return _norms(block.stack.anatomy[block.index], kinds)


def _first_of(stack: Stack, *kinds: str) -> Norms:
    return next((found for anatomy in stack.anatomy if (found := _norms(anatomy, kinds)).kind), Norms())


def _through(norm: str | None, inner: str) -> str:
    return inner if norm is None else f"{norm}({inner})"


def root_checks(run: Run) -> Iterator[Check]:
    """Checks over the whole model: what it was called with, the embedding, the scatter, the readout."""
    yield Check("call", "input_ids and attention_mask == what was passed", root=_call)
    yield Check(
        "embedding", "c * embed_tokens.weight[input_ids] == token_embeddings where no image token", root=_embedding
    )
    yield Check(
        "stream into the first block",
        "token_embeddings == layers[0].layer_input where no image token",
        root=_first_stream,
    )
    yield Check("final norm", "norm(layers[-1].layer_output) == final_norm_output", root=_final_norm)
    yield Check("head", "lm_head(final_norm_output) == lm_head_output", root=_head)
    yield Check("readout", "project_on_vocab(layers[-1].layer_output) == logits", root=_readout)
    yield Check("next token", "softmax(logits[:, -1]) == next_token_probs", root=_next_token)


def _call(run: Run) -> Pair | None:
    passed = [run.inputs["input_ids"], run.inputs["attention_mask"], torch.tensor([run.inputs["input_ids"].shape])]
    read = [run.root("input_ids"), run.root("attention_mask"), torch.tensor([run.root("input_size")])]
    return _flat(read), _flat(passed)


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten().float() for tensor in tensors])


def text_positions(run: Run) -> torch.Tensor:
    """Which positions hold no image token: ``[batch, seq]``."""
    mask = run.root("image_token_mask", "model.vision")
    return torch.ones_like(run.inputs["input_ids"], dtype=torch.bool) if mask is None else ~mask


def embedding_scale(run: Run) -> float:
    """The factor between the embedding table's rows and the embedding module's output, by least squares."""
    table, read = _rows_of_table(run)
    return float((table * read).sum() / table.square().sum())


def _rows_of_table(run: Run) -> Pair:
    where = text_positions(run)
    table = run.model.embed_tokens._module.weight[run.inputs["input_ids"][where]].float()
    return table, run.root("token_embeddings")[where]


def _embedding(run: Run) -> Pair | None:
    table, read = _rows_of_table(run)
    return table * embedding_scale(run), read


def _first_stream(run: Run) -> Pair | None:
    where = text_positions(run)
    entering = run.text.get(0, "", "layer_input")
    return None if entering is None else (run.root("token_embeddings")[where], entering[where])


def _last(run: Run) -> torch.Tensor | None:
    return run.text.get(len(run.text) - 1, "", "layer_output")


def _call_module(run: Run, module: torch.nn.Module, value: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(value.to(run.dtype)).float()


def _final_norm(run: Run) -> Pair | None:
    last = _last(run)
    return None if last is None else (_call_module(run, run.model.norm._module, last), run.root("final_norm_output"))


def _head(run: Run) -> Pair | None:
    return _call_module(run, run.model.lm_head._module, run.root("final_norm_output")), run.root("lm_head_output")


def _readout(run: Run) -> Pair | None:
    last = _last(run)
    if last is None:
        return None
    with torch.no_grad():
        return run.model.project_on_vocab(last.to(run.dtype)).float(), run.root("logits")


def _next_token(run: Run) -> Pair | None:
    return run.root("logits")[:, -1].softmax(-1), run.root("next_token_probs")


def vision_checks(run: Run) -> Iterator[Check]:
    """Checks over the tower as a whole: its last stream, its features, and where they enter the text model."""
    yield Check(
        "tower output",
        "norm(vision.layers[-1].layer_output) == vision.tower_output, or the stream itself where there is no norm",
        root=_tower,
    )
    yield Check("image tokens", "input_ids == image_token_id == vision.image_token_mask", root=_image_tokens)
    yield Check("scatter", "layers[0].input[vision.image_token_mask] == vision.image_features", root=_scatter)


def _tower(run: Run) -> Pair | None:
    if run.vision is None:
        return None
    last = run.vision.get(len(run.vision) - 1, "", "layer_output")
    if last is None:
        return None
    tower = run.model.vision
    norm = tower.norm._module if "norm" in tower._aliases else None
    return (last if norm is None else _call_module(run, norm, last)), run.root("tower_output", "model.vision")


def _image_tokens(run: Run) -> Pair | None:
    mask = run.root("image_token_mask", "model.vision")
    return (run.inputs["input_ids"] == run.model._module.config.image_token_id).float(), mask.float()


def _scatter(run: Run) -> Pair | None:
    entering = run.text.get(0, "", "layer_input")
    mask, features = run.root("image_token_mask", "model.vision"), run.root("image_features", "model.vision")
    return None if entering is None or mask is None else (entering[mask], features)
