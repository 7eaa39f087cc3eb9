"""The effects of signals, as a table."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cli.interrupts import Act, Happening, Phase, State, children, decide, run_here

CANCELLING = State(Phase.CANCELLING, 130)
PUBLISHED = State(Phase.PUBLISHED)


@pytest.mark.parametrize(
    ("state", "happening", "then", "act"),
    [
        # The first signal asks the job to stop, and fixes the exit code, which is the shells' code for that signal.
        (State(), signal.SIGINT, CANCELLING, Act.CANCEL),
        (State(), signal.SIGTERM, State(Phase.CANCELLING, 143), Act.CANCEL),
        (State(), signal.SIGHUP, State(Phase.CANCELLING, 129), Act.CANCEL),
        # A second signal, or a cancellation that takes too long, ends the process.
        (CANCELLING, signal.SIGTERM, State(Phase.KILLED, 130), Act.EXIT),
        (CANCELLING, Happening.DEADLINE, State(Phase.KILLED, 130), Act.EXIT),
        # Once the output is published, the run counts as done, and a signal only shortens the shutdown.
        (State(), Happening.PUBLISHED, PUBLISHED, None),
        (CANCELLING, Happening.PUBLISHED, PUBLISHED, None),
        (PUBLISHED, signal.SIGINT, State(Phase.KILLED, 0), Act.EXIT),
        # A deadline without an earlier signal never ends a run.
        (State(), Happening.DEADLINE, State(), None),
    ],
)
def test_what_happens_decides(state: State, happening: int | Happening, then: State, act: Act | None) -> None:
    """A state and an event determine the next state and the action."""
    assert decide(state, happening) == (then, act)


@given(st.lists(st.sampled_from([signal.SIGINT, signal.SIGTERM, Happening.DEADLINE, Happening.PUBLISHED]), max_size=8))
def test_no_story_cancels_or_exits_twice(story: list[int | Happening]) -> None:
    """Whatever happens in any order, the job is cancelled at most once, and the process ended at most once."""
    state, acts = State(), []
    for happening in story:
        state, act = decide(state, happening)
        acts.append(act)
    assert acts.count(Act.CANCEL) <= 1
    assert acts.count(Act.EXIT) <= 1
    assert (state.phase is Phase.KILLED) == (Act.EXIT in acts)


def test_an_interrupt_cancels_only_the_outer_task() -> None:
    """The task then ends its own tasks in order, and what it does at last is complete."""
    seen: list[object] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(inner.cancelling())
            await asyncio.shield(asyncio.sleep(0))
            seen.append("complete")

    with pytest.raises(KeyboardInterrupt):
        run_here(work())
    assert seen == [0, "complete"]


def test_a_result_is_returned_although_an_interrupt_came_while_it_was_published() -> None:
    """What cannot be cancelled any more has succeeded."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def work() -> str:
        asyncio.get_running_loop().call_soon(interrupt)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "published"

    assert run_here(work()) == "published"


def test_an_interrupted_command_says_what_to_do() -> None:
    """A ladder keeps its finished segments, so its advice is to run it again."""
    program = (
        "import signal, sys\n"
        "from codecfleet.cli.question import Question\n"
        "from codecfleet.cli.services import Services\n"
        "def ask(services, show): signal.raise_signal(signal.SIGINT)\n"
        "question = Question(ask=ask, as_json=False, interrupted_step='Run the same command.')\n"
        "sys.exit(question.run(Services(), sys.stdout, sys.stderr))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "codecfleet: error: interrupted. Run the same command.\n"


def test_a_forced_exit_ends_our_children() -> None:
    """Only direct children are killed, because a grandchild may be a process that cleans up after a child."""
    program = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = children()
        os.kill(grandchild, signal.SIGKILL)
    assert child.pid in found
    assert grandchild not in found


def test_a_signal_ends_a_program_whose_main_thread_is_kept() -> None:
    """Python's own signal handlers wait for the main thread; the deadline does not."""
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
