"""A remote file that FFmpeg reads through fsspec: requests only the wanted parts, and maps the errors."""

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final, Self, TypeAlias, TypeVar

from ...errors import CodecfleetError, InputNotFound, InputUnreadable, StorageFailed
from .headers import FilePart, FragmentWatch
from .shared_blocks import MOST_AT_ONCE, SharedBlocks
from .storage_retry import is_away, is_busy, reason, status_of, try_again
from .stores import open_store

FIRST_BYTES: Final = 32 << 10
"""The size of the first request at a new place, where there may be an index or a table of which little is needed."""
_PAST_BYTES: Final = 4 << 10
"""How many bytes are requested beyond the wanted end: some demuxers read further than the packet."""
MOST_BYTES: Final = 2 << 20
"""The most bytes that one request asks for."""
_MOST_HELD_BYTES: Final = 4 << 20
"""The most bytes that are held: seeking in Matroska reads the same place twice, and segments follow each other."""
_MOST_OF_PART_BYTES: Final = 16 << 20
"""The most bytes of a ``FilePart`` that are held: the demuxer reads the tables of all the part's fragments first."""
_WATCHED_BYTES: Final = 32 << 10
"""The largest read while a watch follows FFmpeg's reads: as small as those of a local file."""
NEAR_BYTES: Final = 1 << 20
"""The largest step ahead that counts as sequential reading: FFmpeg skips packets of unwanted tracks."""
SEARCH_NEAR_BYTES: Final = 256 << 10
"""The largest sequential step ahead while a demuxer searches for its start, for example from table to table."""
_MOST_OPENING_READS: Final = 128
"""How many reads of an opening are recorded, at most, for later openings."""
_MOST_IN_MEMORY_BYTES: Final = 64 << 20
"""The largest file accepted from a web server that serves only whole files."""
_NOT_THERE: Final = (404, 410)

ResultT = TypeVar("ResultT")
OpeningReads: TypeAlias = dict[tuple[int, int], bytes]
"""The bytes that were read to open one version of a remote source, by (offset, requested length)."""
_Part: TypeAlias = tuple[int, bytes]
"""A position, and the bytes read there."""


@dataclass(slots=True)
class KnownBytes:
    """The known bytes of one version of a remote source. Threads may share them: ``last`` is replaced as a whole."""

    opening: OpeningReads = field(default_factory=dict)
    last: tuple[_Part, ...] = ()  # the bytes read last before the file was closed


@dataclass(slots=True)
class WantedBytes:
    """The parts of a remote source that are wanted."""

    known: KnownBytes = field(default_factory=KnownBytes)
    span_bytes: tuple[int, int] | None = None  # where reading will begin and end; None if unknown
    needs_duration: bool = True  # whether FFmpeg shall determine the container's duration
    part: FilePart | None = None  # the part that the demuxer sees; None means the whole file


