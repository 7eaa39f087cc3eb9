"""Starts codecfleet's own programs: Python modules that share a channel with the process that started them."""

import json
import os
import socket
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from .running import UNLIMITED, Limits, Prints, Running, start_command

_PROGRAM: Final = (
    # Imports create many lasting objects, which garbage collection would search in vain.
    "import gc, importlib, json, sys; gc.set_threshold(10_000); sys.path[:] = json.loads(sys.argv.pop(1)); "
    "importlib.import_module(sys.argv.pop(1)).main()"
)
_FIRST_WORD_BYTES: Final = 1 << 16
_FILE: Final = os.stat(__file__)  # noqa: PTH116 - pathlib is slow to import
BUILD: Final = [_FILE.st_ino, _FILE.st_size, _FILE.st_mtime_ns]
"""Identifies this installation of the package, even among installations of the same version."""


class StartedProcess(NamedTuple):
    """The process at the other end of a channel, started or connected to."""

    end: socket.socket  #: this process's end of the channel
    kill: Callable[[], object]
    ended: Callable[[], str]  #: waits a few seconds for the process's end, and returns how it ended; called once
    death: int | None = None  #: a descriptor, readable once the process is dead; None if only ``end`` shows the death
    warm_fleet: int | None = None  #: the process id of the warm fleet, if this is only a connection to it
    note: str = ""  #: a remark for a job's report

    def first_word(self) -> bytes:
        """Return a program's first message (empty if the program ended), and close the channel; the program goes on."""
        try:
            with self.end:
                return self.end.recv(_FIRST_WORD_BYTES)
        except BaseException:
            self.kill()
            raise


def start_program(
    program: str, *settings: object, limits: Limits = UNLIMITED, outlives: bool = False
) -> StartedProcess:
    """Start a module whose ``main`` calls ``begin`` of ``program.py``, with settings that JSON can carry.

    The program has this process's search path, so its results may be of any class that is importable here. Unless it
    ``outlives`` the calling *thread*, the kernel ends the program with that thread. Raises OSError: the program cannot
    be started.
    """
    running = run_program(program, *settings, limits=limits, outlives=outlives)
    return StartedProcess(running.end, running.kill, running.ended, running.death)


def run_program(
    program: str,
    *settings: object,
    environment: dict[str, str] | None = None,
    limits: Limits = UNLIMITED,
    outlives: bool = False,
) -> Running:
    """Start a module as ``start_program`` does, with this process's environment if ``environment`` is None."""
    starter = 0 if outlives else os.getpid()
    argument = json.dumps([BUILD, starter, sys.argv[:1], *settings])
    # -P: no module of the current folder shadows a module of codecfleet.
    command = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(sys.path), program, argument]
    return start_command(command, prints=Prints.KEPT, environment=environment, limits=limits)
