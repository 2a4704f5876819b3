"""Bring families' records up to date: decide what must run, run it, write each family's records in one step.

A family whose records are current costs no import of torch. A family of which one checkpoint fails keeps all of its
records as they were; the other families go on.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from probe import fingerprint, store
from probe.errors import ProbeError
from probe.progress import Bar, Progress, silent

_EXTRA = ("torch", "transformers", "nnsight", "accelerate", "gguf", "safetensors", "PIL", "psutil", "tqdm")


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
    """What a job gave: the record's canonical text, or why there is none."""

    job: Job
    text: str | None = None
    message: str = ""
    status: int = 0
    trace: str = ""


@dataclass
class Plan:
    """What one family needs.

    Attributes:
        inputs: its fingerprint; None for a run of a single checkpoint, which leaves no stamp.
        kept: digests of the records that are current, by checkpoint.
        only: the checkpoints to run; None for all.
        spared: the checkpoints whose record is of real weights that are not installed here, and so is kept.
    """

    family: str
    inputs: str | None = None
    kept: dict[str, str] = field(default_factory=dict)
    only: list[str] | None = None
    jobs: list[Job] = field(default_factory=list)
    spared: list[str] = field(default_factory=list)

    @property
    def current(self) -> bool:
        return self.only == [] and not self.jobs


def heavy(module: str) -> Any:
    """A module of the side that needs torch. Raises ProbeError where the extra `probe` is not installed."""
    if missing := [name for name in _EXTRA if importlib.util.find_spec(name) is None]:
        raise ProbeError(
            f"This needs {', '.join(missing)}, not installed here: `scripts/site` installs all of it, and so does "
            "`pip install -e '.[probe]'`."
        )
    return importlib.import_module(module)


def prepare(options: Options, workers: int = 1) -> None:
    """Settings that must be in the environment before the libraries are imported.

    Twins are too small for threads, which cost them several times the CPU time, so one is the default; real weights
    get the machine's. ``OMP_NUM_THREADS`` overrides both.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["PROBE_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    if options.offline:
        os.environ["HF_HUB_OFFLINE"] = "1"


def plan(family: str, options: Options, force: bool) -> Plan:
    """What must run for a family, found without torch. Raises ProbeError for an unknown family."""
    inputs = fingerprint.inputs(family, options.decisive())
    stamp = None if force else fingerprint.read(family, options.decisive())
    if stamp is None or stamp.inputs != inputs:
        return Plan(family, inputs)
    stale = stamp.stale(family)
    kept = {checkpoint: digest for checkpoint, digest in stamp.records.items() if checkpoint not in stale}
    return Plan(family, inputs, kept, stale)


def single(checkpoint: str, family: str | None, options: Options) -> Plan:
    """A plan for one checkpoint, whose family is read off it where none is given."""
    target = heavy("probe.checkpoints").resolve(checkpoint, family, offline=options.offline)
    store.file_stem(target.id)
    return Plan(target.family, jobs=[Job(target.family, target.id, target)])


def find_jobs(found: Plan) -> None:
    """Fill in a plan's jobs."""
    if found.jobs or found.current:
        return
    for target in heavy("probe.checkpoints").targets(found.family):
        if found.only is not None and target.id not in found.only:
            continue
        path = store.record_path(found.family, target.id)
        if target.kind == "config" and store.is_of_weights(path):
            found.kept[target.id] = store.file_digest(path) or ""
            found.spared.append(target.id)
        else:
            found.jobs.append(Job(found.family, target.id, target))
    if not found.jobs and not found.kept:
        raise ProbeError(f"The family {found.family} has no checkpoint that can be probed here.")


def require_folders(plans: list[Plan]) -> None:
    """Raises ProbeError where what the plans' runs give could not be written, before they run."""
    for found in plans:
        store.require_writable(store.record_path(found.family, "any").parent)
    if any(found.inputs is not None for found in plans):
        store.require_writable(store.cache_dir() / "stamps")


def run(plans: list[Plan], options: Options, workers: int) -> Iterator[tuple[Plan, list[Outcome]]]:
    """Run the plans' jobs and yield each family with its outcomes, in order, as soon as it is complete."""
    jobs = [job for found in plans for job in found.jobs]
    with Bar(len(jobs), "loading the libraries") as bar:
        outcomes = _serially(jobs, options, bar) if workers == 1 else _in_workers(jobs, options, workers, bar)
        with contextlib.closing(outcomes):
            for found in plans:
                yield found, [next(outcomes) for _ in found.jobs]


def keep(found: Plan, outcomes: list[Outcome], options: Options) -> list[str]:
    """Write a family's new records and its stamp; return the checkpoints whose record changed."""
    texts = {store.record_path(found.family, outcome.job.checkpoint): outcome for outcome in outcomes}
    changed = store.write_all({path: outcome.text or "" for path, outcome in texts.items()})
    if found.inputs is not None:
        digests = {outcome.job.checkpoint: store.digest(outcome.text or "") for outcome in outcomes}
        fingerprint.write(found.family, options.decisive(), fingerprint.Stamp(found.inputs, found.kept | digests))
    return [texts[path].job.checkpoint for path in changed]


def _serially(jobs: list[Job], options: Options, bar: Bar) -> Generator[Outcome, None, None]:
    for job in jobs:
        bar.starts(job.label)
        outcome = _probe(job, options, bar.within(job.label))
        bar.ends(job.label, outcome.text is None)
        yield outcome


def _in_workers(jobs: list[Job], options: Options, workers: int, bar: Bar) -> Generator[Outcome, None, None]:
    import concurrent.futures.process
    import multiprocessing
    import signal

    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=spawn, initializer=_follow_parent) as pool:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the workers inherit this: Ctrl-C is ours alone
        futures = [pool.submit(_probe, job, options) for job in jobs]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        names = dict(zip(futures, jobs, strict=True))

        def ended(future: concurrent.futures.Future[Outcome]) -> None:
            if not future.cancelled() and future.exception() is None:
                bar.ends(names[future].label, future.result().text is None)

        for future in futures:
            future.add_done_callback(ended)
        try:
            for future in futures:
                yield future.result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise ProbeError(
                "A worker process was ended, perhaps for want of memory; run again with fewer --workers."
            ) from error
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _follow_parent() -> None:
    """End with the parent process, however that ends."""
    import multiprocessing
    import threading

    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()


def set_threads(kind: str) -> None:
    """Give real weights the threads that `prepare` set aside, and everything else one."""
    wanted = os.environ.get("PROBE_THREADS")
    if wanted is not None and (kind == "weights" or "torch" in sys.modules):
        heavy("torch").set_num_threads(int(wanted) if kind == "weights" else 1)


def _probe(job: Job, options: Options, progress: Progress = silent) -> Outcome:
    try:
        set_threads(job.target.kind)
        record = heavy("probe.measure").probe_target(
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
    except Exception as error:
        return Outcome(job, message=f"{type(error).__name__}: {error}", status=1, trace=traceback.format_exc())
