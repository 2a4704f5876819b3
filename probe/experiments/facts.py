"""Facts: measured numbers of a checkpoint that are neither an identity nor a quirk."""

from __future__ import annotations

import os

import torch

from ..measure.rounding import digits, one_digit
from ..measure.run import Run, same
from ..schema import Fact
from .answers import NO_ATTENTION, tolerance
from .base import STRICT, in_words, some
from .cache import cache_facts
from .expert_weights import expert_facts
from .extra import attentions, layer_types
from .generation import generation_facts
from .half_facts import half_facts
from .misread import misread_facts
from .mixer_projections import mixer_facts
from .norm_epsilon import epsilon_facts
from .padding import PADDING, REFUSED, batch, inputs, padding_facts, unpadded
from .passed_over import passed_over
from .recurrence_code import recurrence_facts
from .rotary_modules import rotary_facts
from .scores import fits, seen
from .tail import tail_facts
from .wiring import hyper_connections


def facts(run: Run) -> list[Fact]:
    """The measured facts of one run: parameters, kernels compared, the cache, the scale of scores, hidden states. What
    raises is told as a fact of its own.
    """
    found = [parameters(run), *stream_width(run)]
    for label, measure in (
        ("kernels", kernels),
        ("padding", padding_facts),
        ("cache", cache_facts),
        ("generation", generation_facts),
        ("score scales", score_scales),
        ("rotary modules", rotary_facts),
        ("hidden states", hidden_states),
        ("way to the logits", tail_facts),
        ("recurrence", recurrence_facts),
        ("misread values", misread_facts),
        ("half precision", half_facts),
        ("norms' roots", epsilon_facts),
        ("expert weights", expert_facts),
        ("mixers' projections", mixer_facts),
        ("weights that are passed over", passed_over),
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
    wide = f"What blocks pass on is {width} wide"
    streams = hyper_connections(run).measured.get("streams")
    if isinstance(streams, int) and streams * hidden == width:
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
    return [Fact(name="stream_width", label="Width of the stream", value=width, statement=f"{said}.")]


def kernels(run: Run) -> list[Fact]:
    """Largest difference of a logit between eager attention and sdpa: on the prompt, and on two prompts padded on
    the left. A class that takes no sdpa has nothing to compare, and says so.
    """
    dtype = str(run.dtype).removeprefix("torch.")
    try:
        run.model._module.get_correct_attn_implementation("sdpa")
        plain = one_digit(float((unpadded(run).logits - run.root("logits")).abs().max()))
    except ValueError:
        return [_alone(run, "refuses sdpa")]
    except (RuntimeError, AttributeError, TypeError, IndexError) as error:
        return [_alone(run, f"stops under sdpa with {type(error).__name__}")]
    try:
        apart = _apart(run)
    except REFUSED:
        return [_plain(plain, dtype)]
    if apart is None:
        return [_plain(plain, dtype)]
    real, padding = (one_digit(number) for number in apart)
    return [
        _plain(plain, dtype),
        Fact(
            name="eager_sdpa_padded",
            label="Eager against sdpa, padded batch",
            value=real,
            statement=(
                "In a batch of two prompts, the shorter padded on the left, "
                f"logits at real tokens differ by at most {real:g} ({dtype})."
            ),
        ),
        Fact(
            name="eager_sdpa_padding",
            label="Eager against sdpa, at padding",
            value=padding,
            statement=(
                f"In the same batch the logits at the padded positions themselves, {PADDING} at the start of the "
                "shorter prompt, "
                f"differ by at most {padding:g}: such a query has no key to see, and what it then gives is up to "
                "the kernel."
                if padding > 100 * max(real, 1e-6)
                else f"At the {PADDING} padded positions at the start of the shorter prompt they differ by at most "
                f"{padding:g}."
            ),
        ),
    ]


def _plain(plain: float, dtype: str) -> Fact:
    return Fact(
        name="eager_sdpa",
        label="Eager against sdpa",
        value=plain,
        statement=f"On the prompt, logits under eager attention and sdpa differ by at most {plain:g} ({dtype}).",
    )


def _alone(run: Run, how: str) -> Fact:
    """That only eager runs; where no block has an attention, that there is nothing to choose."""
    statement = f"{type(run.model._module).__name__} {how}: there is no other kernel to compare eager with."
    if not any(attentions(run)):
        statement = f"{NO_ATTENTION[:-1]}, so the setting `attn` changes nothing; the class {how}."
    return Fact(name="takes_sdpa", label="Takes sdpa", value=0, statement=statement)


def _apart(run: Run) -> tuple[float, float] | None:
    """Largest difference of the logits under eager and sdpa, of a whole prompt and one padded on the left, where the
    mask is one and where it is zero; None where the logits stand at other positions than the tokens.
    """
    difference = (batch(run, "eager").logits - batch(run, "sdpa").logits)[:2].abs().amax(-1)
    real = inputs(run)["attention_mask"][:2].bool()
    if difference.shape != real.shape:
        return None
    return float(difference[real].max()), float(difference[~real].nan_to_num(torch.inf).max())


def score_scales(run: Run) -> list[Fact]:
    """The factor between q·k and the scores, by kind of block where they differ."""
    scales: dict[str, set[float]] = {}
    fitting = []
    for index, (kind, fit) in enumerate(zip(layer_types(run), fits(run), strict=True)):
        if fit is not None and fit.kind != "other":
            scales.setdefault(kind, set()).add(digits(fit.scale))
            fitting.append(index)
    every = set().union(*scales.values())
    if len(every) == 1:
        value = every.pop()
        return [
            Fact(
                name="score_scale",
                label="Scale of the scores",
                value=value,
                statement=f"Scores are {_factor(run, value)} on {some(fitting, len(run.text))}.",
            )
        ]
    return [
        Fact(
            name=f"score_scale_{kind}",
            label=f"Scale of the scores, {kind.replace('_', ' ')}",
            value=value,
            statement=f"Scores are {_factor(run, value)} on blocks of {kind.replace('_', ' ')}.",
        )
        for kind, found in scales.items()
        for value in sorted(found)
    ]


def _factor(run: Run, value: float) -> str:
    if abs(value - 1) < 1e-3:
        return "q·k as they are"
    widths = {block.head_dim for block in seen(run) if block is not None}
    if len(widths) == 1 and abs(value * next(iter(widths)) ** 0.5 - 1) < 1e-3:
        return f"q·k times {value:g}, which is 1/√{next(iter(widths))}, the root of the heads' width,"
    return f"q·k times {value:g}"


def hidden_states(run: Run) -> list[Fact]:
    """What `output_hidden_states=True` returns, against the stream between the blocks as it was read."""
    with torch.no_grad():
        out = run.model._module(**run.inputs, use_cache=False, output_hidden_states=True)
    states = getattr(out, "hidden_states", None)
    blocks = len(run.text)
    if not states:
        return [
            Fact(
                name="hidden_states",
                label="Hidden states returned",
                value=0,
                statement=f"`output_hidden_states=True` returns none for the {blocks} blocks.",
            )
        ]
    outputs = [run.text.get(index, "", "layer_output") for index in range(blocks)]
    equal = [
        k
        for k in range(1, len(states))
        if (out := outputs[k - 1] if k <= blocks else None) is not None and _equal(run, states[k], out)
    ]
    entering = run.text.get(0, "", "layer_input")
    first = entering is not None and _equal(run, states[0], entering)
    normed = run.root("final_norm_output")
    last = normed is not None and _equal(run, states[-1], normed) and len(states) - 1 not in equal
    final = outputs[-1]
    place = next((k for k in reversed(range(len(states))) if final is not None and _equal(run, states[k], final)), None)
    tail = "the last one is neither the last block's output nor the final norm's"
    if last:
        where = "not among them" if place is None else f"number {place}"
        tail = f"the last one is the final norm's output, and the last block's is {where}"
    elif len(states) - 1 == blocks in equal:
        tail = "the last one is the last block's output, before the final norm"
    return [
        Fact(
            name="hidden_states",
            label="Hidden states returned",
            value=len(states),
            statement=(
                f"`output_hidden_states=True` returns {len(states)} tensors for {blocks} blocks; "
                f"the first {'is' if first else 'is not'} what enters block 0."
            ),
        ),
        Fact(
            name="hidden_states_of_blocks",
            label="hidden_states[k] is layers[k-1].layer_output",
            value=len(equal),
            statement=f"`hidden_states[k]` equals `layers[k-1].layer_output` for {_span(equal)}; {tail}.",
        ),
        Fact(
            name="last_hidden_state_is_normed",
            label="hidden_states[-1] is after the final norm",
            value=int(last),
            statement=f"`hidden_states[-1]` {'is' if last else 'is not'} `final_norm_output`.",
        ),
        *_last_stream(place, len(states)),
    ]


def _last_stream(place: int | None, states: int) -> list[Fact]:
    """Which of the returned states the last block's output is, counted from the end, where it is one of the last two:
    further up stands a pass of a block that runs several times.
    """
    if place is None or place < states - 2:
        return []
    return [
        Fact(
            name="last_stream_in_hidden_states",
            label="The last block's output among the hidden states",
            value=place - states,
            statement=f"`hidden_states[{place - states}]` is the last block's `layer_output`.",
        )
    ]


def _span(places: list[int]) -> str:
    if not places:
        return "no k"
    if places == list(range(places[0], places[-1] + 1)):
        return f"k = {places[0]} to {places[-1]}"
    return f"k in {places}"


def _equal(run: Run, state: torch.Tensor, value: torch.Tensor) -> bool:
    return state.shape == value.shape and same(state, value, tolerance(run))
