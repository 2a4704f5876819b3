"""Jobs: one checkpoint to probe each, run in this process or in workers that it outlives."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from probe import interrupts, store
from probe.errors import ProbeError
from probe.progress import Bar, Progress, silent

_EXTRA = ("torch", "transformers", "nnsight", "accelerate", "gguf", "safetensors", "PIL", "psutil", "tqdm")

LIMIT = 300.0
"""Seconds that a twin or a build may take where a process of its own does it."""

_LEAST_MEMORY = 2 << 30


@dataclass(frozen=True)
class Options:
    """How checkpoints are loaded; None leaves the choice to the checkpoint."""

    dtype: str | None = None
    device: str = "cpu"
    attn: str | None = None
    offline: bool = False

    def decisive(self) -> dict[str, Any]:
        """The options that a result depends on."""
        return {"dtype": self.dtype, "device": self.device, "attn": self.attn}


@dataclass(frozen=True)
class Crew:
    """Who does the jobs.

    Attributes:
        workers: number of processes.
        limit: seconds that a twin or a build may take, None for the usual; real weights take what they need.
        apart: whether the jobs run in processes of their own, so that a fault costs its family alone.
    """

    workers: int = 1
    limit: float | None = None
    apart: bool = False


@dataclass(frozen=True)
class Job:
    """One checkpoint to probe."""

    family: str
    checkpoint: str
    target: Any

    @property
    def label(self) -> str:
        return f"{self.family} · {self.checkpoint}"


@dataclass(frozen=True)
class Outcome:
    """What a job gave: the record's canonical text, or why there is none.

    Attributes:
        given_up: whether it was not run, since another job of its family ended its process.
    """

    job: Job
    text: str | None = None
    message: str = ""
    status: int = 0
    trace: str = ""
    given_up: bool = False


def heavy(module: str) -> Any:
    """A module of the side that needs torch. Raises ProbeError where the extra `probe` is not installed."""
    if missing := [name for name in _EXTRA if importlib.util.find_spec(name) is None]:
        raise ProbeError(
            f"This needs {', '.join(missing)}, not installed here: `scripts/site` installs all of it, and so does "
            "`pip install -e '.[probe]'`."
        )
    return importlib.import_module(module)


def prepare(options: Options, count: int = 1) -> None:
    """Settings that must be in the environment before the libraries are imported.

    Twins are too small for threads, which cost them several times the CPU time, so one is the default; real weights
    get the machine's, divided among `count` processes. ``OMP_NUM_THREADS`` overrides both.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["PROBE_THREADS"] = str(max(1, (os.cpu_count() or 1) // count))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if options.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def run(groups: list[list[Job]], options: Options, crew: Crew) -> Iterator[tuple[int, list[Outcome]]]:
    """Run the jobs of several groups and yield each group's index with its outcomes, as soon as it is complete."""
    with Bar(sum(map(len, groups)), "loading the libraries") as bar:
        if crew.apart:
            yield from _apart(groups, options, crew, bar)
            return
        for index, jobs in enumerate(groups):
            outcomes = []
            for job in jobs:
                bar.starts(job.label)
                outcomes.append(_probe(job, options, bar.within(job.label)))
                interrupts.heed()
                bar.ends(job.label, outcomes[-1].text is None)
            yield index, outcomes


def _apart(groups: list[list[Job]], options: Options, crew: Crew, bar: Bar) -> Iterator[tuple[int, list[Outcome]]]:
    from probe import workers

    done: list[dict[Job, Outcome]] = [{} for _ in groups]
    yield from ((index, []) for index, jobs in enumerate(groups) if not jobs)
    memory = None if options.device != "cpu" else max(_LEAST_MEMORY, int(workers.memory() * 0.8 / crew.workers))

    def bounds(job: Job) -> workers.Bounds:
        real = job.target.kind == "weights"
        return workers.Bounds() if real else workers.Bounds(crew.limit or LIMIT, memory)

    results = workers.run(
        groups,
        functools.partial(_in_turn, options=options),
        workers=crew.workers,
        bounds=bounds,
        prepare=_import,
        watch=workers.Watch(
            lambda job: bar.starts(job.label), lambda job, step, share: bar.within(job.label)(step, share)
        ),
    )
    with contextlib.closing(results):
        for group, job, result in results:
            if isinstance(result, workers.Lost):
                advice = "; `--limit SECONDS` gives it longer" if result.overran else ""
                outcome = Outcome(
                    job,
                    message=f"{result.message}{advice}.",
                    status=1,
                    trace=result.trace,
                    given_up=result.given_up,
                )
            else:
                outcome = result
            bar.ends(job.label, outcome.text is None)
            done[group][job] = outcome
            if len(done[group]) == len(groups[group]):
                yield group, [done[group][job] for job in groups[group]]


def _import() -> None:
    """What every job needs, so that no job's time is spent on it."""
    importlib.import_module("probe.record")


_last_family = ""


def _in_turn(job: Job, progress: Progress, *, options: Options) -> Outcome:
    """A job in a process that has done others: what the last family's twins found is let go."""
    global _last_family
    if job.family != _last_family and (findings := sys.modules.get("probe.record.findings")) is not None:
        findings.forget()
    _last_family = job.family
    return _probe(job, options, progress)


def require_device(options: Options) -> None:
    """Raises ProbeError for a device that is none or is not here, before anything is loaded; the CPU always is."""
    if options.device != Options.device:
        heavy("probe.checkpoints").require_device(options.device)


def set_threads(kind: str) -> None:
    """Give real weights the threads that `prepare` set aside, and everything else one."""
    wanted = os.environ.get("PROBE_THREADS")
    if wanted is not None and (kind == "weights" or "torch" in sys.modules):
        heavy("torch").set_num_threads(int(wanted) if kind == "weights" else 1)


def _probe(job: Job, options: Options, progress: Progress = silent) -> Outcome:
    try:
        set_threads(job.target.kind)
        record = heavy("probe.record").probe_target(
            job.target,
            attn=options.attn,
            dtype=options.dtype,
            device=options.device,
            offline=options.offline,
            progress=progress,
        )
        return Outcome(job, store.canonical(record.as_json()))
    except ProbeError as error:
        return Outcome(job, message=str(error), status=error.status, trace=traceback.format_exc())
    except MemoryError:
        said = "it ran out of memory; fewer --workers leave it more."
        return Outcome(job, message=said, status=1, trace=traceback.format_exc())
    except Exception as error:
        return Outcome(job, message=_words(error), status=1, trace=traceback.format_exc())


def _words(error: Exception) -> str:
    """An error that nobody foresaw, on one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:400]}{'…' if len(said) > 400 else ''}"
