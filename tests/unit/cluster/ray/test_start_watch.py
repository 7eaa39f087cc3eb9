"""When a start of Ray fails, and with which message. The logs are those of Ray 2.60."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from codecfleet.cluster.ray import start_watch
from codecfleet.cluster.ray.start_watch import BUSY_MAX_S, IDLE_MAX_S, LOOK_S, StartWatch, cause_in
from codecfleet.errors import FleetUnavailable

TRACEBACK = """2026-11-23 02:22:22,409	ERROR agent.py:545 -- Agent is working abnormally. It will exit immediately.
Traceback (most recent call last):
  File "agent.py", line 543, in <module>
    loop.run_until_complete(agent.run())
    ^^^^^^^^^^^
  File "common.py", line 947, in <module>
    state.__doc__ += f\"\"\"
TypeError: unsupported operand type(s) for +=: 'NoneType' and 'str'
"""
AGENT_FAILED = """[2026-11-23 02:22:32,086 E 4408 4432] (raylet) agent_manager.cc:87: The raylet exited immediately \
because one Ray agent failed, agent_name = dashboard_agent.
The raylet fate shares with the agent. This can happen because
"""
THROWN = """[2026-11-23 02:22:27,856 E 4227 4227] (gcs_server) logging.cc:118: Unhandled exception: N5boost. what(): \
epoll: Too many open files [system:24] /gcs/gcs_server(+0x14c3daa) [0x56400abb8daa]
[2026-11-23 02:22:27,857 E 4227 4227] (gcs_server) logging.cc:474: *** SIGABRT received at time=1795400547 on cpu 1 ***
[2026-11-23 02:22:27,857 E 4227 4227] (gcs_server) logging.cc:474: PC: @     0x7f2a978a8eec  (unknown)  (unknown)
"""
CHECKED = """[2026-11-23 02:22:27,856 I 1 1] (raylet) main.cc:9: all is well
[2026-11-23 02:22:27,856 E 1 1] (raylet) client.cc:12: it is late
[2026-11-23 02:22:27,857 C 1 1] (raylet) dlmalloc.cc:131: mmap failed, error: Cannot allocate memory
"""
SAID_IN_DASHBOARD_AGENT = "dashboard_agent: TypeError: unsupported operand type(s) for +=: 'NoneType' and 'str'"


@pytest.mark.parametrize(
    ("logs", "cause"),
    [
        ([("raylet", AGENT_FAILED), ("dashboard_agent", TRACEBACK)], SAID_IN_DASHBOARD_AGENT),
        ([("gcs_server", THROWN)], "gcs_server: what(): epoll: Too many open files [system:24]"),
        ([("raylet", CHECKED)], "raylet: mmap failed, error: Cannot allocate memory"),
        ([("gcs_server", "[2026-11-23 02:22:27,856 I 1 1] (gcs_server) main.cc:9: all is well"), ("raylet", "")], ""),
    ],
)
def test_the_cause_is_found(logs: list[tuple[str, str]], cause: str) -> None:
    """The cause is the last line of a Python traceback, a C++ exception, or the worst logged line."""
    assert cause_in(logs) == cause


def failure_of(directory: Path, gap_s: float, cores: float, times: int) -> str:
    """Return why a start has failed after this many looks, during which its processes used this many cores."""
    now_s = 0.0
    watch = StartWatch(directory, lambda: now_s, lambda _: {"thread": now_s * cores})
    for _ in range(times):
        now_s += gap_s
        try:
            watch.check()
        except FleetUnavailable as error:
            return f"{error.message} ({now_s:g} s)"
    return ""


@pytest.mark.parametrize(
    ("gap_s", "cores", "times", "words"),
    [
        (LOOK_S, 0.3, int(BUSY_MAX_S), ""),
        (LOOK_S, 0.3, int(BUSY_MAX_S) + 1, "too busy"),
        (LOOK_S, 0.02, int(IDLE_MAX_S), ""),
        (LOOK_S, 0.02, int(IDLE_MAX_S) + 1, "its processes have done nothing for 12 s (13 s)"),
        (3600.0, 0.0, 3, ""),  # an hour in which nothing ran, not even this process, counts as one look
    ],
)
def test_a_start_is_waited_for_while_it_computes(
    tmp_path: Path, gap_s: float, cores: float, times: int, words: str
) -> None:
    """A start that computes may take ten minutes; if all its processes sleep, it gets a few seconds."""
    failure = failure_of(tmp_path, gap_s, cores, times)
    assert words in failure
    assert bool(failure) is bool(words)


class Process:
    """A process that ends on request."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.waits = 0

    def poll(self) -> int | None:
        """Return how the process ended."""
        return self.returncode

    def wait(self) -> None:
        self.waits += 1


@pytest.mark.parametrize(
    ("code", "words", "next_words"),
    [
        (1, f"its raylet ended with exit code 1: {SAID_IN_DASHBOARD_AGENT}", "RAY_TMPDIR"),
        (-signal.SIGXFSZ, "its raylet ended: one of its files reached the limit", "ulimit -f unlimited"),
        (-signal.SIGKILL, "its raylet ended: it was killed, possibly because memory ran out", "Free memory"),
        (-signal.SIGSEGV, "its raylet was ended by SIGSEGV", "RAY_TMPDIR"),
    ],
)
def test_a_process_that_ends_ends_the_start(tmp_path: Path, code: int, words: str, next_words: str) -> None:
    """If a process ends, the start fails at once, with the cause from Ray's own log and the next step."""
    logs = tmp_path / "r/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "dashboard_agent.log").write_text(TRACEBACK)
    (logs / "dashboard_agent.out").write_text("")
    raylet: Any = Process()
    watch = StartWatch(tmp_path)
    watch.note("gcs_server", Process())  # type: ignore[arg-type] # as much as is needed of a process
    watch.note("raylet", raylet)
    watch.check()
    raylet.returncode = code
    with pytest.raises(FleetUnavailable) as caught:
        watch.check()
    assert caught.value.message.startswith(f"the private Ray did not start: {words}")
    assert next_words in caught.value.next_step
    watch.reap()
    assert raylet.waits == 1


def test_an_agent_that_fails_ends_the_start(tmp_path: Path) -> None:
    """If an agent fails, the start fails at once; Ray's node would wait ten seconds more before it ends."""
    logs = tmp_path / "r/session_latest/logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text(AGENT_FAILED)
    now_s = iter([0.0, LOOK_S])
    watch = StartWatch(tmp_path, lambda: next(now_s), lambda _: {})
    with pytest.raises(FleetUnavailable, match="its dashboard_agent ended"):
        watch.check()


def test_core_time_is_read() -> None:
    """The core time of this process is positive; a process that has ended is left out."""
    found = start_watch.core_time_of([os.getpid(), 0])
    assert found[str(os.getpid())] > 0
