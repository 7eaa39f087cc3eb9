"""The directory in which programs find their user's warm fleets and nodes, each by a socket.

Each version of the code has one warm fleet.

Because a connected program may run any work as the user, other users cannot enter the directory, and each side asks the
kernel which user runs the other side.
"""

import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from ...errors import FleetUnavailable

_SUFFIX: Final = ".sock"
NODE_PREFIX: Final = "node-"
"""The beginning of the names of nodes' sockets; all other sockets are of warm fleets."""
KILLED_S: Final = 5.0
"""How long a killed process may take to end."""
_PEER: Final = struct.Struct("3i")
"""struct ucred of unix(7): process, user, group."""
_GREETING_MAX_BYTES: Final = 4096
_PACKAGE: Final = Path(__file__).absolute().parents[2]


class Greeting(NamedTuple):
    """A warm fleet's first message to each program that connects."""

    version: str
    slots: int
    idle_s: float  # the fleet ends after this many seconds without a connected program

    def packed(self) -> bytes:
        """Return the greeting as a line of JSON."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def received(cls, end: socket.socket, timeout_s: float) -> Self:
        """Read the greeting, and nothing after it. Raises OSError, ValueError or TypeError if no greeting arrives."""
        end.settimeout(timeout_s)
        with end.makefile("rb", buffering=0) as unbuffered:
            line = unbuffered.readline(_GREETING_MAX_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the other side sent no greeting")
        return cls(**json.loads(line))


def code_name() -> str:
    """Return a name for this code: a digest of its resolved path, its files, and its Python.

    Work is sent as pickled values, so both sides need the same classes. Equal version numbers do not ensure this: a
    checkout may have changed, and environments may have different dependencies.
    """
    package = _PACKAGE.resolve()
    runs = f"{Path(sys.prefix).resolve()}\0{Path(sys.executable).resolve()}\0{sys.version}\0{package}"
    digest = hashlib.sha256(runs.encode(errors="surrogateescape"))
    for path, size_bytes, changed_ns in sorted(_files(str(package))):
        digest.update(f"\0{path}\0{size_bytes}\0{changed_ns}".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path)
            elif entry.name.endswith((".py", ".toml")):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns


def peer_of(end: socket.socket) -> tuple[int, int]:
    """Return the ids of the process and of the user on the other side; a process in another PID namespace has id 0."""
    process, user, _ = _PEER.unpack(end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return process, user


def _refuse_others(end: socket.socket) -> None:
    process, user = peer_of(end)
    if user != os.geteuid() or not process:
        raise PermissionError(f"the socket belongs to user {user}")


def meeting_path() -> Path:
    """Return the directory's path: in ``$XDG_RUNTIME_DIR`` if set, else in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and Path(runtime).is_dir():
        return Path(runtime) / "codecfleet"
    return Path("/tmp") / f"codecfleet-{os.geteuid()}"  # noqa: S108 - owner and mode are checked


