"""The command ``kernels``: how far other packages' kernels are from the PyTorch code in whose place they run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from probe import jobs, registry, store
from probe.arguments import Parser
from probe.errors import ProbeError
from probe.kernels import interpreter
from probe.progress import Bar

NEEDED = {
    "causal_conv1d": "causal-conv1d",
    "einops": "einops",
    "fla": "fla-core",
    "mamba_ssm": "mamba-ssm",
    "ninja": "ninja",
    "triton": "triton",
}
"""Packages by the name they are imported by, and what is installed to have them."""

REGISTERS = "flash-linear-attention"
"""The other half of the package ``fla``, which has no kernels that transformers runs."""


def kernels(given: list[str]) -> int:
    """``python -m probe kernels``."""
    parser = Parser(
        prog="python -m probe kernels",
        description="Call the kernels that transformers runs in place of its PyTorch code, and that code, on the same "
        "arguments of the twins' mixers, and keep how far their numbers are apart.",
        epilog="They run on a CUDA device where there is one. Else those written in Triton run in its interpreter, and "
        "those in CUDA C++ are compiled for the CPU with a stand-in for CUDA's runtime: the kernels' code without a "
        "GPU's arithmetic.",
    )
    parser.add_argument(
        "families", nargs="*", metavar="FAMILY", help="default: all that have mixers; others stay as kept"
    )
    named = list(dict.fromkeys(parser.read(given).families))
    for name in named:
        registry.get(name)
    if lacking := [name for name in named if name not in mixing(named)]:
        raise ProbeError(
            f"No record of {' and '.join(lacking)} has a mixer, which is what the kernels compute: name another "
            "family, or none for all that have one."
        )
    _require_packages()
    jobs.prepare(jobs.Options(offline=True))
    os.environ["USE_HUB_KERNELS"] = "NO"  # else transformers wraps what is watched where `kernels` is installed
    with Bar(1, "loading the libraries") as start:
        on_cuda = jobs.heavy("torch").cuda.is_available()
        if not on_cuda:
            _require_compiler()
            interpreter.ask()
            interpreter.prepare()
        measuring, results = jobs.heavy("probe.kernels.measure"), jobs.heavy("probe.kernels.results")
        start.ends("loading the libraries")
    device = "cuda" if on_cuda else "cpu"
    kept = results.read() if named else None
    if kept is not None and measuring.results({}, device) != kept.model_copy(update={"families": {}}):
        raise ProbeError(
            f"{results.PATH} is of other versions or another device; `python -m probe kernels`, without a family, "
            "measures all of it anew."
        )
    targets = [target for name in named or mixing() for target in measuring.twins(name)]
    jobs.set_threads("tiny")
    families = dict(kept.families) if kept else {}
    with Bar(len(targets), "building twins") as bar:
        for target in targets:
            label = f"{target.family} · {target.id}"
            bar.starts(label)
            families[target.family] = {**families.get(target.family, {}), target.id: measuring.twin(target, device)}
            bar.ends(label)
    changed = results.write(measuring.results(families, device))
    print(f"{results.PATH}: {'written' if changed else 'current'}.")
    return 0


def mixing(among: Iterable[str] = ("*",)) -> list[str]:
    """The families that have a mixer, as their twins' records tell; ``among`` are their names, or patterns of these."""
    found: dict[str, None] = {}
    folder = store.require_records()
    for path in sorted(path for name in among for path in folder.glob(f"{name}/tiny*.json")):
        shapes = store.read_json(path)["shapes"]
        if any(sublayer["kind"] == "mixer" for shape in shapes for sublayer in shape["sublayers"]):
            found[path.parent.name] = None
    return [*found]


def _require_compiler() -> None:
    """What compiles kernels for the CPU; looked for before the minutes that all takes."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        raise ProbeError(f"There is no C++ compiler ({compiler}) for the kernels in CUDA C++: apt install g++.")
    if not (header := Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise ProbeError(f"Kernels in CUDA C++ are compiled with {header}, which is missing: apt install python3-dev.")


def _require_packages() -> None:
    missing = [NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ProbeError(
            f"The kernels are in packages that are not installed here ({', '.join(missing)}): `scripts/kernels` runs "
            "this command in an environment that has them."
        )
    if any(found.name == REGISTERS for found in importlib.metadata.distributions()):
        raise ProbeError(
            f"{REGISTERS} puts its own classes in place of transformers' mamba and others: uninstall it, the kernels "
            f"are in {NEEDED['fla']}."
        )
