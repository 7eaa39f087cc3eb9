"""The warm sessions of one device, lent to whoever decodes."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ...errors import DeviceMemory
from .nvdec_session import NvdecSession, SessionKey

__all__ = ["NvdecPool", "PoolCounts"]


@dataclass(slots=True)
class PoolCounts:
    """What the pool has done: sessions made, and lent; a pool that is used well makes few and lends many."""

    made: int = 0
    lent: int = 0
    closed: int = 0


class NvdecPool:
    """Keeps sessions that were used once, for the next one who wants the same. Safe from any thread.

    Args:
        make: opens a session.
        idle_max: how many idle sessions are kept; beyond it the one that was idle longest is closed.
    """

    def __init__(self, make: Callable[[SessionKey], NvdecSession], idle_max: int) -> None:
        self._make = make
        self._idle_max = idle_max
        self._idle: OrderedDict[int, NvdecSession] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self.counts = PoolCounts()

    @contextmanager
    def lend(self, key: SessionKey) -> Iterator[NvdecSession]:
        """Lend a session for ``key``, warm where one is idle; one that comes back unclean is closed.

        Raises:
            DeviceError: none could be made.
        """
        session = self._take(key)
        try:
            session.enter()
            yield session
        finally:
            self._give_back(session)

    def close(self) -> None:
        """Close every idle session."""
        with self._lock:
            sessions, self._idle = list(self._idle.values()), OrderedDict()
            self.counts.closed += len(sessions)
        for session in sessions:
            session.close()

    def _take(self, key: SessionKey) -> NvdecSession:
        with self._lock:
            self.counts.lent += 1
            # The one used last: its memory is the warmest.
            for name, session in reversed(self._idle.items()):
                if session.key == key:
                    return self._idle.pop(name)
        # One at a time: the driver serialises it anyway, and a second attempt may need what the first gave back.
        with self._making:
            try:
                session = self._make(key)
            except DeviceMemory:
                self.close()
                session = self._make(key)
        with self._lock:
            self.counts.made += 1
        return session

    def _give_back(self, session: NvdecSession) -> None:
        surplus = []
        with self._lock:
            if session.is_clean:
                self._idle[id(session)] = session
            else:
                surplus.append(session)
            while len(self._idle) > self._idle_max:
                surplus.append(self._idle.popitem(last=False)[1])
            self.counts.closed += len(surplus)
        for each in surplus:
            each.close()
