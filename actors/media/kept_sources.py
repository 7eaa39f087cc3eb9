"""Sources that stay open between ranges of a track, so that their index is not read again.

Only sources whose packets after a seek do not depend on earlier reads are kept; docs/design.md lists the containers.
"""

import atexit
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from av.codec.context import CodecContext
from av.container import InputContainer

from ..limits import NO_LIMITS
from .av_abi import add_to_index, configure_decoder, set_parameters
from .av_stream import extradata
from .headers import FilePart
from .location import HeldSource, is_local
from .opening import open_source
from .remote_file import KnownBytes, WantedBytes
from .seeking import AccessPoint
from .stores import Shipment, place_of

KEPT_FORMATS: Final = ("mov", "matroska")
"""The demuxers whose open containers are reused; a demuxer with several names is listed by its first name."""
MOST_KEPT: Final = 16
"""How many idle sources are kept: at least as many as a worker decodes at once. The index of a long film takes several
megabytes.
"""
MOST_KNOWN: Final = 256
"""The most sources whose facts are kept: FFmpeg's description of a track takes tens of kilobytes."""
IDLE_S: Final = 30
_Key: TypeAlias = tuple[str, int, Hashable]


@dataclass(slots=True, eq=False)
class OpenSource:
    """A source that is open for one track, used by one thread at a time; ``key`` is None if the version is unknown."""

    container: InputContainer
    track: int
    key: _Key | None
    entries: int
    wanted: WantedBytes
    """The parts of a remote source to read ahead; the borrower sets ``span_bytes``."""
    is_remote: bool
    _stack: ExitStack
    idle_since_s: float = 0
    is_spoiled: bool = False
    is_closed: bool = False

    @property
    def may_stay(self) -> bool:
        """Whether a seek still leads to the same packets; False if the index grew, as in a fragmented file."""
        is_usable = self.key is not None and not self.is_spoiled
        return is_usable and self.entries == index_entries(self.container, self.track)

    def lead_to(self, entry: AccessPoint) -> None:
        """Add ``entry`` to a remote source's index: without cues the demuxer would read everything before the entry."""
        if self.is_remote:
            for ticks, pos_bytes in entry.indexed:
                add_to_index(self.container.streams[self.track], ticks=ticks, pos_bytes=pos_bytes)

    def close(self) -> None:
        """Close the container and its file."""
        self.is_closed = True
        self._stack.close()


@dataclass(frozen=True, slots=True)
class _Found:
    """A track's parameters, found by decoding the first pictures of an mp4; the context ``stated`` is never opened."""

    stated: CodecContext
    entries: int
    configuration: bytes

    @classmethod
    def of(cls, container: InputContainer, track: int) -> "_Found | None":
        """Return a track's parameters; None for containers other than mp4, because their times depend on decoding."""
        if not _is_mp4_track(container, track):
            return None
        stream = container.streams[track]
        # PyAV's types promise a context, but a codec unknown to FFmpeg has none.
        if getattr(stream, "codec_context", None) is None:
            return None
        stated = CodecContext.create(stream.codec_context.codec, "r")
        configure_decoder(stated, stream)
        return cls(stated, index_entries(container, track), extradata(stream))

    def tell(self, opened: OpenSource) -> bool:
        """Apply the parameters to a source opened without decoding pictures; return False if the container differs."""
        stream = opened.container.streams[opened.track]
        is_alike = (opened.entries, extradata(stream)) == (self.entries, self.configuration)
        if is_alike:
            set_parameters(stream, self.stated)
        return is_alike


@dataclass(slots=True)
class _Opening:
    """The known facts about a source, for other threads that open the source at the same time or soon after."""

    known: KnownBytes = field(default_factory=KnownBytes)
    lock: threading.Lock = field(default_factory=threading.Lock)
    last_s: float = 0.0  # when the facts were last asked for; ``KeptSources`` sets it
    is_looked_at: bool = False
    found: _Found | None = None

    def open(self, source: str, track: int, key: _Key, wanted: WantedBytes) -> OpenSource:
        """Open the source. Later openings decode pictures again only if the packets depend on decoding."""
        if wanted.part is not None:
            return _open(source, track, key, wanted)
        if (found := self.found) is not None:
            opened = _open(source, track, key, wanted, undecoded=True)
            if found.tell(opened):
                return opened
            opened.close()
            self.found = None
        opened = _open(source, track, key, wanted)
        if not self.is_looked_at:
            self.look_at(opened.container, track)
        return opened

    def look_at(self, container: InputContainer, track: int) -> None:
        """Keep the parameters that were found when a container was opened."""
        self.found = _Found.of(container, track)
        self.is_looked_at = True


