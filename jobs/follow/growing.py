"""Decides when a file that another program appends to has ended, and reads it while it grows."""

import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from ...actors.media.location import UNKNOWN_BYTES
from ...actors.media.opening import open_local
from ...actors.media.structure import boxes
from ...errors import InputNotFound, InputUnreadable

ELSEWHERE: Final = "Follow the new recording into another folder."
_POLL_S: Final = 0.1
_FIRST_BOXES: Final = frozenset({b"ftyp", b"styp", b"free", b"skip", b"wide", b"mdat", b"moov", b"pnot"})


@dataclass(frozen=True, slots=True)
class FileState:
    """What the file system says of a file."""

    identity: tuple[int, int]  #: Device and inode
    size_bytes: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the state of the file that has this name now. Raises InputNotFound."""
        try:
            found = path.stat()
        except OSError as error:
            raise InputNotFound(f"{path} cannot be found: {error.strerror}", "Start the recorder first.") from error
        return cls((found.st_dev, found.st_ino), found.st_size)


@dataclass(frozen=True, slots=True)
class Growth:
    """A growing file as it was last seen."""

    state: FileState
    grown_at_s: float  #: When it was first seen with this size
    is_over: bool = False  #: Whether it counts as ended: it did not grow for the quiet time

    def seen(self, path: Path, state: FileState, now_s: float, quiet_s: float) -> "Growth":
        """Return the growth after another look at the file. A file that is over stays over: later bytes are not read.

        Raises InputUnreadable: the file was replaced, or has become shorter.
        """
        if state.identity != self.state.identity or state.size_bytes < self.state.size_bytes:
            how = "was replaced" if state.identity != self.state.identity else "has become shorter"
            message = f"{path} {how} while it was followed: the recorder has probably started again"
            raise InputUnreadable(message, ELSEWHERE)
        if self.is_over:
            return self
        if state.size_bytes > self.state.size_bytes:
            return Growth(state, now_s)
        return replace(self, is_over=now_s - self.grown_at_s >= quiet_s)


class GrowingEnd:
    """Tells readers in other threads how far they may read a growing file, or to stop at once.

    No reader reads beyond ``seen_bytes``, so all of them end at the same byte, even if the file grows again later.
    """

    def __init__(self, seen_bytes: int, *, is_final: bool = False) -> None:
        self.seen_bytes = seen_bytes
        self.is_final = is_final  #: Whether the recording ends at ``seen_bytes``
        self.is_stopped = False


class GrowingFile:
    """Reads a file from its beginning; at the present end, it waits for more. Use it in one thread.

    Raises InputNotFound; InputUnreadable: it is a folder or a pipe, or cannot be read.
    """

    def __init__(self, path: Path, end: GrowingEnd) -> None:
        self.name = str(path)
        self._file = open_local(path)
        self._end = end
        self._position = 0
        self._pause = threading.Event()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def seekable(self) -> bool:
        """Return True: a demuxer may go back."""
        return True

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position and return it."""
        start = {os.SEEK_CUR: self._position, os.SEEK_END: UNKNOWN_BYTES}.get(whence, 0)
        self._position = max(0, start + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Wait for a byte, and return up to ``size`` bytes; b"" once the file has ended or its readers are stopped."""
        while size and not self._end.is_stopped:
            is_final = self._end.is_final  # read first: once it is True, ``seen_bytes`` no longer changes
            left = max(0, self._end.seen_bytes - self._position)
            data = os.pread(self._file.fileno(), left if size < 0 else min(size, left), self._position)
            if data or is_final:
                self._position += len(data)
                return data
            self._pause.wait(_POLL_S)
        return b""


def refuse_late_index(file: GrowingFile) -> None:
    """Wait for the file's first boxes. Raises InputUnreadable: it is an mp4 or mov whose index follows its content."""

    def read(position: int, size: int) -> bytes:
        file.seek(position)
        data = file.read(size)
        while data and len(data) < size and (more := file.read(size - len(data))):
            data += more
        return data

    for number, box in enumerate(boxes(read, 0, None)):
        if (number == 0 and box.kind not in _FIRST_BOXES) or box.kind == b"moov":
            return
        if box.kind == b"mdat":
            message = f"{file.name} cannot be followed: this mp4 gets its index only when the recorder ends"
            raise InputUnreadable(message, "Record to .ts or .mkv, or make the ladder when the recording is finished.")
