"""Processes of any program: their limits, how they end, and their output."""

import os
import select
import sys
from pathlib import Path

import psutil
import pytest

from codecfleet.actors.process.running import Limits, Prints, how_it_ended, start_command

PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("code", "last_line", "words"),
    [
        (1, "", "it ended with exit code 1"),
        (1, "Ray itself ended", "Ray itself ended"),
        (-9, "a line before", "it was killed by SIGKILL"),
        (-99, "", "it was killed by signal 99"),
        (None, "", "it was killed but has not ended"),
    ],
)
def test_how_a_process_ended(code: int | None, last_line: str, words: str) -> None:
    """The reason is the process's last line of output, or else its exit code or the signal that killed it."""
    assert how_it_ended(code, last_line) == words


def test_a_process_is_heard_and_its_end_is_seen() -> None:
    """The channel is the process's input and output; the reason for the end comes from stderr."""
    program = "import sys; print(sys.stdin.readline().upper(), end=''); sys.exit('it had enough')"
    process = start_command([sys.executable, "-c", program], prints=Prints.SENT)
    with process.end as end:
        end.sendall(b"one line\n")
        assert select.select([process.death], [], [], PATIENCE_S)[0]
        assert end.recv(100) == b"ONE LINE\n"
    assert process.code() == 1
    assert process.ended() == "it had enough"


def test_a_group_ends_as_one() -> None:
    """Killing a group also ends the processes that the program has started."""
    process = start_command(["sh", "-c", "sleep 600 & echo $!; exec sleep 600"], prints=Prints.ALL_SENT)
    with process.end as end:
        orphan = int(end.recv(100))
        process.kill_group()
        assert process.ended() == "it was killed by SIGKILL"
        end.settimeout(PATIENCE_S)
        assert end.recv(1) == b"", "its output is closed"
    assert orphan != process.pid


@pytest.mark.parametrize(
    ("limits", "program", "words"),
    [
        (Limits(memory_bytes=256 << 20), "bytearray(1 << 30)", "MemoryError"),
        (Limits(cpu_s=1), "while True: pass", "it was killed by SIGKILL"),
    ],
)
def test_limits_hold(limits: Limits, program: str, words: str) -> None:
    """Too much memory is refused, and too much CPU time ends the process."""
    process = start_command([sys.executable, "-c", program], prints=Prints.KEPT, limits=limits)
    process.end.close()
    assert process.code(PATIENCE_S) is not None
    assert process.ended() == words


def test_a_process_gets_a_folder_and_descriptors(tmp_path: Path) -> None:
    """The output may go to a given descriptor; an inherited descriptor has the same number in both processes."""
    reading, writing = os.pipe()
    told = os.memfd_create("told")
    program = f"import os, sys; print(os.getcwd()); os.write({told}, b'it'); sys.stderr.write(sys.stdin.read() + '.')"
    process = start_command(
        [sys.executable, "-u", "-c", program], prints=writing, folder=str(tmp_path), inherited=[told]
    )
    process.end.close()
    assert process.code(PATIENCE_S) == 0
    assert process.ended() == "it ended with exit code 0"
    assert os.read(reading, 1000) == os.fsencode(f"{tmp_path}\n.")
    assert os.pread(told, 10, 0) == b"it"
    for each in (reading, writing, told):
        os.close(each)


@pytest.mark.parametrize(
    ("command", "environment"), [(["a\0b"], None), (["\ud800"], None), (["true"], {"A=": "b"}), (["true"], {"A": "\0"})]
)
def test_what_no_program_can_get_leaves_nothing(command: list[str], environment: dict[str, str] | None) -> None:
    """A command or variable that no program can get is the caller's error, and no descriptor stays open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ValueError):  # noqa: PT011 - Python's own words
        start_command(command, prints=Prints.KEPT, environment=environment)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_cannot_start_leaves_nothing() -> None:
    """The kernel's error is raised unchanged, and no descriptor stays open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError):
        start_command(["/no/such/program"], prints=Prints.SENT)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


class _Refused(Limits):
    """Limits that the kernel refuses."""

    def impose(self, process: int) -> None:
        """Refuse them."""
        raise PermissionError(process)


def test_a_process_that_cannot_be_limited_is_killed() -> None:
    """A start that fails leaves no process."""
    before = psutil.Process().children()
    with pytest.raises(PermissionError):
        start_command(["sleep", "77"], prints=Prints.KEPT, limits=_Refused())
    assert psutil.Process().children() == before