class KeptSources:
    """A process's open, idle sources; beyond ``most``, the one that has been idle longest is closed. Thread-safe."""

    def __init__(self, most: int = MOST_KEPT, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        # Reentrant: while a thread holds the lock, garbage collection may end a generator, which then gives its source
        # back.
        self._lock = threading.RLock()
        self._idle: list[OpenSource] = []
        self._openings: dict[_Key, _Opening] = {}

    @contextmanager
    def borrow(
        self,
        source: str,
        track: int,
        *,
        afresh: bool = False,
        expected: Hashable | None = None,
        shipment: Shipment | None = None,
        part: FilePart | None = None,
    ) -> Iterator[OpenSource]:
        """Hold a source exclusively, kept or newly opened, to read the stream with index ``track``.

        With ``afresh``, the source is opened now, to be read from the beginning. ``expected`` is the
        ``version_anywhere`` that the source must have, or None. ``shipment`` says how to read a source that is on
        another machine. ``part`` limits the bytes of a remote source that the demuxer sees; such a source is not kept.
        ``InputError`` if the source cannot be opened or has another version.
        """
        self.close_idle()
        source, version = place_of(source, expected, shipment)
        key = None if version is None else (source, track, version)
        part = None if is_local(source) else part
        opened = None if afresh or key is None or part is not None else self._take(key)
        opened = opened or self._open(source, track, key, part)
        try:
            yield opened
        except GeneratorExit:
            self._give_back(opened)
            raise
        except BaseException:  # the source cannot be read any further, because its position is unknown
            opened.close()
            raise
        self._give_back(opened)

    def look_at(self, source: str, version: Hashable | None, container: InputContainer, track: int) -> None:
        """Keep the facts that ``container`` found in a local source, for the next opening in this process.

        Call this before ``container`` reads on. ``version`` is the ``source_version`` from before the opening.
        """
        self.close_idle()
        if version is None or not is_local(source):
            return
        opening = self._opening((source, track, version))
        with opening.lock:
            if not opening.is_looked_at:
                opening.look_at(container, track)

    def close_idle(self, longer_than_s: float = IDLE_S) -> None:
        """Close the sources that have been idle for longer than ``longer_than_s``."""
        latest_s = self._clock() - longer_than_s
        with self._lock:
            # The facts are in the order of their last use.
            while self._openings and next(iter(self._openings.values())).last_s <= latest_s:
                del self._openings[next(iter(self._openings))]
        self._close(lambda each: each.idle_since_s <= latest_s)

    def forget(self, source: str) -> None:
        """Close the idle containers of a source. Facts about a local file stay known for ``IDLE_S``."""
        if isinstance(source, HeldSource) or not is_local(source):
            with self._lock:
                self._openings = {key: each for key, each in self._openings.items() if key[0] != source}
        self._close(lambda each: each.key is not None and each.key[0] == source)

    def _close(self, is_over: Callable[[OpenSource], bool]) -> None:
        """Close the idle sources for which ``is_over`` is true."""
        with self._lock:
            closing = [each for each in self._idle if is_over(each)]
            self._idle = [each for each in self._idle if each not in closing]
        for each in closing:
            each.close()

    def _opening(self, key: _Key) -> _Opening:
        """Return the known facts about a source; the facts unused for longest are dropped."""
        with self._lock:
            opening = self._openings.pop(key) if key in self._openings else _Opening()
            opening.last_s = self._clock()
            self._openings[key] = opening
            while len(self._openings) > MOST_KNOWN:
                del self._openings[next(iter(self._openings))]
        return opening

    def _open(self, source: str, track: int, key: _Key | None, part: FilePart | None) -> OpenSource:
        wanted = WantedBytes(needs_duration=False, part=part, span_bytes=None if part is None else part.span_bytes)
        if key is None:
            return _open(source, track, key, wanted)
        opening = self._opening(key)
        wanted.known = opening.known
        is_remote = not is_local(source)
        if is_remote or not opening.is_looked_at:
            # One opening at a time: later openings reuse facts and bytes of the first, such as an index of several
            # megabytes.
            with opening.lock:
                if is_remote or not opening.is_looked_at:
                    return opening.open(source, track, key, wanted)
        return opening.open(source, track, key, wanted)

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


def _open(source: str, track: int, key: _Key | None, wanted: WantedBytes, *, undecoded: bool = False) -> OpenSource:
    with ExitStack() as stack:
        container = stack.enter_context(
            open_source(source, wanted, limits=NO_LIMITS, undecoded=undecoded, large_reads=True)
        )
        is_known = wanted.part is None and container.format.name.split(",")[0] in KEPT_FORMATS
        entries = index_entries(container, track)
        kept = key if is_known else None
        return OpenSource(container, track, kept, entries, wanted, not is_local(source), stack.pop_all())


def index_entries(container: InputContainer, track: int) -> int:
    """Return how many entries an mp4's index has for a track; 0 for Matroska, whose index may grow without harm."""
    return len(container.streams[track].index_entries) if _is_mp4_track(container, track) else 0


def _is_mp4_track(container: InputContainer, track: int) -> bool:
    return container.format.name.startswith("mov") and track < len(container.streams)


KEPT: Final = KeptSources()
"""The sources that this process keeps open between runs of work."""

atexit.register(KEPT.close_idle, 0)
