"""Lists this user's nodes on this machine, each by a locked file in the directory of the warm fleets' sockets.

The kernel reports which process holds a lock, if it is in this PID namespace. A process of another container is
therefore never mistaken for a node's process.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import FleetUnavailable
from ..fleet.meeting_place import MeetingPlace, locked_place

_PREFIX: Final = "node-"
_LOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux (fcntl.h): type, whence, start, length, process."""


class KeptNode(NamedTuple):
    """A process that keeps a node."""

    process: int
    ends_within_s: int  # how long the process may take to end


@contextmanager
def registered(ends_within_s: int) -> Iterator[None]:
    """Let ``kept_nodes`` list this process during the block, if the directory can be used."""
    file = None
    with suppress(FleetUnavailable, OSError):
        file = _write(ends_within_s)
    try:
        yield
    finally:
        if file is not None:
            _remove(file)


def _write(ends_within_s: int) -> Path:
    with locked_place() as place:
        file = place.path / f"{_PREFIX}{os.getpid()}"
        # The descriptor is never closed. The lock ends when the process ends or closes any descriptor of the file.
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(lock, str(ends_within_s).encode())
        return file


def _remove(file: Path) -> None:
    with suppress(OSError, FleetUnavailable), MeetingPlace.open(make=False) as place:
        file.unlink()
        if place.lock(waits=False):
            place.remove_if_empty()


def kept_nodes() -> list[KeptNode]:
    """Return the running nodes, and remove the files of killed nodes.

    Raises FleetUnavailable as ``locked_place`` does.
    """
    try:
        with MeetingPlace.open(make=False) as place:
            place.lock()
            found = [_read(file) for file in sorted(place.path.glob(f"{_PREFIX}*"))]
            place.remove_if_empty()
    except FileNotFoundError:
        return []
    return [node for node in found if node is not None]


def _read(file: Path) -> KeptNode | None:
    with suppress(OSError, ValueError), file.open("r+b") as content:
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, process = _LOCK.unpack(fcntl.fcntl(content, fcntl.F_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            file.unlink()
        elif process > 0:
            return KeptNode(process, int(content.read()))
    return None
