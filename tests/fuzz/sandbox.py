"""One case in a child process of its own: probe, plan, transcode and verify, with limits of time and memory."""

import io
import json
import os
import resource
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from codecfleet import Fleet
from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.testing import LocalPool

CASE_S: Final = 180
"""The limit of wall time; on an idle machine a case takes a second, and up to twenty at 1080p."""
MEMORY_BYTES: Final = 6 << 30
"""The limit of address space; glibc reserves much more than it uses."""
LARGEST_FILE_BYTES: Final = 1 << 30
ON_THREADS: Final = Services(open_fleet=lambda _address, _workers: Fleet(pool=LocalPool(slots=2)))
_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Step:
    """One command, its exit code, and what it wrote to stderr; for a failed `verify`, also what it printed."""

    command: str
    code: int
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a case ended: the steps that it completed, the signal that ended it, and what it left behind.

    ``signal`` is 0 for a case that ended by itself, and SIGALRM for one that took too long.
    """

    steps: tuple[Step, ...]
    signal: int
    left_files: tuple[str, ...]
    left_processes: int


def play(source: Path, output: Path, options: tuple[str, ...]) -> Ending:
    """Run a case on ``source``, which is alone in its folder, and remove all it leaves behind."""
    folder = source.parent
    temporary = folder / "tmp"
    temporary.mkdir()
    steps = folder / "steps"
    steps.touch()
    child = os.fork()
    if not child:
        _in_child(lambda: _commands(source, output, options, steps), temporary, folder / "noise")
    ended_by = _wait(child)
    left_processes = _end_session(child)
    done = tuple(Step(**json.loads(line)) for line in steps.read_text().splitlines())
    noise = (folder / "noise").read_text(errors="replace")
    if noise:
        done = (*done, Step("noise", 0, noise))
    expected = {source, output, report_of(output), steps, temporary, folder / "noise"}
    left = sorted(str(path.relative_to(folder)) for path in set(folder.rglob("*")) - expected)
    return Ending(steps=done, signal=ended_by, left_files=tuple(left), left_processes=left_processes)


def report_of(output: Path) -> Path:
    """Return where a case writes its job's report."""
    return output.with_name("report.json")


def _in_child(work: Any, temporary: Path, noise: Path) -> None:
    """Do ``work`` under the limits, and end this process."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (2 * CASE_S, 2 * CASE_S))
        os.environ["TMPDIR"] = str(temporary)
        log = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115 - they stay
        work()
        sys.stderr.flush()
        code = 0
    finally:
        os._exit(code)


def _commands(source: Path, output: Path, options: tuple[str, ...], steps: Path) -> None:
    report = str(report_of(output))
    part = [each for each in options if each.startswith(("--start=", "--end="))]
    commands = (
        ["probe", str(source)],
        ["plan", str(source), str(output), *options],
        ["transcode", str(source), str(output), *options, "--quiet", "--no-journal", "--report", report],
    )
    codes = [_step(arguments, steps) for arguments in commands]
    if codes[-1] == 0:
        _step(["verify", str(source), str(output), "--report", report, *part], steps)


def _step(arguments: list[str], steps: Path) -> int:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(arguments, ON_THREADS)
    answer = "\n".join(out.getvalue().splitlines()) if arguments[0] == "verify" and code == 1 else ""
    with steps.open("a") as file:
        file.write(json.dumps(asdict(Step(arguments[0], code, err.getvalue() + answer))) + "\n")
    return code


def _wait(child: int) -> int:
    """Wait for a child, kill it when its time is over, and return the signal that ended it."""
    deadline_s = time.monotonic() + CASE_S
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return -code if code < 0 else 0
        if time.monotonic() > deadline_s:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return signal.SIGALRM
        time.sleep(_LOOK_EVERY_S)


def _end_session(session: int) -> int:
    """Kill the remaining processes of a session, and return their number."""
    left = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                os.kill(int(stat.parent.name), signal.SIGKILL)
                left += 1
    return left
