"""How the outputs of a mixer's linear layers are split: which of its values stands in which places.

One forward keeps what the linear layers of the mixers give. A value of the same run stands in the places whose numbers
are its own, position by position; what enters a convolution is told by the values that its output is split into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby, permutations
from typing import Any

import torch

from ...instruments.extra import part
from ...instruments.rows import removed
from ...measure.native import native_path
from ...measure.run import Run
from ...numerals import unit
from ...schema import Fact

NAMED = ("mixer_gate", "mixer_input_gate", "mixer_x", "mixer_b", "mixer_c", "mixer_dt", "mixer_beta")
"""Values that may stand in a projection's output as they are."""

SPLITS = (("mixer_x", "mixer_b", "mixer_c"), ("attention_queries", "attention_keys", "attention_values"))
"""Values that a convolution's output may be split into."""

CLOSE = 1e-6
"""How far numbers may be apart to be the same, relative to the projection's largest."""

REST = "others"
"""What is no value that was read."""

MOST = 8
"""Most parts that a sentence lists."""

FACTORS = ", each times a number"
"""What is told where values were found only when every channel was brought to length one."""

Named = dict[str, torch.Tensor]
"""Values by name, each ``[seq, width]``."""

Part = tuple[str, int]
"""A value, or what is none, and in how many places in a row it stands."""


def mixer_facts(run: Run) -> list[Fact]:
    """One for each linear layer of each kind of mixer in whose output several values stand."""
    facts: dict[tuple[str, str], Fact] = {}
    outputs = _outputs(run)
    for index, host, module in mixers(run):
        values = _values(run, index, host)
        for path, given in outputs.get(id(module), {}).items():
            key = (type(module).__name__, path)
            if key in facts:
                continue
            found, times = split(given, values), ""
            if not _several(found):
                found, times = split(_unit(given), {name: _unit(value) for name, value in values.items()}), FACTORS
            if _several(found):
                name = "mixer_split" if not facts else f"mixer_split_{len(facts)}"
                native = f"{native_path(run, index, module)}.{path}"
                said = f"What `{native}` gives is, side by side, what becomes {in_words(found)}"
                facts[key] = Fact(
                    name=name,
                    label="Parts of a mixer's projection",
                    value=len(found),
                    measured=_measured(native, found, bool(times)),
                    statement=f"{said}{times}.",
                )
    return [*facts.values()]


def _measured(path: str, parts: list[Part], times: bool) -> dict[str, Any]:
    """Where the projection is, what stands in its places and how wide; ``times``: each times a number."""
    return {
        "projection": path,
        "parts": [name for name, _ in parts],
        "widths": [width for _, width in parts],
        "times_a_number": times,
    }


def _several(parts: list[Part]) -> bool:
    return len({name for name, _ in parts} - {REST}) > 1


def _unit(rows: torch.Tensor) -> torch.Tensor:
    """Each column at length one, so that one and its multiple are alike."""
    return rows / rows.norm(dim=0, keepdim=True).clamp_min(1e-30)


def split(given: torch.Tensor, values: Named) -> list[Part]:
    """The parts of a projection's output ``[seq, width]``, in order, with the value that each belongs to."""
    owner: list[str] = [REST] * given.shape[-1]
    scale = float(given.abs().max())
    for name, value in values.items():
        apart = torch.cdist(given.T.double(), value.T.double(), p=torch.inf)
        for place in (apart <= CLOSE * scale).any(1).nonzero().flatten().tolist():
            if owner[place] == REST:
                owner[place] = name
    return [(name, len(list(same))) for name, same in groupby(owner)]


def in_words(parts: list[Part]) -> str:
    """The values with their widths, and how often where the same parts come again."""
    for period in range(1, len(parts)):
        if len(parts) % period == 0 and all(each == parts[place % period] for place, each in enumerate(parts)):
            return f"{_listed(parts[:period])}, {len(parts) // period} times over"
    return _listed(parts)


def _listed(parts: list[Part]) -> str:
    said = [
        f"`{name}` ({width})" if name != REST else f"{width} unnamed {unit(width, 'channels')}"
        for name, width in parts[:MOST]
    ]
    return ", ".join(said + ["…"] * (len(parts) > MOST))


def mixers(run: Run) -> Iterator[tuple[int, str, torch.nn.Module]]:
    for index, block in enumerate(run.text.contributions):
        for each in block:
            if each.term.kind == "mixer" and (envoy := part(run.text.envoys[index], each.host)) is not None:
                yield index, each.host, envoy._module


def _outputs(run: Run) -> dict[int, dict[str, torch.Tensor]]:
    """What the linear layers of the mixers give on the run's prompt, ``[seq, width]``, by mixer and path."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    with ExitStack() as stack, torch.no_grad():
        for _, _, module in mixers(run):
            for path, part in module.named_modules():
                if isinstance(part, torch.nn.Linear):
                    hook = part.register_forward_hook(_keeping(found.setdefault(id(module), {}), path))
                    stack.enter_context(removed(hook))
        if found or any(True for _ in mixers(run)):
            run.model._module(**run.inputs, use_cache=False)
    return found


def _keeping(store: dict[str, torch.Tensor], path: str) -> Callable[..., None]:
    def keep(_: torch.nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor) and output.ndim == 3 and len(output) == 1:
            store.setdefault(path, output[0].detach().float())

    return keep


def _values(run: Run, index: int, host: str) -> Named:
    """The mixer's values as channels ``[seq, width]``: those that enter the convolution by what its output is split
    into, where that is known, and those that stand beside it.
    """
    read = {name: _channels(run, index, host, name) for name in (*NAMED, *SPLITS[1], "conv_input", "conv_output")}
    known = {name: value for name, value in read.items() if value is not None}
    found: Named = {}
    entering, leaving = known.get("conv_input"), known.get("conv_output")
    if entering is not None and leaving is not None:
        found |= _entering(entering, leaving, known) or {"conv_input": entering}
    for name in NAMED:
        if name in known and name not in found:
            found[name] = known[name]
    return found


def _entering(entering: torch.Tensor, leaving: torch.Tensor, known: Named) -> Named:
    """What enters a convolution by the parts of what leaves it; nothing where these are not its parts."""
    for names in SPLITS:
        for order in permutations([name for name in names if name in known]):
            parts = [known[name] for name in order]
            if len(parts) < 2 or sum(part.shape[1] for part in parts) != leaving.shape[1]:
                continue
            if torch.allclose(torch.cat(parts, 1), leaving, atol=1e-5):
                widths = [part.shape[1] for part in parts]
                return dict(zip(order, entering.split(widths, 1), strict=True))
    return {}


def _channels(run: Run, index: int, host: str, name: str) -> torch.Tensor | None:
    value = run.text.get(index, host, name)
    seq = run.inputs["input_ids"].shape[-1]
    if value is None or len(value) != 1 or seq not in value.shape[1:]:
        return None
    return value[0].movedim(value.shape[1:].index(seq), 0).reshape(seq, -1)