class MeetingPlace:
    """The open directory of warm fleets and nodes.

    Sockets are reached by its descriptor, because their paths may be too long for a socket's address.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, *, make: bool) -> Self:
        """Open the directory; with ``make``, create it if it is missing.

        Raises FileNotFoundError: the directory is missing; FleetUnavailable: other users could enter the directory, or
        it cannot be opened.
        """
        path = meeting_path()
        try:
            if make:
                path.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            message = f"{path}, the directory of warm fleets, cannot be used: {error.strerror}"
            raise FleetUnavailable(
                message, "Remove the directory, or set XDG_RUNTIME_DIR to a directory that you own."
            ) from None
        place = cls(path, descriptor)
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            place.close()
            message = f"{path}, the directory of warm fleets, is open to other users"
            raise FleetUnavailable(message, f"Check the directory's files; then remove it, or run `chmod 700 {path}`.")
        return place

    def close(self) -> None:
        """Close the directory, and release its lock."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_current(self) -> bool:
        """Whether the path still leads to this directory; the last fleet removes the directory when it ends."""
        with suppress(OSError):
            return self.path.stat().st_ino == os.fstat(self._descriptor).st_ino
        return False

    def lock(self, *, waits: bool = True) -> bool:
        """Keep other programs from starting or ending fleets until ``close``.

        If another program has the lock, wait for it; without ``waits``, return False instead.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def names(self, *, of_nodes: bool = False) -> list[str]:
        """Return the names (``code_name``) of warm fleets' or nodes' sockets; some may belong to killed processes."""
        with os.scandir(self._descriptor) as entries:
            found = sorted(each.name.removesuffix(_SUFFIX) for each in entries if each.name.endswith(_SUFFIX))
        return [name for name in found if name.startswith(NODE_PREFIX) is of_nodes]

    def connect(self, name: str) -> socket.socket:
        """Connect to the warm fleet or node with this name.

        Raises OSError if it does not answer, or belongs to another user.
        """
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(0)  # a listener that accepts nothing must not block this process, which may hold the lock
            end.connect(self._reached(name))
            end.settimeout(None)
            _refuse_others(end)
        except BaseException:
            end.close()
            raise
        return end

    def process_at(self, name: str) -> int:
        """Return the process that listens on a socket; 0 if it is in another container, or was killed.

        A killed process's socket is removed. The lock must be held.
        """
        try:
            with self.connect(name) as end:
                return peer_of(end)[0]
        except ConnectionRefusedError:
            self.remove(name)
        except OSError:  # the process belongs to another container
            pass
        return 0

    def listen(self, name: str) -> socket.socket:
        """Listen on a new socket with this name, which replaces a killed process's socket. The lock must be held."""
        self.remove(name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self._reached(name))
        Path(self._reached(name)).chmod(0o600)
        listener.listen(socket.SOMAXCONN)
        return listener

    def inode(self, name: str) -> int:
        """Return a socket's inode; 0 if there is no socket. The inode is unique while the listener is open."""
        with suppress(FileNotFoundError):
            return os.stat(f"{name}{_SUFFIX}", dir_fd=self._descriptor).st_ino
        return 0

    def remove(self, name: str) -> None:
        """Remove the socket with this name, if it exists."""
        with suppress(FileNotFoundError):
            os.unlink(f"{name}{_SUFFIX}", dir_fd=self._descriptor)

    def remove_if_empty(self) -> None:
        """Remove the directory if it is empty. The lock must be held."""
        with suppress(OSError):
            self.path.rmdir()

    def _reached(self, name: str) -> str:
        return f"/proc/self/fd/{self._descriptor}/{name}{_SUFFIX}"


@contextmanager
def locked_place() -> Iterator[MeetingPlace]:
    """Create the directory if necessary, and lock it. Raises FleetUnavailable as ``MeetingPlace.open`` does."""
    while True:
        with MeetingPlace.open(make=True) as place:
            place.lock()
            if place.is_current:
                yield place
                return


def leave(name: str, inode: int) -> None:
    """Remove this process's socket; then remove the directory if it is empty and nothing is starting there."""
    with suppress(OSError, FleetUnavailable), MeetingPlace.open(make=False) as place:
        if place.inode(name) == inode:
            place.remove(name)
        if place.lock(waits=False):
            place.remove_if_empty()


def end_all(patience_s: Mapping[int, float]) -> list[int]:
    """End processes by SIGTERM, and kill each that takes longer than its patience; return those that were running."""
    handles = {}
    for process in patience_s:
        with suppress(ProcessLookupError):
            handles[process] = os.pidfd_open(process)
            signal.pidfd_send_signal(handles[process], signal.SIGTERM)
    for process, handle in handles.items():
        with suppress(ProcessLookupError):
            if not select.select([handle], [], [], patience_s[process])[0]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], KILLED_S)
        os.close(handle)
    return list(handles)
