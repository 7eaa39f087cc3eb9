"""Sources that stay open between ranges of a track, so that their index is not read again.

A container is reused only where seeking in it gives the packets that a fresh one gives (docs/design.md lists which),
and until something may have changed its state for good.
"""

import atexit
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from av.container import InputContainer

from ...errors import InputUnreadable
from .location import is_local, local_path
from .opening import OpeningReads, open_source, store_options

KEPT_FORMATS: Final = ("mov", "matroska")
"""The first names of the demuxers that are reused."""
MOST_KEPT: Final = 16
"""At least as many as a worker decodes at once; a film of hours takes some megabytes."""
IDLE_S: Final = 30
_MARKS: Final = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "updated", "created")
"""What stores call the tag of a file's content, or the time of its last change."""

_Key: TypeAlias = tuple[str, int, Hashable]


def local_version(source: str) -> tuple[int, ...] | None:
    """Return device, inode, bytes and time of the last change of a local source; None where there is no file."""
    try:
        found = local_path(source).stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def source_version(source: str) -> Hashable | None:
    """Return what changes when a source is replaced or written to; None where there is none, or no store states it.

    A remote one has its size, its tag and the time of its last change, as far as its store states them.
    """
    if is_local(source):
        return local_version(source)
    from fsspec.core import url_to_fs

    try:
        filesystem, path = url_to_fs(source, **store_options(source))
        filesystem.invalidate_cache(path)
        stated = filesystem.info(path)
    except Exception:  # noqa: BLE001 - stores raise errors of their own; opening the source reports them
        return None
    marks = tuple(str(stated[mark]) for mark in _MARKS if stated.get(mark))
    return (stated.get("size"), *marks) if marks else None


def version_anywhere(source: str, version: Hashable | None) -> Hashable | None:
    """Return the part of a source's version that every node sees alike: of a local one its bytes and whole seconds."""
    if is_local(source) and isinstance(version, tuple):
        *_, size_bytes, changed_ns = version
        return size_bytes, changed_ns // 10**9
    return version


def changed_meanwhile(source: str) -> InputUnreadable:
    """Return the error for a source that is not what it was when the job began."""
    message = f"{source} was changed or removed while it was read"
    return InputUnreadable(message, "Start again once nothing writes to it any more.")


@dataclass(slots=True, eq=False)
class OpenSource:
    """An open source, used by one thread at a time for one track; ``key`` is None where its version is unknown."""

    container: InputContainer
    track: int
    key: _Key | None
    entries: int
    _stack: ExitStack
    idle_since_s: float = 0
    is_spoiled: bool = False
    is_closed: bool = False

    @property
    def may_stay(self) -> bool:
        """Whether seeking in it gives what it gave at first.

        An index that has grown is that of a fragmented file: where a seek leads depends on what was read.
        """
        is_usable = self.key is not None and not self.is_spoiled
        return is_usable and self.entries == index_entries(self.container, self.track)

    def close(self) -> None:
        """Close it."""
        self.is_closed = True
        self._stack.close()


@dataclass(slots=True)
class _Opening:
    """What opening a source has read, for others that open it at the same time or soon after."""

    reads: OpeningReads = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_s: float = math.inf


class KeptSources:
    """A process's open, idle sources: ``most`` of them, the longest idle closed first. Thread-safe."""

    def __init__(self, most: int = MOST_KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        # Reentrant: garbage collection in here may end a generator, which then gives its source back.
        self._lock = threading.RLock()
        self._idle: list[OpenSource] = []
        self._openings: dict[_Key, _Opening] = {}

    @contextmanager
    def borrow(
        self, source: str, track: int, *, afresh: bool = False, expected: Hashable | None = None
    ) -> Iterator[OpenSource]:
        """Hold a source exclusively, kept or newly opened, to read the stream of index ``track``.

        ``afresh`` opens it now, to read it from its beginning. ``expected`` is its ``version_anywhere``, None for any.

        Raises:
            InputError: it cannot be opened, or is another version than expected.
        """
        self.close_idle()
        version = source_version(source)
        if expected is not None and version is not None and version_anywhere(source, version) != expected:
            raise changed_meanwhile(source)
        key = None if version is None else (source, track, version)
        opened = (None if afresh or key is None else self._take(key)) or self._open(source, track, key)
        try:
            yield opened
        except GeneratorExit:
            self._give_back(opened)
            raise
        except BaseException:
            opened.close()
            raise
        self._give_back(opened)

    def close_idle(self, longer_than_s: float = IDLE_S) -> None:
        """Close those that have been idle for longer."""
        with self._lock:
            latest_s = self._clock() - longer_than_s
            closing = [each for each in self._idle if each.idle_since_s <= latest_s]
            self._idle = [each for each in self._idle if each.idle_since_s > latest_s]
            self._openings = {key: each for key, each in self._openings.items() if each.last_s > latest_s}
        for each in closing:
            each.close()

    def _open(self, source: str, track: int, key: _Key | None) -> OpenSource:
        if key is None or is_local(source):
            return _open(source, track, key, {})
        with self._lock:
            opening = self._openings.setdefault(key, _Opening())
        # One at a time: what the first reads, such as an index of megabytes, the next ones have already.
        with opening.lock:
            opening.last_s = self._clock()
            return _open(source, track, key, opening.reads)

    def _take(self, key: _Key) -> OpenSource | None:
        with self._lock:
            found = next((each for each in self._idle if each.key == key), None)
            if found is not None:
                self._idle.remove(found)
        return found

    def _give_back(self, opened: OpenSource) -> None:
        if not opened.may_stay:
            opened.close()
            return
        opened.idle_since_s = self._clock()
        with self._lock:
            self._idle.append(opened)
            closing = self._idle[: -self._most]
            self._idle = self._idle[-self._most :]
        for each in closing:
            each.close()


def _open(source: str, track: int, key: _Key | None, reads: OpeningReads) -> OpenSource:
    with ExitStack() as stack:
        container = stack.enter_context(open_source(source, reads))
        is_known = container.format.name.split(",")[0] in KEPT_FORMATS
        entries = index_entries(container, track)
        return OpenSource(container, track, key if is_known else None, entries, stack.pop_all())


def index_entries(container: InputContainer, track: int) -> int:
    """Return how many packets an mp4's index has for a track; Matroska's grows as it is read, to no effect."""
    is_boxed = container.format.name.startswith("mov") and track < len(container.streams)
    return len(container.streams[track].index_entries) if is_boxed else 0


KEPT: Final = KeptSources()
"""This process's."""

atexit.register(KEPT.close_idle, 0)
