"""Pairs for what a recurrent mixer's state is and how a step carries it on."""

from __future__ import annotations

from typing import Any

from tests.experiments.pairs.build import Mutant, Pair, Twin
from tests.experiments.pairs.mutations import blocks


def mixer_class(module: Any) -> str:
    """The class names of what the blocks hold, in a row."""
    return " ".join(type(part).__name__ for block in blocks(module) for part in block.children())


def selects_nothing(module: Any) -> None:
    """Selective scan: the input no longer decides how long a step is."""
    for block in blocks(module):
        block.mixer.dt_proj.weight.zero_()


def one_number_a_channel(module: Any) -> None:
    """Selective scan: all of a channel's state fades alike."""
    for block in blocks(module):
        block.mixer.A_log.copy_(block.mixer.A_log.mean(1, keepdim=True).expand_as(block.mixer.A_log))


def fixed_steps(module: Any) -> None:
    """State-space dual: the part of the input projection that decides the steps is silent."""
    for block in blocks(module):
        block.mixer.in_proj.weight[-block.mixer.num_heads :] = 0


def takes_nothing_off(module: Any) -> None:
    """Delta rule: what a step takes off is multiplied by almost zero."""
    for block in blocks(module):
        if hasattr(block, "linear_attn"):
            block.linear_attn.b_proj.weight.zero_()
            block.linear_attn.b_proj.register_forward_hook(lambda _, __, out: out - 40)


def renamed(module: Any) -> None:
    for block in blocks(module):
        if hasattr(block, "conv"):
            block.conv.__class__ = type("MambaMixer", (type(block.conv),), {})


SILENT = Twin("mamba", mutate=selects_nothing)

PAIRS = (
    Pair(
        "mamba1",
        yes=Twin("mamba"),
        no=SILENT,
        mutants=(
            Mutant(
                SILENT,
                lambda module: "MambaMixer" in mixer_class(module),
                "no",
                "a MambaMixer whose input decides nothing",
            ),
        ),
    ),
    Pair(
        "mamba2",
        yes=Twin("mamba2"),
        no=Twin("mamba2", mutate=fixed_steps),
        mutants=(
            Mutant(
                Twin("mamba2", mutate=fixed_steps),
                lambda module: "Mamba2Mixer" in mixer_class(module),
                "no",
                "a Mamba2Mixer whose input decides nothing",
            ),
            Mutant(
                Twin("mamba", mutate=one_number_a_channel),
                lambda module: "Mamba2Mixer" in mixer_class(module),
                "yes",
                "a MambaMixer with one number for all of a channel",
            ),
        ),
    ),
    Pair(
        "delta-rule",
        yes=Twin("olmo_hybrid"),
        no=Twin("olmo_hybrid", mutate=takes_nothing_off),
        mutants=(
            Mutant(
                Twin("olmo_hybrid", mutate=takes_nothing_off),
                lambda module: "DeltaNet" in mixer_class(module),
                "no",
                "a DeltaNet that takes nothing off",
            ),
        ),
    ),
    Pair(
        "fixed-decay",
        yes=SILENT,
        no=Twin("mamba"),
        mutants=(
            Mutant(
                SILENT,
                lambda module: "Lightning" in mixer_class(module),
                "yes",
                "a MambaMixer whose input decides nothing",
            ),
        ),
    ),
    Pair(
        "convolution-mixers",
        yes=Twin("lfm2"),
        no=Twin("mamba"),
        mutants=(
            Mutant(
                Twin("lfm2", mutate=renamed),
                lambda module: "Conv" in mixer_class(module),
                "yes",
                "a convolution of another class name",
            ),
        ),
    ),
)
