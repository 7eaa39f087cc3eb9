"""Calls that never return, which their thread abandons or a watch reports. Time passes only when a test says so."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from codecfleet.actors.watchdog import CallThread, CallWatch, wait_for
from codecfleet.errors import EngineHung, Retry


def test_calls_run_in_one_thread_in_turn() -> None:
    """All calls run in one thread, not in the caller's thread; results and errors are passed on unchanged."""
    thread = CallThread("DLA 0")
    names = {thread.call("name", lambda: threading.current_thread().name, 10) for _ in range(3)}
    assert names == {"DLA 0"}
    with pytest.raises(ZeroDivisionError):
        thread.call("divide", lambda: 1 // 0, 10)
    thread.close()


def test_a_call_that_does_not_return_is_given_up() -> None:
    """The caller gets ``EngineHung`` and continues; the next call is refused without another wait."""
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
    """A wait in real time ends when the call has returned, or at the limit."""
    ended: Future[None] = Future()
    assert not wait_for(ended, 0)
    ended.set_result(None)
    assert wait_for(ended, 3600)


class Time:
    """A clock and a wait for a ``CallWatch``, whose thread sleeps until the test advances time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []
        self._asleep = threading.Semaphore(0)
        self._passed = 0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now_s

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Sleep until time passes."""
        self.waits.append(seconds)
        self._asleep.release()
        condition.wait()

    def is_slept(self) -> bool:
        """Wait until the watch's thread sleeps again."""
        return self._asleep.acquire(timeout=10)

    def watch(self, call_s: float = 10, opening_s: float = 30) -> CallWatch:
        """Return a watch with this clock and wait."""
        return CallWatch(call_s, opening_s, clock=self, wait=self.wait)

    def passes_once_slept(self, watch: CallWatch, seconds: float) -> None:
        """Advance time as soon as the watch's thread sleeps."""
        assert self.is_slept()
        self.passes(watch, seconds)

    def passes(self, watch: CallWatch, seconds: float) -> None:
        """Advance time, and wake the sleeping thread."""
        with watch._rest:
            self.now_s += seconds
            watch._rest.notify()


def test_an_overdue_call_is_told_of_once() -> None:
    """Listeners get one ``EngineHung`` for a call that does not return, and nothing for a call that does."""
    time, told = Time(), []
    watch = time.watch()
    watch.on_overdue(told.append)
    with watch.calling("NVDEC", "Decode"):
        pass

    def never_returns() -> None:
        with watch.calling("NVENC", "Encode"):
            time.passes_once_slept(watch, 9.5)
            assert time.is_slept()
            assert told == []
            time.passes(watch, 0.5)
            time.passes_once_slept(watch, 100)
            assert time.is_slept()

    with pytest.raises(EngineHung):
        never_returns()
    (error,) = told
    assert (type(error), error.retry) == (EngineHung, Retry.ELSEWHERE)
    assert error.message == "NVENC: Encode did not return within 10.0 s"
    assert error.next_step


def test_a_call_that_comes_back_too_late_raises_what_was_told() -> None:
    """A call that was reported as overdue also raises the error in its caller, whatever it returned."""
    time = Time()
    watch = time.watch()

    def returns_late() -> None:
        with watch.opening("CUDA", "cuInit"):
            time.passes_once_slept(watch, 30)
            assert time.is_slept()
            raise ZeroDivisionError

    with pytest.raises(EngineHung, match="CUDA: cuInit did not return within 30") as caught:
        returns_late()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_thread_sleeps_whatever_is_called() -> None:
    """The thread checks at the shortest limit's interval; no call wakes it, however many calls begin and end."""
    time = Time()
    watch = time.watch()
    with watch.calling("NVDEC", "Decode"):
        assert time.is_slept()
    for _ in range(100):
        with watch.calling("NVDEC", "Decode"):
            pass
    assert time.waits == [10]
    time.passes(watch, 10)
    assert time.is_slept()
    assert time.waits == [10, 10]


def test_a_call_that_begins_while_the_thread_sleeps_is_told_of_in_time() -> None:
    """A call that begins between two checks is due after the second check, and the thread sleeps exactly until then."""
    time, told = Time(), []
    watch = time.watch()
    watch.on_overdue(told.append)

    def decodes() -> None:
        with watch.calling("NVDEC", "Decode"):
            time.passes(watch, 6)
            assert time.is_slept()
            assert told == []
            time.passes(watch, 4)
            assert time.is_slept()

    with watch.opening("NVDEC", "CreateDecoder"):
        assert time.is_slept()
        time.now_s = 4
        with pytest.raises(EngineHung):
            decodes()
    assert time.waits == [10, 4, 10]
    assert [error.message for error in told] == ["NVDEC: Decode did not return within 10.0 s"]
