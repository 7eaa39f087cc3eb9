"""Standard streams that are closed, full or gone neither fail a job nor delay the end of the program."""

import os
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.sweeps import swept

from .cli_program import ENVIRONMENT, TRANSCODE, command, program, wait_for

HANGING = "hangs=True, closes=False"


def redirected(arguments: list[str], redirection: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a shell's redirection."""
    line = f"exec {shlex.join(command(arguments))} {redirection}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=ENVIRONMENT, timeout=20, check=False)


@pytest.mark.parametrize(
    ("redirection", "options"),
    swept(
        [
            (redirection, options)
            for options in ([], ["--json"])
            for redirection in ("<&- >&- 2>&-", ">/dev/full", "2>/dev/full", ">&-", "2>&-", ">/dev/full 2>/dev/full")
        ],
        is_slow=lambda case: case[1] or case[0] not in ("<&- >&- 2>&-", ">/dev/full", "2>/dev/full"),
    ),
)
def test_a_stream_that_takes_nothing_fails_no_job(redirection: str, options: list[str]) -> None:
    """If the output is published, the exit code is 0 even if log and checks cannot be written."""
    done = redirected([*TRANSCODE, *options], redirection)
    assert done.returncode == 0
    assert "error" not in done.stderr
    if redirection == ">/dev/full":
        assert "stdout cannot be written: No space left on device" in done.stderr
    if redirection == "2>/dev/full":
        assert done.stdout.count("\n") > 5


@pytest.mark.parametrize("arguments", swept([["probe", "in.mkv"], ["--help"], ["--version"]]))
def test_an_answer_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    """The error message says that the disk is full; a stdout closed on purpose is not an error."""
    full = redirected(arguments, ">/dev/full")
    assert full.returncode == 5
    assert full.stderr.startswith("codecfleet: error: stdout cannot be written: No space left on device. ")
    assert full.stderr.count("\n") == 1
    closed = redirected(arguments, ">&-")
    assert (closed.returncode, closed.stderr) == (0, "")


def test_the_report_goes_to_stdout_as_it_is(tmp_path: Path) -> None:
    """``--report /dev/stdout`` writes into a redirected stdout, and replaces neither the device nor the file."""
    target = tmp_path / "log"
    target.write_text("before\n")
    inode, device = target.stat().st_ino, Path("/dev/stdout").readlink()
    # A link in place of /dev/stdout, so that a failed test replaces only the link.
    own = tmp_path / "stdout"
    own.symlink_to("/proc/self/fd/1")
    done = redirected([*TRANSCODE, "--report", str(own)], f">>{target}")
    assert done.returncode == 0, done.stderr
    text = target.read_text()
    assert text.startswith('before\n{\n  "schema"')
    assert text.index('"job"') < text.index("SHA-256")
    assert (target.stat().st_ino, Path("/dev/stdout").readlink(), own.is_symlink()) == (inode, device, True)


def test_a_closed_terminal_ends_the_program() -> None:
    """SIGHUP from a lost terminal cancels the job, and a fleet that then hangs is not waited for."""
    controller, terminal = os.openpty()
    with subprocess.Popen(
        ["setsid", "--ctty", *command(TRANSCODE, script="sample_events()[:3]", options=HANGING)],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**ENVIRONMENT, "TERM": "xterm"},
    ) as process:
        os.close(terminal)
        shown = b""
        while b"encoding" not in shown:
            shown += os.read(controller, 65536)
        os.close(controller)
        try:
            assert process.wait(timeout=20) == 129
        finally:
            process.kill()


@pytest.mark.parametrize("signals", swept([[signal.SIGTERM, signal.SIGINT], [signal.SIGINT]]))
def test_a_log_without_a_reader_delays_no_signal(signals: list[signal.Signals]) -> None:
    """After ``2>&1 | head`` has ended, one signal ends the program within its deadline, and a second one at once."""
    with program(TRANSCODE, script="sample_events()[:3]", options=HANGING) as process:
        wait_for(process, "of video")
        assert process.stderr is not None
        process.stderr.close()
        for number in signals:
            process.send_signal(number)
        assert process.wait(timeout=20) in {128 + number for number in signals}


def test_a_full_pipe_delays_no_exit() -> None:
    """If a reader stopped reading, a second signal still ends the program."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    with subprocess.Popen(command(TRANSCODE, options=HANGING), stderr=writer, env=ENVIRONMENT) as process:
        while not listens_to_sigterm(process.pid):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=20) == 143
        finally:
            process.kill()
    os.close(reader)
    os.close(writer)


def listens_to_sigterm(process: int) -> bool:
    """Return whether a process has installed its signal handlers."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) & 1 << (signal.SIGTERM - 1))
