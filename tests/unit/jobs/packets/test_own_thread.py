"""The thread of a packet session, and the calls that it takes."""

import subprocess
import sys
import threading
from typing import Final

import pytest

from codecfleet.errors import UsageError
from codecfleet.jobs.packets.own_thread import OwnThread

FORKED: Final = """
import os
from codecfleet.errors import UsageError
from codecfleet.jobs.packets.own_thread import OwnThread

with OwnThread("decoder", lambda: None) as decoder:
    assert decoder._call(lambda: 1) == 1
    if (child := os.fork()) == 0:
        try:
            decoder._call(lambda: 2)
        except UsageError as error:
            print(error.message.replace(str(os.getppid()), "N"), error.next_step, sep="; ", flush=True)
        decoder.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(decoder._call(lambda: 3))
"""


class Session(OwnThread):
    """A session that counts how many times it was closed."""

    def __init__(self) -> None:
        self.closed = 0
        super().__init__("session", self._last_call)

    def call(self) -> str:
        """Return the name of the thread in which calls run."""
        return self._call(lambda: threading.current_thread().name)

    def _last_call(self) -> None:
        self.closed += 1


def test_a_fork_of_the_process_is_refused() -> None:
    """In a fork, calls raise at once and ``close`` does nothing, while the parent's session continues."""
    command = [sys.executable, "-P", "-W", "ignore::DeprecationWarning", "-c", FORKED]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines() == ["the decoder belongs to process N, not to its fork; Open another one.", "3"]


def test_calls_run_in_one_thread_until_it_is_closed() -> None:
    """Every call runs in the same thread; after ``close``, which may be repeated, calls are refused."""
    session = Session()
    assert session.call() == session.call() == "codecfleet-session_0"
    session.close()
    session.close()
    assert session.closed == 1
    with pytest.raises(UsageError, match="the session is closed"):
        session.call()
