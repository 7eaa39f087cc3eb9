"""Deadlines, and calls that never return. Time passes only when a test says so."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.dla.watchdog import CallThread, Deadlines, TimeLimits, wait_for
from codecfleet.errors import EngineHung

LIMITS = TimeLimits(task_s=2, grace_s=1, call_s=10)


def test_tasks_run_one_after_the_other_so_their_times_add_up() -> None:
    """Three tasks have three limits; what time has passed is gone; nothing left means the grace alone."""
    deadlines = Deadlines(LIMITS)
    assert deadlines.patience_s(100) == 1
    deadlines.submitted(100, 2)
    deadlines.submitted(101, 1)
    assert deadlines.patience_s(101) == 6
    assert deadlines.patience_s(200) == 1
    deadlines.ended()
    assert deadlines.patience_s(101) == 1


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 8)), max_size=8), st.floats(0, 1000))
def test_patience_is_never_shorter_than_the_last_submission_needs(
    steps: list[tuple[float, int]], late_s: float
) -> None:
    """However submissions follow each other, each task gets its limit, and never more than all limits together."""
    deadlines, now_s, tasks = Deadlines(LIMITS), 0.0, 0
    for pause_s, count in steps:
        now_s += pause_s
        tasks += count
        deadlines.submitted(now_s, count)
        patience_s = deadlines.patience_s(now_s)
        assert count * 2 + 1 - 1e-6 <= patience_s <= tasks * 2 + 1 + 1e-6
    assert 1 <= deadlines.patience_s(now_s + late_s) <= tasks * 2 + 1 + 1e-6


def test_limits_make_sense() -> None:
    """A limit of nothing is refused; cuDLA is told whole milliseconds, and at least one."""
    with pytest.raises(ValueError, match="above 0"):
        TimeLimits(task_s=0)
    assert TimeLimits(task_s=0.0001).task_ms == 1
    assert TimeLimits(task_s=1.5).task_ms == 1500


def test_calls_run_in_one_thread_in_turn() -> None:
    """All calls run in the same thread, which is not the caller's; results and errors come back as they are."""
    thread = CallThread("DLA 0")
    names = {thread.call("name", lambda: threading.current_thread().name, 10) for _ in range(3)}
    assert names == {"DLA 0"}
    with pytest.raises(ZeroDivisionError):
        thread.call("divide", lambda: 1 // 0, 10)
    assert thread.stuck_in == ""
    thread.close()


def test_a_call_that_does_not_return_is_given_up() -> None:
    """The caller gets EngineHung and its thread back; the next call is refused without another wait."""
    entered, release, waits = threading.Event(), threading.Event(), []

    def patience(future: Future[Any], seconds: float) -> bool:
        waits.append(seconds)
        entered.wait()
        return future.done()

    def hang() -> None:
        entered.set()
        release.wait()

    thread = CallThread("DLA 1", patience)
    with pytest.raises(EngineHung, match=r"DLA 1: cudlaSubmitTask did not return within 3\.5 s"):
        thread.call("cudlaSubmitTask", hang, 3.5)
    with pytest.raises(EngineHung, match="cudlaSubmitTask"):
        thread.call("cudlaGetLastError", int, 1)
    assert waits == [3.5]
    release.set()
    thread.close()


def test_real_patience_ends_with_the_call() -> None:
    """Waiting in real time returns as soon as the call has ended, and at the limit if it has not."""
    ended: Future[None] = Future()
    assert not wait_for(ended, 0)
    ended.set_result(None)
    assert wait_for(ended, 3600)
