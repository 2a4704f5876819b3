"""Workers: who takes which task, what is reused, and what a fault costs."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from probe import workers
from probe.progress import Progress
from probe.workers.crew import _Crew


def job(task: str, progress: Progress) -> tuple[str, int]:
    """The task and the process that did it; a task says what it does by its name."""
    progress("halfway", 0.5)
    if task.startswith("die"):
        os._exit(7)
    if task.startswith("hang"):
        time.sleep(60)
    if task.startswith("fail"):
        raise LookupError("nothing there")
    return task, os.getpid()


def nothing() -> None:
    """No preparation."""


def broken() -> None:
    os._exit(3)


def run(
    groups: list[list[str]], count: int = 1, prepare: Callable[[], object] = nothing, **bounds: Any
) -> tuple[dict[str, Any], list[str]]:
    told: list[str] = []
    watch: workers.Watch[str] = workers.Watch(told.append, lambda task, step, share: told.append(f"{task} {step}"))
    limits = workers.Bounds(**bounds)
    found = workers.run(groups, job, workers=count, bounds=lambda task: limits, prepare=prepare, watch=watch)
    return {task: result for _, task, result in found}, told


def test_a_process_does_task_after_task_and_tells_its_steps() -> None:
    done, told = run([["a", "b"], ["c"], []])
    assert [done[task][0] for task in "abc"] == ["a", "b", "c"]
    assert len({pid for _, pid in done.values()}) == 1 and os.getpid() not in {pid for _, pid in done.values()}
    assert told == ["a", "a halfway", "b", "b halfway", "c", "c halfway"]


def test_two_workers_are_two_processes() -> None:
    done, _ = run([["hang1"], ["hang2"]], 2, seconds=0.5)
    assert all(result.overran for result in done.values())


@pytest.mark.parametrize(
    ("fault", "says"), [("die", "ended with status 7"), ("hang", "longer than 1 s"), ("fail", "LookupError: nothing")]
)
def test_a_fault_costs_its_task_and_a_lost_process_what_waits_of_its_group(fault: str, says: str) -> None:
    done, _ = run([["a", fault, "rest"], ["b"]], seconds=1)
    assert says in done[fault].message and done["a"][0] == "a" and done["b"][0] == "b"
    kept = fault == "fail"
    assert (
        (done["rest"] == ("rest", done["a"][1]))
        if kept
        else (done["rest"] == workers.Lost("it was not run after that", given_up=True))
    )
    assert (done["b"][1] == done["a"][1]) == kept


def test_a_worker_that_cannot_begin_does_not_go_on_forever() -> None:
    done, _ = run([["a"], ["b"]], prepare=broken)
    assert {result.message for result in done.values()} == {"its process ended with status 3"}


def test_a_family_is_begun_before_another_is_helped_with_and_a_last_task_is_left_to_its_owner() -> None:
    crew: _Crew[str, Any] = _Crew([deque("abc"), deque("d"), deque("ef")], job, nothing, workers.Watch())
    assert crew._next(-1) == 0
    crew._begun = [True, False, False]
    assert crew._next(0) == 0 and crew._next(-1) == 1
    crew._begun = [True, True, True]
    crew._waiting[1].clear()
    assert crew._next(1) == 0 and crew._next(2) == 2
    crew._waiting[0] = deque("c")
    crew._waiting[2].clear()
    assert crew._next(2) is None and crew._next(0) == 0


def test_what_is_not_awaited_is_ended() -> None:
    found = workers.run(
        [["a"], ["hang"]],
        job,
        workers=2,
        bounds=lambda task: workers.Bounds(),
        prepare=nothing,
        watch=workers.Watch(),
    )
    _, _, (_, pid) = next(found)
    found.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_memory_of_this_machine_is_known() -> None:
    assert 1 << 28 < workers.memory() < 1 << 50
