"""Reading every value of every block in one forward pass, through nnsight.

A trace serves its workers in the order of the forward pass, and each worker must ask in that order. So there is one
worker a host and value name, which asks block after block; all of them run over the same forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ..errors import ProbeError
from ..values.hosts import Host
from ..values.value import StandardValue

if TYPE_CHECKING:
    from .transformer import StandardizedTransformer

Inputs = dict[str, Any]


class Key(NamedTuple):
    """A value on a host: ``Key("model.layers[i].mlp", 3, "mlp_output")``; block is None on the root and the tower."""

    host: str
    block: int | None
    name: str


Readings = dict[Key, Any]
Worker = Callable[[], None]


def run(model: StandardizedTransformer, inputs: Inputs, workers: Iterable[Worker]) -> None:
    """One forward of ``model`` on ``inputs``, with every worker reading and writing alongside."""
    with torch.no_grad(), model.trace() as tracer:
        with tracer.invoke(**inputs):
            pass
        for worker in workers:
            with tracer.invoke():
                worker()


def by_host_and_name(
    model: StandardizedTransformer, wanted: Callable[[Key], bool] | None = None
) -> dict[tuple[str, str], list[tuple[Key, Host]]]:
    """The values this load can give, grouped so that one worker can ask for each group in order."""
    groups: dict[tuple[str, str], list[tuple[Key, Host]]] = {}
    for label, block, host in model.hosts():
        for name, value in host.standard_values().items():
            key = Key(label, block, name)
            if (wanted is None or wanted(key)) and host.refusal(value) is None:
                groups.setdefault((label, name), []).append((key, host))
    return groups


def read_all(model: StandardizedTransformer, inputs: Inputs, wanted: Callable[[Key], bool] | None = None) -> Readings:
    """Every value this load can give, as it was when the model passed it: tensors are copies."""
    readings: Readings = {}

    def reader(hosts: list[tuple[Key, Host]]) -> Worker:
        def worker() -> None:
            for key, host in hosts:
                value = _read(key, host)
                readings[key] = value.detach().clone() if isinstance(value, torch.Tensor) else value

        return worker

    run(model, inputs, [reader(hosts) for hosts in by_host_and_name(model, wanted).values()])
    return readings


def _read(key: Key, host: Host) -> Any:
    try:
        return getattr(host, key.name)
    except ValueError as error:
        where = host.standard_values()[key.name].location
        at = key.host if key.block is None else key.host.replace("[i]", f"[{key.block}]")
        raise ProbeError(f"{at}.{key.name} is declared at {where}, but there {error}; correct the location.") from error


def declared(model: StandardizedTransformer) -> Iterable[tuple[Key, Host, StandardValue]]:
    """Every declared value of every host, whether this load can give it or not."""
    for label, block, host in model.hosts():
        for name, value in host.standard_values().items():
            yield Key(label, block, name), host, value


def repeat(inputs: Mapping[str, Any], rows: int) -> Inputs:
    """``inputs`` with every tensor repeated ``rows`` times along its first axis."""
    return {
        name: tensor.repeat(rows, *[1] * (tensor.ndim - 1)) if isinstance(tensor, torch.Tensor) else tensor
        for name, tensor in inputs.items()
    }