class RemoteFile:
    """A remote file, open for reading.

    After its first failure it only reports the end of the file: if a second error followed before FFmpeg returns, PyAV
    would print the traceback of the first.

    Raises:
        InputNotFound: there is nothing at ``url``.
        InputUnreadable: the file may not be read, or its address is invalid.
        StorageFailed: the file's store does not answer.
    """

    def __init__(self, url: str, wanted: WantedBytes) -> None:
        self._url = url
        self.watch: FragmentWatch | None = None
        """Observes every read, if set."""
        self._failed = False
        self._stream = _opened(url)
        self._blocks = SharedBlocks.find(url)
        self._position = 0
        most_held_bytes = _MOST_HELD_BYTES if wanted.part is None else _MOST_OF_PART_BYTES
        self._ahead = _Ahead(wanted.known.last, most_held_bytes)
        self._wanted = wanted
        self._opening: OpeningReads | None = wanted.known.opening

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wanted.known.last = self._ahead.parts
        with suppress(Exception):  # a store's file may fail to close
            self._stream.close()
        if self._blocks is not None:
            self._blocks.close()

    def end_opening(self) -> None:
        """Stop watching and recording reads."""
        self._opening = self.watch = None

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, b"" at the end of the file. Raises StorageFailed."""
        if self._failed:
            return b""
        if self.watch is not None:
            size = min(size, _WATCHED_BYTES)
        known = None if self._opening is None else self._opening.get((self._position, size))
        data = self._tried(lambda: self._read(size)) if known is None else known
        if self._opening is not None and len(self._opening) < _MOST_OPENING_READS:
            self._opening[self._position, size] = data
        if self.watch is not None:
            self.watch.see(self._position, data)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position and return it. Raises StorageFailed."""
        if self._failed:
            return 0
        if whence == os.SEEK_END:
            self._position = int(self._tried(lambda: self._stream.seek(offset, whence)))
        else:
            self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""
        return self._position

    def _read(self, size: int) -> bytes:
        held = self._ahead.held(self._position, size)
        if held:
            return held
        goes_on = self._ahead.goes_on(self._position, NEAR_BYTES if self._is_within() else SEARCH_NEAR_BYTES)
        if self._blocks is not None:
            at_once = MOST_AT_ONCE if goes_on else 1
            data = self._blocks.read(self._position, size, self._fetched, at_once=at_once)
            self._ahead.note(self._position, data)
            return data
        asked = self._ahead.next_bytes(self._position, self._wanted.span_bytes, goes_on=goes_on)
        missing = min(asked, self._ahead.missing_bytes(self._position, asked))
        self._ahead.note(self._position, self._fetched(self._position, missing))
        return self._ahead.held(self._position, size)

    def _is_within(self) -> bool:
        """Return whether reading has reached the wanted part."""
        span_bytes = self._wanted.span_bytes
        return self._opening is None and (span_bytes is None or self._position >= span_bytes[0])

    def _fetched(self, position: int, size: int) -> bytes:
        try:
            data = self._part(position, size)
        except ValueError:
            self._stream = _whole(self._stream)
            data = self._part(position, size)
        if not data and size and position < (getattr(self._stream, "size", None) or 0):
            message = f"the store sent only {position} of {self._stream.size} bytes"
            raise OSError(errno.EIO, message)
        return data

    def _part(self, position: int, size: int) -> bytes:
        if self._stream.tell() != position:
            self._stream.seek(position)
        return bytes(self._stream.read(size))

    def _tried(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return try_again(call)
        except Exception as error:  # a store may raise any error
            self._failed = True
            message = f"{self._url} could not be read any further: {reason(error)}"
            raise StorageFailed(message, "Check the connection and start again, or download the file first.") from error


def _whole(stream: Any) -> BytesIO:
    """Fetch a whole file from a web server that does not serve ranges; fsspec reports such a server as a ValueError."""
    size_bytes = getattr(stream, "size", None)
    if size_bytes is None or size_bytes > _MOST_IN_MEMORY_BYTES or isinstance(stream, BytesIO):
        raise ValueError("the server does not support HTTP ranges")
    return BytesIO(stream.fs.cat_file(stream.path))


class _Ahead:
    """Holds the bytes read last, including surplus bytes of requests, and knows how much to request next."""

    def __init__(self, parts: Iterable[_Part], most_bytes: int) -> None:
        self._parts = deque(parts)
        self._most_bytes = most_bytes
        self._run_bytes = 0
        """How many bytes the current run of sequential reads has read."""

    @property
    def parts(self) -> tuple[_Part, ...]:
        """The bytes held, in the order in which they were read."""
        return tuple(self._parts)

    def held(self, position: int, size: int) -> bytes:
        """Return the bytes held from ``position`` on, at most ``size``."""
        for begin, data in reversed(self._parts):
            if begin <= position < begin + len(data):
                return data[position - begin : position - begin + size]
        return b""

    def missing_bytes(self, position: int, size: int) -> int:
        """Return how many bytes are missing from ``position`` to the next held byte; at most ``size``."""
        return min((begin - position for begin, _ in self._parts if begin > position), default=size)

    def goes_on(self, position: int, near_bytes: int) -> bool:
        """Return whether a read at ``position`` continues the last read, or starts shortly after its end."""
        if not self._parts:
            return False
        begin, data = self._parts[-1]
        return 0 <= position - (begin + len(data)) <= near_bytes

    def next_bytes(self, position: int, span_bytes: tuple[int, int] | None, *, goes_on: bool) -> int:
        """Return how much to request from ``position``: twice as much each time, up to the end of the needed part.

        The first request at a new place is small, because a searching demuxer reads little in many places.
        """
        if not goes_on:
            self._run_bytes = 0
        grown = min(max(self._run_bytes, FIRST_BYTES), MOST_BYTES)
        if span_bytes is None:
            return grown
        begin, end = span_bytes
        if position < begin:
            return min(grown, max(begin - position, FIRST_BYTES))
        if position < end:
            return min(end - position, grown)
        return min(max(position - end, _PAST_BYTES), MOST_BYTES)

    def note(self, position: int, data: bytes) -> None:
        """Hold the bytes read at ``position``, and as many earlier bytes as there is room for."""
        self._parts.append((position, data))
        self._run_bytes += len(data)
        while len(self._parts) > 1 and sum(len(part) for _, part in self._parts) > self._most_bytes:
            self._parts.popleft()


def _opened(url: str) -> Any:
    cause: BaseException | None
    try:
        return try_again(lambda: _open_once(url))
    except FileNotFoundError as error:
        cause = error.__cause__
        if cause is None or status_of(cause) in _NOT_THERE:
            raise InputNotFound(f"there is nothing at {url}", "Check the address.") from None
    except Exception as error:  # noqa: BLE001 - every store has its own errors
        cause = error
    if isinstance(cause, CodecfleetError):
        raise cause
    message = f"{url} cannot be opened: {reason(cause)}"
    if is_away(cause):
        raise StorageFailed(message, "Check the address, or start again when the server answers.") from cause
    raise InputUnreadable(message, "Check the address and the credentials, and install the protocol's fsspec package.")


def _open_once(url: str) -> Any:
    from fsspec.caching import BaseCache
    from fsspec.spec import AbstractBufferedFile

    files, path = open_store(url)
    try:
        stream = files.open(path, "rb")
    except FileNotFoundError as error:
        # fsspec reports every failure of a web server as a missing file. If the server is silent, fsspec has tried
        # twice.
        if error.__cause__ is not None and is_busy(error.__cause__):
            raise error.__cause__ from None
        raise
    if isinstance(stream, AbstractBufferedFile):
        # fsspec would read ahead by up to 50 MiB.
        stream.cache = BaseCache(stream.blocksize, stream._fetch_range, stream.size)  # noqa: SLF001 - no public method
    return stream
