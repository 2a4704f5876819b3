"""Checks over the whole model: what it was called with, the embedding, the readout."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...values.readout import number
from ...wiring.norms import is_norm
from ..identities import Check, Form, Pair
from ..run import Run


def root_checks(run: Run) -> Iterator[Check]:
    """Checks over the whole model: what it was called with, the embedding, the way into the blocks, the readout."""
    yield Check("call", "input_ids and attention_mask == what was passed", root=_call)
    yield Check("embedding", f"c * embed_tokens.weight[input_ids] == token_embeddings{beside(run)}", root=_embedding)
    yield Check("stream into the first block", root_forms=_first_stream)
    yield Check("final norm", root_forms=_final_norm)
    yield Check("head", root_forms=_head)
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


def beside(run: Run) -> str:
    """What an equation over the tokens leaves out, in words: the image's, where the prompt has any."""
    return "" if bool(text_positions(run).all()) else " where no image token"


def embedding_scale(run: Run) -> float:
    """The factor between the embedding table's rows and the embedding module's output, by least squares."""
    table, read = _rows_of_table(run)
    return float((table * read).sum() / table.square().sum())


def _rows_of_table(run: Run) -> Pair:
    where = text_positions(run)
    table = run.model.embed_tokens._module.weight[run.inputs["input_ids"][where]].float()
    return table, run.root("token_embeddings")[where]


def _embedding(run: Run) -> Pair | None:
    embedded = run.root("token_embeddings")
    if embedded is None or embedded.shape[:2] != run.inputs["input_ids"].shape:
        return None
    table, read = _rows_of_table(run)
    return table * embedding_scale(run), read


def _first_stream(run: Run) -> Iterator[Form]:
    """From the embedding module's output to the first block: scaled, with position vectors added, normed."""
    entering, read = run.text.get(0, "", "layer_input"), run.root("token_embeddings")
    if entering is None or read is None or read.shape != entering.shape:
        return
    where = text_positions(run)
    if where.shape != read.shape[:-1]:
        where = torch.ones(read.shape[:-1], dtype=torch.bool)
    target = entering[where]
    sums = [("token_embeddings", read), *_with_positions(run, read, entering)]
    for written, made in sums:
        yield Form(f"{written} == layers[0].layer_input{beside(run)}", (made[where], target))
    factor = float((read * entering).sum() / read.square().sum())
    yield Form(f"c * token_embeddings == layers[0].layer_input{beside(run)}", (factor * read[where], target))
    for name, norm in _norms_beside(run):
        for written, made in sums:
            normed = call_module(run, norm, made)
            yield Form(f"{name}({written}) == layers[0].layer_input{beside(run)}", (normed[where], target))
    width = read.shape[-1]
    for written, made in sums:
        scale = made.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        if width > 1:
            yield Form(f"{written} / its rms == layers[0].layer_input{beside(run)}", ((made * scale)[where], target))


def _with_positions(run: Run, read: torch.Tensor, entering: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The embeddings, scaled or not, with each table of position vectors that the model holds added from its start."""
    seq, width = read.shape[1:]
    for path, table in _tables(run, seq, width):
        for first in range(3):
            rows = table[first : first + seq]
            if len(rows) < seq:
                continue
            rest = entering - rows
            factor = float((read * rest).sum() / read.square().sum())
            start = f"{first} + position" if first else "position"
            yield f"token_embeddings + {path}[{start}]", read + rows
            yield f"c * token_embeddings + {path}[{start}]", factor * read + rows


def _tables(run: Run, seq: int, width: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors beside the token embedding with a row for each position: parameters, buffers, plain attributes."""
    embed = run.model.embed_tokens
    beside = embed.parent._module
    for path, module in beside.named_modules():
        if module is embed._module or path.count(".") > 0 or isinstance(module, torch.nn.ModuleList):
            continue
        held = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
        held |= {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, tensor in held.items():
            table = tensor.squeeze()
            if table.ndim == 2 and table.shape[0] >= seq and table.shape[1] == width:
                yield ".".join(part for part in (path, name) if part), table.float()


def _norms_beside(run: Run) -> Iterator[tuple[str, torch.nn.Module]]:
    """Norms that stand beside the token embedding."""
    beside = run.model.embed_tokens.parent
    for name, child in beside._named_children():
        if is_norm(child._module, run.model.hidden_size):
            yield name, child._module


def _last(run: Run) -> torch.Tensor | None:
    return run.text.get(len(run.text) - 1, "", "layer_output")


def call_module(run: Run, module: torch.nn.Module, value: torch.Tensor) -> torch.Tensor:
    """What a native module gives for a value, in float32."""
    with torch.no_grad():
        return module(value.to(run.dtype)).float()


def _final_norm(run: Run) -> Iterator[Form]:
    """From the last block to what the head reads: its norm, or the other modules that stand there."""
    last, read = _last(run), run.root("final_norm_output")
    if last is None or read is None:
        return
    norm = getattr(run.model, "norm", None)
    if norm is not None and last.shape == read.shape:
        normed = call_module(run, norm._module, last)
        yield Form("norm(layers[-1].layer_output) == final_norm_output", (normed, read))
        leaving = number(run.model.readout.leaving, run.model.text_config)
        if leaving != 1.0:
            scaled = call_module(run, norm._module, leaving * last)
            yield Form(f"norm({leaving:g} * layers[-1].layer_output) == final_norm_output", (scaled, read))
        factor = float((normed * read).sum() / normed.square().sum())
        yield Form("c * norm(layers[-1].layer_output) == final_norm_output", (factor * normed, read))
        return
    written, made = "layers[-1].layer_output", last
    for path in _readout_path(run)[:-1]:
        written, made = f"{path}({written})", call_module(run, run.model.get(path)._module, made)
    if made.shape == read.shape:
        yield Form(f"{written} == final_norm_output", (made, read))


def _readout_path(run: Run) -> tuple[str, ...]:
    """Paths of the modules from the last block to the head, as far as nothing else stands there."""
    return run.model.readout.modules


def _head(run: Run) -> Iterator[Form]:
    normed, read = run.root("final_norm_output"), run.root("lm_head_output")
    path = _readout_path(run)
    head = run.model.get(path[-1]) if path else getattr(run.model, "lm_head", None)
    if normed is None or read is None or head is None:
        return
    made = call_module(run, head._module, normed)
    if made.shape != read.shape:
        return
    yield Form("lm_head(final_norm_output) == lm_head_output", (made, read))
    factor = float((made * read).sum() / made.square().sum())
    yield Form("c * lm_head(final_norm_output) == lm_head_output", (factor * made, read))
    for start in range(1, len(path) - 1):
        written, made = "final_norm_output", normed
        for step in path[start:]:
            written, made = f"{step}({written})", call_module(run, run.model.get(step)._module, made)
        yield Form(f"{written} == lm_head_output", (made, read))


def _readout(run: Run) -> Pair | None:
    last = _last(run)
    if last is None or not _readout_path(run):
        return None
    with torch.no_grad():
        return run.model.project_on_vocab(last.to(run.dtype)).float(), run.root("logits")


def _next_token(run: Run) -> Pair | None:
    return run.root("logits")[:, -1].softmax(-1), run.root("next_token_probs")
