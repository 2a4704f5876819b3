"""Stand-ins for the side that needs torch: two families, records of a few lines, and faults on request.

The faults are asked for through the environment, so that they also reach subprocesses: ``FAKE_LOG`` names the file
that gets a line for each probe, ``FAKE_FAULT`` is ``CHECKPOINT=KIND`` with KIND one of ``mistake``, ``bug``,
``nap``, ``sleep``, ``death``, ``crash``, ``hog``, ``stop`` and ``dropped`` (a Ctrl-C that a library drops),
``FAKE_MARK`` is written into every record, and ``FAKE_NEW`` names the decoders that the stand-in for transformers'
list of classes has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe import registry, schema
from probe.errors import ProbeError

FAMILY = '''"""What {title} is."""
TITLE = "{title}"
CHECKPOINTS: tuple[str, ...] = ("org/{name}-big", "org/{name}-huge")
TWINS = {{"tiny": {{"config": "org__{name}-big"}}, "tiny-two": {{}}}}
'''


@dataclass(frozen=True)
class Target:
    family: str
    id: str
    kind: str = "tiny"
    path: Path | None = None


@dataclass
class Reading:
    host: str = "model.layers[2].self_attn"
    prompt: str = "In"
    attn: str = "eager"
    location: str = "self_attn.o_proj.output"
    read_at: str = "the output projection's output"
    shape: tuple[int, ...] = (1, 4, 8)
    dtype: str = "float32"
    stats: dict[str, float] = field(default_factory=lambda: {"mean": 0.25, "max": float("inf")})
    top: list[tuple[str, float]] = field(default_factory=list)


def plant(folder: Path) -> None:
    """Write the two family modules and a config."""
    (folder / "configs").mkdir(parents=True)
    for name, title in (("alpha_text", "Alpha"), ("beta_text", "Beta")):
        (folder / f"{name}.py").write_text(FAMILY.format(name=name, title=title))
        (folder / "configs" / f"org__{name}-big.json").write_text("{}")
    (folder / "_shared.py").write_text("")
    (folder / "__init__.py").write_text("")


def install(folder: Path) -> None:
    """Put the stand-ins where the command line looks for the real ones."""
    registry.FAMILIES = folder
    checkpoints: Any = types.ModuleType("probe.checkpoints")
    checkpoints.targets = targets
    checkpoints.missing = missing
    checkpoints.resolve = resolve
    checkpoints.require_device = require_device
    measure: Any = types.ModuleType("probe.measure")
    measure.read_value = read_value
    records: Any = types.ModuleType("probe.record")
    records.probe_target = probe_target
    factory: Any = types.ModuleType("probe.checkpoints.factory")
    factory.classes = lambda: dict.fromkeys(os.environ.get("FAKE_NEW", "").split(), "NewForCausalLM")
    sys.modules["probe.checkpoints"] = checkpoints
    sys.modules["probe.checkpoints.factory"] = factory
    sys.modules["probe.measure"] = measure
    sys.modules["probe.record"] = records


def targets(family: str) -> list[Target]:
    return [Target(family, "tiny"), Target(family, "tiny-two"), Target(family, f"org/{family}-big", "config")]


def missing(family: str) -> list[tuple[str, str]]:
    return [(f"org/{family}-huge", "No config is at hand.")]


def resolve(name: str, family: str | None = None, *, offline: bool = False) -> Target:
    if name == "nowhere":
        raise ProbeError("There is no checkpoint nowhere.")
    if name.startswith("/"):
        return Target(family or "beta_text", Path(name).name, "weights", Path(name))
    return Target(family or "beta_text", name, "weights" if name.startswith("org/") else "tiny")


def require_device(name: str) -> None:
    if name == "gpu":
        raise ProbeError("'gpu' is not a device of torch.")


def probe_target(target: Target, *, progress: Any, **options: Any) -> schema.Record:
    if log := os.environ.get("FAKE_LOG"):
        with open(log, "a") as stream:
            stream.write(f"{target.family} {target.id}\n")
    checkpoint, _, fault = os.environ.get("FAKE_FAULT", "").partition("=")
    progress("halfway", 0.5)
    if checkpoint == target.id:
        if fault == "mistake":
            raise ProbeError("The two readings differ.", status=3)
        if fault == "bug":
            raise ZeroDivisionError("a bug\nof two lines")
        if fault == "dropped":
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            raise ImportError("a module that is half imported")
        if fault == "nap":
            time.sleep(2)
        if fault == "sleep":
            time.sleep(60)
        if fault == "death":
            os._exit(9)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hog":
            held = [bytes(1 << 30) for _ in range(1 << 14)]
            raise AssertionError(f"{len(held)} GiB were given")
    return record(target, options)


def record(target: Target, options: dict[str, Any]) -> schema.Record:
    values = [
        schema.Value(
            host="model.layers[i].self_attn", module="Attention", name="attention_output", layout="Residual",
            dims=["batch"], description="what it adds", location="output", read_at="its output", hf=None, blocks=[0],
            reads=True, edits=True,
        )
    ]  # fmt: skip
    return schema.Record(
        version=1,
        family=target.family,
        about=schema.About(title="T", subtitle="S", module="m", doc=os.environ.get("FAKE_MARK", ""), checkpoints=[]),
        checkpoint=schema.Checkpoint(
            id=target.id, kind="weights" if target.kind == "weights" else "tiny", architecture="A", model_type="a",
            task="text-generation", digest="0",
            dtype=options["dtype"] or "float32", parameters=1, attn=options["attn"] or "sdpa", prompt="é",
        ),
        provenance=schema.Provenance(torch="1", transformers="1", nnsight="1", device="cpu", python="3"),
        sizes={}, config=[], layer_types=[], shapes=[], blocks=[], values=values, identities=[],
        experiments=[stopped()] if os.environ.get("FAKE_FAULT") == f"{target.id}=stop" else [], printout="",
    )  # fmt: skip


def stopped() -> schema.Experiment:
    """An experiment that raised."""
    return schema.Experiment(
        slug="qk-norm", label="Q", verdict="inconclusive", blocks=None, measured={"error": "ValueError"}, statement="S."
    )


def read_value(target: Target, value: str, *, layer: int | None, prompt: str | None, **options: Any) -> Reading:
    if layer == 7:
        raise ProbeError("Block 7 borrows its keys and values, so it has none of its own.")
    if value == "next_token_probs":
        return Reading(top=[(" Paris", 0.5), (" a", 0.25)])
    return Reading()
