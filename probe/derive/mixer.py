"""The values inside a recurrent mixer, located by what they are.

The function that runs the recurrence takes queries, keys and values, or x, B and C, with step sizes, decays and gates:
its arguments are the values, by its parameters' names. The short convolution's input and output stand around it, what
gates the result is found by what the output projection takes, and the states are those that the function starts from,
passes through and ends with.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from . import convolution, lightning, states
from .declare import Declared, HostDraft
from .find import location, spelled
from .gates import Gated, gate
from .kernels import Call, recurrence
from .mixer_words import FEEDS_MORE, WORDS, layouts
from .modules import close, entering
from .placing import called, each_head, only_in_pytorch, put, refuse
from .sites import Recording, Site


def describe(model: torch.nn.Module, recording: Recording, host: HostDraft, width: int) -> None:
    """Fill in a mixer's values.

    Args:
        host: the mixer.
        width: of the stream, which its output projection gives.
    """
    taken = entering(recording, host.path)
    if taken is None or taken.tensor.ndim != 3:
        return
    seq = int(taken.tensor.shape[1])
    call = recurrence(model, recording, host.path)
    premix = _premix(recording, host, _projection(model, recording, host.path, width))
    convolved = convolution.describe(model, recording, host, seq)
    if call is not None:
        host.recurrence = call.kind
        _arguments(recording, host, call)
        result = _result(recording, host, call)
        states.describe(recording, host, call, seq)
    else:
        result = lightning.describe(model, recording, host)
        if result is None and convolved is not None:
            result = convolution.alone(recording, host, convolved)
    if premix is not None and "mixer_gate" not in host.values:
        found = None if result is None else gate(model, recording, host.path, result, premix.tensor)
        if found is not None:
            _gate(recording, host, found)
    if call is not None and call.kind == "lru":
        _linear_unit(recording, host, call)
    if call is not None:
        _conditions(host, call)


def _conditions(host: HostDraft, call: Call) -> None:
    """What is read inside the code that a wrapper chose is there only where that code runs."""
    for name, declared in host.values.items():
        if declared.at is not None and ".source.implementation_" in declared.at:
            host.values[name] = replace(declared, reason=only_in_pytorch(call, name))


def _projection(model: torch.nn.Module, recording: Recording, path: str, width: int) -> str | None:
    """The last linear layer inside that gives the stream's width."""
    given = [site for site in recording.below(path) if not site.steps and site.side == "output" and site.module != path]
    linear = [site for site in given if isinstance(model.get_submodule(site.module), torch.nn.Linear)]
    fitting = [site for site in linear if site.tensor.shape[-1] == width and recording.once(site)]
    return max(fitting, key=lambda site: site.order).module if fitting else None


def _premix(recording: Recording, host: HostDraft, projection: str | None) -> Site | None:
    taken = entering(recording, projection) if projection is not None else None
    if taken is None or projection is None or taken.tensor.ndim != 3:
        return None
    host.values["attention_premix"] = Declared("Channels", location(taken, host.path), WORDS["attention_premix"])
    native = projection.removeprefix(f"{host.path}.")
    if spelled(native) == native:
        host.aliases[native] = "o_proj"
    return taken


def _arguments(recording: Recording, host: HostDraft, call: Call) -> None:
    main = next(iter(call.arguments.values()))[0].tensor
    for parameter, (name, layout, order) in layouts(call.kind, call.runs, main.ndim).items():
        tensors = [t.permute(order) if order else t for t in call.tensors(parameter)]
        if not tensors:
            continue
        if name == "mixer_decay" and tensors[0].ndim == 4:
            layout = "MixerChannelGates"
        if call.runs == 1:
            put(recording, host, name, layout, tensors[0], [call.arguments[parameter][0]])
            continue
        value = torch.stack(tensors, 2)
        before = [s for s in recording.below(host.path) if s.order < call.first.order and s.tensor.ndim == 4]
        rows_first = [site for site in before if site.tensor.shape[0] == value.shape[0]]
        note = f", of all {call.runs} heads{FEEDS_MORE if name == 'mixer_x' else ''}"
        if not put(recording, host, name, layout, value, rows_first, note):
            each_head(host, name, layout, call.arguments[parameter][0], call)
    if call.kind == "scan":
        _steps(recording, host, call)


