"""The indexes of the local files that this process read most recently, for films that are opened again."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from ...actors.limits import InputLimits
from ...actors.media.location import HeldSource, is_local
from ..source.source import SourceReading, SourceStamp, read_source

MOST_PACKETS: Final = 1_000_000  #: The most packets in all kept indexes; a packet takes about 50 bytes
MOST_READINGS: Final = 1_000
_SETTLED_NS: Final = 2 * 10**9
"""A file that changed more recently may change again at the same stated time, as some file systems round to 2 s."""

_Key: TypeAlias = tuple[SourceStamp, int, InputLimits]


class Readings:
    """Keeps readings of files; those unused for longest are dropped first. Thread-safe.

    Only local files are kept: held bytes are a new object each time, and a remote source may have changed unnoticed.
    """

    def __init__(
        self, read: Callable[[str, int], SourceReading] = read_source, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._read = read
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, SourceReading] = OrderedDict()
        self._packets = 0

    def read(self, stamp: SourceStamp, track: int) -> SourceReading:
        """Return the reading of video track ``track`` of a source. Raises the errors of ``read_source``."""
        if not self._is_settled(stamp):
            return self._read(stamp.source, track)
        key = (stamp, track, InputLimits.of(os.environ))
        with self._lock:
            if (found := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return found
        reading = self._read(stamp.source, track)
        if SourceStamp.of(stamp.source) == stamp:
            self._keep(key, reading)
        return reading

    def _is_settled(self, stamp: SourceStamp) -> bool:
        source, facts = stamp.source, stamp.facts
        if isinstance(source, HeldSource) or not is_local(source) or not isinstance(facts, tuple):
            return False
        return bool(facts[3] + _SETTLED_NS < self._clock_ns())

    def _keep(self, key: _Key, reading: SourceReading) -> None:
        with self._lock:
            if key in self._kept or reading.index.packets > MOST_PACKETS:
                return
            self._kept[key] = reading
            self._packets += reading.index.packets
            while self._packets > MOST_PACKETS or len(self._kept) > MOST_READINGS:
                _, dropped = self._kept.popitem(last=False)
                self._packets -= dropped.index.packets


READINGS: Final = Readings()
