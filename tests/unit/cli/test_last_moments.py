"""Signals that arrive while the interpreter ends."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from codecfleet.cli import app

class AtTheEnd:
    def __init__(self):
        self.send = os.kill, os.getpid(), int(sys.argv.pop())

    def __del__(self):
        kill, pid, number = self.send
        kill(pid, number)

last = AtTheEnd()
sys.exit(app.main() + 7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_the_very_end_changes_no_exit_code(number: signal.Signals) -> None:
    """When Python has put its handlers away, the kernel's own would kill the process."""
    command = [sys.executable, "-c", PROGRAM, "--version", str(int(number))]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 7