def _steps(recording: Recording, host: HostDraft, call: Call) -> None:
    """The step size as it is used: what the softplus inside gives, within its limits; and the log decay."""
    inner = [site for site in call.inside(recording.below(host.path)) if site.side == "output"]
    layout = "Channels" if call.tensors("hidden_states")[0].ndim == 3 else "ScanSteps"
    raw = call.tensors("dt")[0]
    softened = next(
        (e for e in recording.inside(host.path) if e.name == "softplus" and e.output.shape == raw.shape), None
    )
    if softened is None or call.fused:
        said = only_in_pytorch(call, "mixer_step_size") if call.fused else None
        refuse(host, "mixer_step_size", layout, said or f"{call.name} forms it in no named place.")
        return
    used = softened.output
    for site in inner:
        held = site.tensor
        if held.shape == raw.shape and torch.equal(held, softened.output.clamp(held.min(), held.max())):
            used = held
    named = [site for site in inner if site.called is None]
    if call.runs > 1:
        for site in named:
            if torch.equal(site.tensor, used):
                each_head(host, "mixer_step_size", "ScanHeads", site, call)
        return
    put(recording, host, "mixer_step_size", layout, used.transpose(1, 2) if layout == "Channels" else used, named)
    rate = call.tensors("A")[0]
    if layout == "ScanSteps":
        put(recording, host, "mixer_decay", layout, rate.to(used.dtype) * used.float(), inner)


RESULTS = {
    "delta": ("MixerHeads", (0, 1, 2, 3)),
    "mlstm": ("MixerHeads", (0, 2, 1, 3)),
    "wkv": ("Channels", (0, 1, 2)),
    "lru": ("Channels", (0, 1, 2)),
}
"""Layout of what a recurrence gives, and the order of its axes that gives the layout's; a scan's goes by its heads."""


def _result(recording: Recording, host: HostDraft, call: Call) -> torch.Tensor | None:
    """What the recurrence gives before norm and gate: the function's result, or, of one that gates, what it gates."""
    if call.kind in RESULTS:
        layout, order = RESULTS[call.kind]
    elif call.tensors("hidden_states")[0].ndim == 4:
        layout, order = "ScanHeads", (0, 1, 2, 3)
    else:
        layout, order = "Channels", (0, 2, 1)
    result = call.results[0]
    gates = call.tensors("z")
    if not gates:
        tensor = result[0].tensor.permute(order)
        put(recording, host, "recurrence_output", layout, tensor, [result[0]], called(call))
        return tensor
    gated = torch.nn.functional.silu(gates[0])
    for site in reversed(call.inside(recording.below(host.path))):
        held = site.tensor
        if site.side == "output" and held.shape == gated.shape and site.called is None:
            if close(held * gated, result[0].tensor):
                if call.runs > 1:
                    each_head(host, "recurrence_output", "ScanHeads", site, call)
                    return None
                put(recording, host, "recurrence_output", layout, held.permute(order), [site], called(call))
                return held.permute(order)
    said = only_in_pytorch(call, "recurrence_output") if call.fused else None
    said = said or f"{call.name} gates its result itself, in no place that has a name."
    refuse(host, "recurrence_output", layout, said)
    return None


def _gate(recording: Recording, host: HostDraft, found: Gated) -> None:
    sites = recording.below(host.path)
    note = f" ({found.activation})" if found.activation else ""
    apart = [site for site in sites if site.tensor.ndim == 4]
    if found.by_head is not None and put(recording, host, "mixer_gate", "MixerHeads", found.by_head, apart, note):
        return
    together = [site for site in sites if site.tensor.ndim == 3]
    if not put(recording, host, "mixer_gate", "Channels", found.flat, together, note):
        refuse(host, "mixer_gate", "Channels", "No place that is passed once holds what the result is gated with.")


def _linear_unit(recording: Recording, host: HostDraft, call: Call) -> None:
    """Log decay and input gate of a linear recurrent unit, by what the scan takes."""
    (decay,), (entering_it,) = call.tensors("recurrent_gate"), call.tensors("hidden_states")
    sites = [s for s in recording.below(host.path) if s.module == call.first.module and s.order < call.first.order]
    for site in sites:
        if site.side == "output" and site.tensor.shape == decay.shape and torch.equal(site.tensor.exp(), decay):
            put(recording, host, "mixer_decay", "Channels", site.tensor, [site])
    for event in recording.inside(call.first.module):
        if (
            event.name == "sigmoid"
            and event.output.shape == entering_it.shape
            and _gates(event.output, entering_it, sites)
        ):
            put(recording, host, "mixer_input_gate", "Channels", event.inputs[0], sites, " (sigmoid)")


def _gates(gate_of: torch.Tensor, entering_it: torch.Tensor, sites: list[Site]) -> bool:
    """Whether the first token's input, which no decay normalizes, is the module's input times the gate."""
    given = sites[0].tensor
    return close(given[:, 0] * gate_of[:, 0], entering_it[:, 0])
