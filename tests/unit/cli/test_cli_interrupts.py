"""What signals do, told as a table."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cli.interrupts import Act, Happening, Phase, State, children, decide


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_the_first_signal_cancels_and_fixes_the_exit_code(number: int, code: int) -> None:
    """The first signal asks the job to stop; the exit code is the shells' own for that signal."""
    state, acts = decide(State(), number)
    assert state == State(Phase.CANCELLING, code)
    assert acts == (Act.CANCEL,)


def test_the_second_signal_kills() -> None:
    """The second Ctrl-C ends the process at once, with the first one's exit code."""
    state, _ = decide(State(), signal.SIGTERM)
    state, acts = decide(state, signal.SIGINT)
    assert state == State(Phase.KILLED, 143)
    assert acts == (Act.EXIT,)


def test_the_deadline_ends_a_cancellation_that_hangs() -> None:
    """When cancelling takes too long, the process ends all the same."""
    state, _ = decide(State(), signal.SIGINT)
    assert decide(state, Happening.DEADLINE) == (State(Phase.KILLED, 130), (Act.EXIT,))


def test_a_published_output_counts_as_done() -> None:
    """Once the output is in its place, a signal only cuts the shutdown short, and the exit code is 0."""
    state, acts = decide(State(), Happening.PUBLISHED)
    assert acts == ()
    assert decide(state, signal.SIGINT) == (State(Phase.KILLED, 0), (Act.EXIT,))


def test_a_cancellation_that_lost_the_race_is_forgotten() -> None:
    """If the job was published while it was being cancelled, the run is done."""
    state, _ = decide(State(), signal.SIGINT)
    state, _ = decide(state, Happening.PUBLISHED)
    assert state == State(Phase.PUBLISHED)


def test_a_deadline_without_a_signal_means_nothing() -> None:
    """A stray deadline never ends a run that was not interrupted."""
    assert decide(State(), Happening.DEADLINE) == (State(), ())


@given(st.lists(st.sampled_from([signal.SIGINT, signal.SIGTERM, Happening.DEADLINE, Happening.PUBLISHED]), max_size=8))
def test_no_story_cancels_or_exits_twice(story: list[int | Happening]) -> None:
    """Whatever happens in whatever order, the job is cancelled at most once and the process ended at most once."""
    state, acts = State(), []
    for happening in story:
        state, more = decide(state, happening)
        acts.extend(more)
    assert acts.count(Act.CANCEL) <= 1
    assert acts.count(Act.EXIT) <= 1
    assert (state.phase is Phase.KILLED) == (Act.EXIT in acts)


def test_a_forced_exit_ends_our_children() -> None:
    """Those alone: a grandchild may be the one that cleans up behind a child."""
    program = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = children()
        os.kill(grandchild, signal.SIGKILL)
    assert child.pid in found
    assert grandchild not in found


def test_a_signal_ends_a_program_whose_main_thread_is_kept() -> None:
    """Python's own handlers wait for the main thread; the deadline does not."""
    program = (
        "import ctypes, os; from codecfleet.cli.interrupts import Interrupts\n"
        "library, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
        "with Interrupts(os._exit):\n"
        "    library.pthread_mutex_lock(lock)\n"
        "    print('kept', flush=True)\n"
        "    library.pthread_mutex_lock(lock)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as kept:
        assert kept.stdout is not None
        assert kept.stdout.readline()
        kept.send_signal(signal.SIGTERM)
        try:
            assert kept.wait(timeout=60) == 143
        finally:
            kept.kill()
