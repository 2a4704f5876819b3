"""The values inside a recurrent mixer, located by what they are.

The function that runs the recurrence takes queries, keys and values, or x, B and C, with step sizes, decays and gates:
its arguments are the values, by its parameters' names. The short convolution's input and output stand around it, what
gates the result is found by what the output projection takes, and the states are those that the function starts from,
passes through and ends with.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import lightning, states
from .declare import Declared, HostDraft
from .find import find, location, spelled
from .gates import Gated, gate
from .kernels import Call, convolutions, recurrence
from .mixer_words import FEEDS_MORE, WORDS, layouts
from .modules import entering
from .sites import Recording, Site

CLOSE = 1e-5


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
    _convolution(model, recording, host, seq)
    if call is not None:
        _arguments(recording, host, call)
        result = _result(recording, host, call, premix)
        states.describe(recording, host, call, seq)
    else:
        result = lightning.describe(model, recording, host)
        if result is None:
            result = _convolved(recording, host)
    if premix is not None and "mixer_gate" not in host.values:
        found = None if result is None else gate(model, recording, host.path, result, premix.tensor)
        if found is not None:
            _gate(recording, host, found)
    if call is not None and call.kind == "lru":
        _linear_unit(recording, host, call)


def put(
    recording: Recording,
    host: HostDraft,
    name: str,
    layout: str,
    tensor: torch.Tensor,
    sites: Iterable[Site],
    note: str = "",
    until: float = float("inf"),
) -> bool:
    """Declare a value at the site that holds it: a module's before an operation's, a call's before an assignment's.

    Args:
        tensor: in the axes of the layout.
        until: the last order at which the value still has an effect.
    """

    def prefer(site: Site) -> float:
        named = 2e9 if not site.steps else (1e9 if site.called is not None and site.order < until else 0)
        return named + (site.order if site.order < until else -site.order)

    found = find(recording, sites, tensor, layout, prefer=prefer)
    if found is not None:
        host.values[name] = Declared(layout, found.at(host.path), WORDS[name] + note, found.held)
    return found is not None


def refuse(host: HostDraft, name: str, layout: str, reason: str) -> None:
    host.values[name] = Declared(layout, None, WORDS[name], reason=reason)


def ran(call: Call) -> str:
    """Which code ran the recurrence, for a description."""
    return f"; {call.name} ran {'as a fused kernel' if call.fused else 'as plain PyTorch'}"


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


def _convolution(model: torch.nn.Module, recording: Recording, host: HostDraft, seq: int) -> None:
    """The short convolution: a function called with its weight, or a module."""
    calls = convolutions(model, recording, host.path)
    sites = recording.below(host.path)
    events = [event for event in recording.inside(host.path) if event.name == "conv1d"]
    if len(events) != 1:
        return
    (event,) = events
    note = f"; {calls[0].name} ran {'as a fused kernel' if calls[0].fused else 'as plain PyTorch'}" if calls else ""
    own = {(call.first.module, call.first.steps) for call in calls}
    if not calls:
        own.add((event.inside[-1], ()))
    ends = [site for site in sites if (site.module, site.steps) in own]
    given = next((site for site in ends if site.side == "inputs" and site.tensor.shape[-1] == seq), None)
    if given is not None:
        put(recording, host, "conv_input", "Channels", given.tensor.transpose(1, 2), [given], note)
    results = [site.tensor for site in ends if site.side == "output" and site.tensor.ndim == 3]
    results = [tensor[..., :seq].transpose(1, 2) for tensor in results]
    if results:
        plain = [site for site in ends if site.steps]
        after = [site for site in sites if site.order > event.order and site not in ends]
        if not put(recording, host, "conv_output", "Channels", results[-1], plain, note):
            put(recording, host, "conv_output", "Channels", results[-1], after, note)


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
        before = [s for s in recording.below(host.path) if s.order < call.first.order and s.tensor.ndim == 4]
        note = f", of all {call.runs} heads{FEEDS_MORE if name == 'mixer_x' else ''}"
        if not put(recording, host, name, layout, torch.stack(tensors, 2), before, note):
            refuse(
                host, name, layout, f"{call.name} runs once for each of {call.runs} heads, and no place holds them all."
            )
    if call.kind == "scan":
        _steps(recording, host, call)


def _steps(recording: Recording, host: HostDraft, call: Call) -> None:
    """The step size as it is used: what the softplus inside gives, within its limits; and the log decay."""
    inner = [site for site in call.inside(recording.below(host.path)) if site.side == "output"]
    layout = {3: "Channels"}.get(call.tensors("hidden_states")[0].ndim, "ScanSteps")
    if call.runs > 1:
        refuse(host, "mixer_step_size", "ScanHeads", _each_head(call))
        return
    (raw,) = call.tensors("dt")
    softened = next(
        (e for e in recording.inside(host.path) if e.name == "softplus" and e.output.shape == raw.shape), None
    )
    if softened is None or call.fused:
        refuse(host, "mixer_step_size", layout, f"{call.name} ran as a fused kernel, which forms it in no named place.")
        return
    used = softened.output
    for site in inner:
        held = site.tensor
        if held.shape == raw.shape and torch.equal(held, softened.output.clamp(held.min(), held.max())):
            used = held
    named = [site for site in inner if site.called is None]
    put(recording, host, "mixer_step_size", layout, used.transpose(1, 2) if layout == "Channels" else used, named)
    rate = call.tensors("A")[0]
    if layout == "ScanSteps":
        put(recording, host, "mixer_decay", layout, rate.to(used.dtype) * used.float(), inner)


def _each_head(call: Call) -> str:
    return f"{call.name} runs once for each of {call.runs} heads, and its inside has a place for one at a time."


def _result(recording: Recording, host: HostDraft, call: Call, premix: Site | None) -> torch.Tensor | None:
    """What the recurrence gives before norm and gate: the function's result, or, of one that gates, what it gates."""
    layout, order = {
        "delta": ("MixerHeads", (0, 1, 2, 3)),
        "mlstm": ("MixerHeads", (0, 2, 1, 3)),
        "wkv": ("Channels", (0, 1, 2)),
        "lru": ("Channels", (0, 1, 2)),
    }.get(
        call.kind,
        ("ScanHeads", (0, 1, 2, 3))
        if call.tensors("hidden_states") and call.tensors("hidden_states")[0].ndim == 4
        else ("Channels", (0, 2, 1)),
    )
    result = call.results[0]
    gates = call.tensors("z")
    if not gates:
        tensor = result[0].tensor.permute(order)
        put(recording, host, "recurrence_output", layout, tensor, [result[0]], ran(call))
        return tensor
    if call.runs > 1:
        refuse(host, "recurrence_output", layout, _each_head(call))
        return None
    gated = gates[0] * torch.sigmoid(gates[0])
    scale = float(result[0].tensor.abs().max())
    for site in reversed(call.inside(recording.below(host.path))):
        held = site.tensor
        if site.side == "output" and held.shape == gated.shape and recording.once(site):
            if float((held * gated - result[0].tensor).abs().max()) <= CLOSE * scale:
                put(recording, host, "recurrence_output", layout, held.permute(order), [site], ran(call))
                return held.permute(order)
    refuse(host, "recurrence_output", layout, f"{call.name} gates its result itself, in no place that has a name.")
    return None


def _convolved(recording: Recording, host: HostDraft) -> torch.Tensor | None:
    """Of a mixer without a recurrence: the convolution's output, and the two factors of its input."""
    sites = recording.below(host.path)
    if "conv_output" not in host.values:
        return None
    event = next(event for event in recording.inside(host.path) if event.name == "conv1d")
    entering_it = event.inputs[0]
    before = [site for site in sites if site.order < event.order and site.tensor.shape == entering_it.shape]
    distinct = [site for site in before if site.side == "output"]
    for first, left in enumerate(distinct):
        for right in distinct[first + 1 :]:
            if torch.equal(left.tensor * right.tensor, entering_it):
                put(recording, host, "mixer_input_gate", "Channels", left.tensor.transpose(1, 2), [left])
                put(recording, host, "mixer_x", "Channels", right.tensor.transpose(1, 2), [right])
                return _causal(event.output, int(entering_it.shape[-1])).transpose(1, 2)
    return None


def _causal(output: torch.Tensor, seq: int) -> torch.Tensor:
    return output[..., :seq]


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
    return torch.allclose(given[:, 0] * gate_of[:, 0], entering_it[:, 0], rtol=1e-5, atol=1e-7)
