"""Processes of a private Ray that end, or that somebody suspends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from codecfleet.cluster.ray.liveness import SUSPENDED_S, WAKES_MAX, Liveness, state_of

Sleeper = subprocess.Popen[bytes]


@pytest.fixture
def sleepers() -> Iterator[tuple[Sleeper, Sleeper]]:
    """Two processes of this test."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    first, second = subprocess.Popen(command), subprocess.Popen(command)
    with first, second:
        yield first, second
        for each in (first, second):
            each.kill()


def suspend(process: Sleeper) -> None:
    """Suspend a process, and wait until it is suspended."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_a_process_that_ends_is_noticed(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """A process that has ended is noticed, whether it was waited for or not; other processes do not matter."""
    first, second = sleepers
    liveness = Liveness([first.pid, second.pid, os.getpid(), os.getppid()])
    assert liveness.why_ended() == ""
    second.kill()
    os.waitid(os.P_PID, second.pid, os.WEXITED | os.WNOWAIT)  # the process has ended, but is still in the table
    assert liveness.why_ended() == "one of its processes died"
    second.wait()
    assert liveness.why_ended() == "one of its processes died"


def test_a_suspended_process_is_woken(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """A suspended process is resumed after some seconds; if it is suspended again and again, Ray is lost."""
    seconds = iter(range(10_000))
    woken: list[int] = []
    liveness = Liveness([each.pid for each in sleepers], lambda: next(seconds), woken.append)
    suspend(sleepers[0])
    assert {liveness.why_ended() for _ in range(int(SUSPENDED_S))} == {""}
    assert woken == []
    assert liveness.why_ended() == ""
    assert woken == [sleepers[0].pid]
    told = [liveness.why_ended() for _ in range(int(SUSPENDED_S) * WAKES_MAX)]
    assert len(woken) == WAKES_MAX
    assert "keeps being suspended" in told[-1]


def test_a_pause_of_everybody_is_none_of_a_process(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """After a Ctrl-Z, this process may continue just before the others; the time in between does not count."""
    times_s = iter([0.0, 1.0, 3600.0, 3600.5])
    liveness = Liveness([each.pid for each in sleepers], lambda: next(times_s), lambda _: pytest.fail("woken"))
    suspend(sleepers[0])
    assert [liveness.why_ended() for _ in range(3)] == ["", "", ""]


def test_all_are_woken_before_the_end(sleepers: tuple[Sleeper, Sleeper]) -> None:
    """Suspended processes are resumed; processes that have ended are skipped."""
    first, second = sleepers
    liveness = Liveness([first.pid, second.pid])
    suspend(first)
    second.kill()
    second.wait()
    assert state_of(first.pid) == "T"
    liveness.wake()
    os.waitid(os.P_PID, first.pid, os.WCONTINUED | os.WNOWAIT)
    assert state_of(first.pid) in "RS"
