"""Both functions on the twins: a prompt with a cache, and one token more."""

from __future__ import annotations

import contextlib
import inspect
import platform
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import torch
from transformers import DynamicCache

from probe.checkpoints import Target, factory, load, targets
from probe.derive.kernels import stand_in
from probe.experiments.recurrence.recurrence_code import named_in
from probe.experiments.recurrence.stepping import CACHES
from probe.kernels.compare import Beside, Function, Theirs, words
from probe.kernels.fetch import Fetched, fetch
from probe.schema import Provenance
from probe.schema.kernels import Comparison, KernelResults, Ran

PACKAGES = ("causal_conv1d", "fla", "mamba_ssm", "triton")
"""Those whose versions are kept, by the name they are imported by."""

Fetch = Callable[[str, str], Fetched]


def twin(target: Target, device: str = "cpu", fetch: Fetch = fetch) -> list[Comparison]:
    """What was found of each function of a twin in whose place transformers may run another package's.

    Args:
        device: where the twin and the other package's functions run.
        fetch: gives the package's function.
    """
    module: Any = load(target, device=device).module
    watched = []
    for function in functions(module):
        held = stand_in(function)
        assert held is not None
        found = fetch(held.package, held.function)
        ran: Ran = "compiled" if found.launches else "cuda" if device == "cuda" else "interpreter"
        kernel = Theirs(found.function, found.reason, ran, found.launches)
        watched.append(Beside(function, kernel, Theirs(found.reference)))
    if not watched:
        return []
    with contextlib.ExitStack() as stack, torch.no_grad(), _full_float32():
        for beside in watched:
            stack.enter_context(beside.watching())
        stopped = None
        try:
            _prompt_and_step(module, watched)
        except Exception as error:
            stopped = f"the twin's own forward stopped with an error ({words(error)})"
    return [comparison for beside in watched for comparison in beside.found(stopped)]


def functions(module: torch.nn.Module) -> list[Function]:
    """The functions that forwards of the model name and in whose place another package's may run, by name."""
    found: dict[str, Function] = {}
    for each in {type(part): part for part in module.modules()}.values():
        for function in named_in(each):
            if stand_in(function) is not None:
                found.setdefault(function.__name__, function)
    return [found[name] for name in sorted(found)]


def _full_float32() -> contextlib.AbstractContextManager[None]:
    """PyTorch's convolutions keep all bits of float32 meanwhile: by default a CUDA device drops 13 of them (TF32)."""
    cudnn = torch.backends.cudnn
    return cudnn.flags(cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic, allow_tf32=False)


def _prompt_and_step(module: Any, watched: Iterable[Beside]) -> None:
    ids = factory.default_inputs(module)["input_ids"].to(module.device)
    takes = inspect.signature(module.forward).parameters
    name = next(name for name in CACHES if name in takes)
    cache = DynamicCache(config=module.config.get_text_config(decoder=True))
    module(input_ids=ids, use_cache=True, **{name: cache})
    for beside in watched:
        beside.during = "step"
    module(input_ids=ids[:, -1:], use_cache=True, **{name: cache})


def twins(family: str) -> list[Target]:
    """The tiny twins of a family, which run here."""
    return [target for target in targets(family) if target.kind == "tiny"]


def header(device: str) -> dict[str, Any]:
    """The versions and the device of a run, as the file keeps them."""
    brought_by = metadata.packages_distributions()
    packages = {name: metadata.version(brought_by[name][0]) for name in PACKAGES if name in brought_by}
    versions = {name: metadata.version(name).partition("+")[0] for name in ("torch", "transformers", "nnsight")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "provenance": Provenance(**versions, device=device, python=python),
        "device": torch.cuda.get_device_name() if device == "cuda" else None,
        "packages": packages,
    }


def results(families: dict[str, dict[str, list[Comparison]]], device: str) -> KernelResults:
    """The file's content; twins without such a function are left out."""
    some = {family: {twin: found for twin, found in twins.items() if found} for family, twins in families.items()}
    return KernelResults(**header(device), families={family: twins for family, twins in some.items() if twins})
