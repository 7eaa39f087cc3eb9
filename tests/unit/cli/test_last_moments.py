"""Signals that arrive while the interpreter ends."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, sys
from codecfleet.cli import app

class Kept:
    def __del__(self):
        print("taken apart")

kept = Kept()
number = int(sys.argv.pop())
code = app.main()
atexit.register(os.kill, os.getpid(), number)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_very_end_changes_no_exit_code(number: signal.Signals) -> None:
    """A signal during the exit does not change the exit code."""
    done = ended(["--versions", str(int(number))])
    assert (done.returncode, done.stdout) == (2, "")


def test_what_was_imported_is_not_taken_apart() -> None:
    """The program ends with all its output, and Python does not destroy imported objects one by one."""
    done = ended(["--version", "0"])
    assert done.returncode == 0
    assert done.stdout.startswith("codecfleet ")
    assert "taken apart" not in done.stdout


def ended(arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run the program; the last argument is the signal that arrives at the end."""
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False)
