"""Sources that stay open between one range of a track and the next, so that their index is not read again.

Only a container in which seeking gives the packets that a container opened afresh gives is used again; docs/design.md
says which are. Whatever may have changed a container's state for good ends its use.
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

from .location import is_local
from .opening import OpeningReads, open_source
from .source_version import source_version

__all__ = ["KEPT", "KEPT_FORMATS", "KeptSources", "OpenSource"]

KEPT_FORMATS: Final = ("mov", "matroska")
"""The first names of the demuxers that are used again."""
MOST_KEPT: Final = 16
"""At least as many as a worker decodes at once; a film of hours takes some megabytes."""
IDLE_S: Final = 30

_Key: TypeAlias = tuple[str, int, Hashable]


@dataclass(slots=True, eq=False)
class OpenSource:
    """An open source, used by one thread at a time for one of its tracks.

    ``key`` says what it is, None where nothing tells one version of it from another.
    """

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
        return (
            self.key is not None and not self.is_spoiled and self.entries == index_entries(self.container, self.track)
        )

    def close(self) -> None:
        """Close it."""
        self.is_closed = True
        self._stack.close()


@dataclass(slots=True)
class _Opening:
    """What opening a source has read, for those who open it at the same time or soon after."""

    reads: OpeningReads = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_s: float = math.inf


class KeptSources:
    """The sources of a process that are open and idle. Every method may be called from any thread.

    Args:
        most: how many are kept; the longest idle one is closed for another.
        clock: the time in seconds, from any beginning.
    """

    def __init__(self, most: int = MOST_KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        # Reentrant: garbage collection in here may end a generator, which then gives its source back.
        self._lock = threading.RLock()
        self._idle: list[OpenSource] = []
        self._openings: dict[_Key, _Opening] = {}

    @contextmanager
    def borrow(self, source: str, track: int, *, afresh: bool = False) -> Iterator[OpenSource]:
        """Have a source to oneself: one that was kept, or one that is opened now.

        Args:
            source: path or URL.
            track: index of the stream that is read; all others are left out.
            afresh: open it now, to read it from its beginning.

        Raises:
            InputError: it cannot be opened.
        """
        self.close_idle()
        version = source_version(source)
        key = None if version is None else (source, track, version)
        opened = (None if afresh or key is None else self._take(key)) or self._open(source, track, key)
        try:
            yield opened
        except GeneratorExit:
            self._give_back(opened)  # the reader has enough
            raise
        except BaseException:
            opened.close()
            raise
        self._give_back(opened)

    def close_idle(self, longer_than_s: float = IDLE_S) -> None:
        """Close those that have been idle for so long."""
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
        # One after the other: what the first reads, such as an index of megabytes, those behind it have already.
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
    """Return how many packets an mp4's index has for a track; Matroska's is completed by what is read, to no effect."""
    is_boxed = container.format.name.startswith("mov") and track < len(container.streams)
    return len(container.streams[track].index_entries) if is_boxed else 0


KEPT: Final = KeptSources()
"""Those of this process."""

atexit.register(KEPT.close_idle, 0)
