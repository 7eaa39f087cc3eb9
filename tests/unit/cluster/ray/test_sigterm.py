"""SIGTERM in a process that uses Ray."""

import ctypes
import signal
import subprocess
import sys

import pytest

from codecfleet.cluster.ray import sigterm


def test_the_signal_structure_is_the_c_librarys() -> None:
    """``struct sigaction`` has the size of 64-bit Linux, and contains the handler that Python has set."""
    assert ctypes.sizeof(sigterm._SigAction) == 152
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with sigterm.sigterm_untouched():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        found = sigterm._SigAction()
        sigterm._sigaction(None, ctypes.byref(found))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert found.handler == int(signal.SIG_IGN)


PROGRAM = """
import os, signal, threading
from codecfleet.cluster.ray.sigterm import sigterm_kills
from codecfleet.cluster.worker.ray_worker import RayWorker
signal.signal(signal.SIGTERM, signal.SIG_IGN)
thread = threading.Thread(target={call})
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.parametrize("call", ["sigterm_kills", "lambda: RayWorker(1)"])
def test_it_kills_whatever_python_would_do(call: str) -> None:
    """The call removes a handler of SIGTERM, on any thread, so that the signal ends the process."""
    assert subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], check=False).returncode == -signal.SIGTERM
