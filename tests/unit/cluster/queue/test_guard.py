"""A guard, and the command that it guards."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from codecfleet.cluster.queue import guard
from codecfleet.cluster.queue.guard import Guard, clock
from codecfleet.cluster.queue.running import GuardedRun, start_run
from codecfleet.cluster.queue.values import QueuedCommand, RunEnd
from codecfleet.errors import WorkError


def guarded(command: Sequence[str], *orders: bytes, lasts_s: float = 60.0, ends: bool = False) -> int:
    """Run a command below a guard of this process, and return the exit code."""
    read, write = os.pipe()
    try:
        for order in orders:
            os.write(write, order + b"\n")
        if ends:
            os.close(write)
        return Guard(read, clock() + lasts_s).run(list(command), 2)
    finally:
        os.close(read)
        if not ends:
            os.close(write)


def test_a_command_ends_by_itself() -> None:
    """The exit code of a command is passed on, as a shell reports it."""
    assert guarded(["true"]) == 0
    assert guarded(["sh", "-c", "exit 3"]) == 3
    assert guarded(["sh", "-c", "kill -KILL $$"]) == 137


def test_a_command_that_the_system_cannot_start_may_be_tried_again(capfd: pytest.CaptureFixture[str]) -> None:
    """The exit code of a command that cannot be started is not that of a job that failed for good."""
    assert guarded(["/nowhere/program"]) == guard.NOT_STARTED >= WorkError.exit_code
    assert "the job could not be started" in capfd.readouterr().out


def test_no_renewal_ends_it(tmp_path: Path) -> None:
    """Without renewal, a command ends at its deadline; a command whose deadline is over does not begin."""
    began_s = time.monotonic()
    assert guarded(["sleep", "60"], lasts_s=0.3) == guard.FENCED
    assert 0.2 < time.monotonic() - began_s < 5
    assert guarded(["touch", str(tmp_path / "begun")], lasts_s=-1) == guard.FENCED
    assert not (tmp_path / "begun").exists()


def test_renewals_keep_it() -> None:
    """The last renewed deadline counts."""
    assert guarded(["sleep", "0.5"], repr(clock() + 60).encode(), lasts_s=0.2) == 0


def test_orders_stop_it() -> None:
    """An order stops the command as SIGTERM would; the end of the driver kills it."""
    assert guarded(["sleep", "60"], guard.STOP) == 128 + signal.SIGTERM
    assert guarded(["sleep", "60"], ends=True) == guard.FENCED


async def run(*arguments: str, folder: str = "/") -> GuardedRun | RunEnd:
    """Start a command of codecfleet."""
    return await start_run(QueuedCommand(arguments, folder, {}), clock() + 60)


async def test_a_run_tells_its_output_and_its_failure(tmp_path: Path) -> None:
    """The class, message and next step of the error come from the command itself."""
    started = await run("probe", "nothing.mkv", folder=str(tmp_path))
    assert isinstance(started, GuardedRun)
    end = await started.end()
    assert (end.exit_code, end.error, end.message) == (3, "InputNotFound", "there is no file nothing.mkv")
    assert "codecfleet: error: there is no file nothing.mkv" in started.take_output()


async def test_a_missing_folder_fails_at_once() -> None:
    """The error of the job names the missing folder."""
    end = await run("probe", "a.mkv", folder="/nowhere")
    assert isinstance(end, RunEnd)
    assert (end.exit_code, end.error) == (3, "InputNotFound")
    assert "/nowhere" in end.message


@pytest.mark.parametrize(
    "command",
    [
        QueuedCommand(("probe", "a\0b"), "/"),
        QueuedCommand(("probe", "\ud800"), "/"),
        QueuedCommand(("probe",), "/", {"A=": "b"}),
    ],
)
async def test_a_command_that_no_system_can_start_fails_at_once(command: QueuedCommand) -> None:
    """A command that no system can start fails at once, and its driver continues."""
    end = await start_run(command, clock() + 60)
    assert isinstance(end, RunEnd)
    assert (end.exit_code, end.error) == (2, "UsageError")


async def hung(folder: Path) -> tuple[GuardedRun, list[psutil.Process]]:
    """Start a command that waits forever, and return it with its processes."""
    fifo = folder / "film.mkv"
    os.mkfifo(fifo)
    started = await run("batch", "-", "--output", str(folder / "out"), "--dry-run", str(fifo), folder=str(folder))
    assert isinstance(started, GuardedRun)
    family = [psutil.Process(started.process.pid)]
    async with asyncio.timeout(10):
        while len(family) < 2:
            await asyncio.sleep(0.02)
            family = [family[0], *family[0].children(recursive=True)]
    return started, family


@pytest.mark.parametrize("how", ["stop", "kill", "SIGKILL to the guard"])
async def test_nothing_is_left_of_a_run_that_is_ended(how: str, tmp_path: Path) -> None:
    """Neither the guard nor the command."""
    started, family = await hung(tmp_path)
    if how == "stop":
        started.stop()
    elif how == "kill":
        started.kill()
    else:
        os.kill(started.process.pid, signal.SIGKILL)
    end = await started.end()
    assert end.exit_code == {"stop": 143, "kill": None}.get(how, 137)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []


async def test_nothing_is_left_of_a_run_that_is_no_longer_waited_for(tmp_path: Path) -> None:
    """A cancelled ``end`` leaves neither the command nor its guard."""
    started, family = await hung(tmp_path)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(started.end(), 0.01)
    assert [each.is_running() for each in family] == [False, False]


def test_the_guard_imports_little() -> None:
    """The guard imports little, because one guard runs beside each job."""
    program = "import sys, codecfleet.cluster.queue.guard; print(len(sys.modules), 'asyncio' in sys.modules)"
    said = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == "False"
