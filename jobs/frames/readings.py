"""The indexes of the local files that this process read last, for films that are opened again."""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from ...actors.limits import InputLimits
from ...actors.media.location import HeldSource, is_local
from ..source.source import SourceReading, SourceStamp, read_source

MOST_PACKETS: Final = 1_000_000  #: The packets of all kept indexes together, about 50 bytes each
MOST_READINGS: Final = 1_000
_SETTLED_NS: Final = 2 * 10**9
"""A file changed more recently than this may change again with the same time: some ticks last up to 2 s."""

_Key: TypeAlias = tuple[SourceStamp, int, InputLimits]


class Readings:
    """Keeps readings of files, the longest unused dropped first. Thread-safe.

    Held bytes and remote sources are read each time: held bytes are new objects, and a remote source may hide a change.
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
        """Return the reading of a source's ``track``-th video track; raises like ``read_source``."""
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
"""This process's."""
