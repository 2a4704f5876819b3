"""Facts: measured numbers of a checkpoint that are neither an identity nor a quirk."""

from __future__ import annotations

import os

from ..measure.run import Run
from ..schema import Fact
from .attention.padding import padding_facts
from .attention.score_scales import score_scales
from .attention.sdpa import sdpa_facts
from .base import STRICT, in_words
from .calls.backward import gradient_facts
from .calls.cache import cache_facts
from .calls.calling import calling_facts
from .calls.file_names import file_names
from .calls.generation import generation_facts
from .calls.half_facts import half_facts
from .calls.passed_over import passed_over
from .mlp.balancing import balancing_facts
from .mlp.expert_biases import bias_of_experts_facts
from .mlp.expert_slots import slot_facts
from .mlp.expert_weights import expert_facts
from .mlp.neurons import neuron_facts
from .recurrence.convolutions import convolution_facts
from .recurrence.mixer_projections import mixer_facts
from .recurrence.recurrence_code import recurrence_facts
from .rotary.as_projected import pair_facts
from .rotary.image_positions import image_positions
from .rotary.modules import rotary_facts
from .rotary.scaling import scaling_facts
from .stream.biases import bias_facts
from .stream.hidden_states import hidden_state_facts
from .stream.inner_norms import inner_norm_facts
from .stream.misread import misread_facts
from .stream.naive_lens import naive_lens_facts
from .stream.norm_epsilon import epsilon_facts
from .stream.tail import tail_facts
from .stream.wiring import hyper_connections


def facts(run: Run) -> list[Fact]:
    """All facts of one run, in the order in which a record holds them. A measurement that raises is told as a fact of
    its own.
    """
    found = [parameters(run), *stream_width(run)]
    for label, measure in (
        ("kernels", sdpa_facts),
        ("padding", padding_facts),
        ("cache", cache_facts),
        ("generation", generation_facts),
        ("score scales", score_scales),
        ("rotary modules", rotary_facts),
        ("rotary pairs", pair_facts),
        ("hidden states", hidden_state_facts),
        ("way to the logits", tail_facts),
        ("lens of norm and head", naive_lens_facts),
        ("recurrence", recurrence_facts),
        ("misread values", misread_facts),
        ("half precision", half_facts),
        ("epsilon of norms", epsilon_facts),
        ("norms inside sublayers", inner_norm_facts),
        ("expert weights", expert_facts),
        ("biases of experts", bias_of_experts_facts),
        ("slots of experts", slot_facts),
        ("projections of mixers", mixer_facts),
        ("short convolutions", convolution_facts),
        ("weights that are passed over", passed_over),
        ("scaling of frequencies", scaling_facts),
        ("matrices of MLPs", neuron_facts),
        ("biases of last projections", bias_facts),
        ("loss that balances experts", balancing_facts),
        ("positions after an image", image_positions),
        ("names in files", file_names),
        ("gradients", gradient_facts),
        ("other calls", calling_facts),
    ):
        try:
            found += measure(run)
        except Exception as error:
            if os.environ.get(STRICT):
                raise
            found.append(not_measured(label, error))
    return found


def not_measured(label: str, error: Exception) -> Fact:
    return Fact(
        name=f"not_measured_{label.replace(' ', '_')}",
        label=f"Not measured: {label}",
        value=0,
        statement=f"The {label} could not be measured: {in_words(error)}.",
    )


def parameters(run: Run) -> Fact:
    count = sum(parameter.numel() for parameter in run.model._module.parameters())
    statement = f"The checkpoint has {count:,} parameters, tied ones counted once."
    return Fact(name="parameters", label="Parameters", value=count, statement=statement)


def stream_width(run: Run) -> list[Fact]:
    """How wide what blocks pass on is, where that is not the hidden size: several streams side by side, or blocks that
    work in another width than the embeddings.
    """
    leaving, hidden = run.text.get(0, "", "layer_output"), run.model.hidden_size
    if leaving is None or leaving.shape[-1] == hidden:
        return []
    width = leaving.shape[-1]
    wide, measured = f"What blocks pass on is {width} wide", {}
    streams = hyper_connections(run).measured.get("streams")
    if isinstance(streams, int) and streams * hidden == width:
        measured = {"streams": streams}
        said = f"{wide}: {streams} streams side by side, each as wide as `hidden_size`, {hidden}"
    else:
        said = wide
        for what, value in (
            ("token embeddings are", "token_embeddings"),
            ("what the head reads is", "final_norm_output"),
        ):
            read = run.root(value)
            if read is not None and read.shape[-1] != width:
                said += f"; {what} {read.shape[-1]} wide"
                measured[value] = read.shape[-1]
    label = "Width of the stream"
    return [Fact(name="stream_width", label=label, value=width, measured=measured, statement=f"{said}.")]
