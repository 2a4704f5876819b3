"""What `output_hidden_states=True` returns, told by the streams between the blocks."""

from __future__ import annotations

import torch

from ...measure.run import Run
from ...schema import Fact
from ...standard.stack import same
from ..answers import tolerance


def hidden_state_facts(run: Run) -> list[Fact]:
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
        bare = normed is not None and _equal(run, states[-1], normed)
        tail = f"the last one is the last block's output, {'which the head reads' if bare else 'before the final norm'}"
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
            measured={"k": [*equal]} | ({} if place is None else {"last_block": place}),
            statement=f"`hidden_states[k]` equals `layers[k-1].layer_output` for {_span(equal)}; {tail}.",
        ),
        Fact(
            name="last_hidden_state_is_normed",
            label="hidden_states[-1] is after the final norm",
            value=last,
            statement=_normed(last, normed is not None and _equal(run, states[-1], normed)),
        ),
        *_last_stream(place, len(states)),
    ]


def _normed(last: bool, same_as_normed: bool) -> str:
    if last or not same_as_normed:
        return f"`hidden_states[-1]` {'is' if last else 'is not'} `final_norm_output`."
    return "No norm stands before the head: `hidden_states[-1]`, the last block's output, is what the head reads."


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
