"""Reads workers' heartbeats, and feeds what follows from them to the core."""

import asyncio
from collections.abc import Callable

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...logs.writing import log
from ...ray.ray_failures import LossScope, classify
from ...ray.ray_words import first_line
from ...worker.heartbeat import Heartbeat, speed_between
from ...worker.newest_term import OldTerm
from ..backends.backend import ClusterBackend
from ..state.events import Encoding, Measured, RecycleDue, SupervisorEvent

STOOD_STILL_S = 0.25
"""How much less than its limit a missed answer may have taken on our clock; else this process itself stood still."""


_NOTHING_SAID = Heartbeat(0, ())


class Heartbeats:
    """The last heartbeat of each worker, and its speed; a worker without one for ``limit_s`` is reported to ``died``.

    ``feed`` takes the resulting events, ``note_speed`` a worker's speed while its device decoded, ``note_beats`` two
    heartbeats in a row, ``superseded`` that a worker obeys a newer supervisor. ``clock`` returns seconds in which this
    process ran.
    """

    def __init__(
        self,
        backend: ClusterBackend,
        limit_s: float,
        *,
        feed: Callable[[SupervisorEvent], None],
        died: Callable[[str, str], None],
        note_speed: Callable[[str, float], None],
        note_beats: Callable[[str, Heartbeat, Heartbeat], None],
        superseded: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._limit_s = limit_s
        self._feed = feed
        self._died = died
        self._note_speed = note_speed
        self._note_beats = note_beats
        self._superseded = superseded
        self._clock = clock
        self._last: dict[str, tuple[float, Heartbeat]] = {}
        self.fps: dict[str, float] = {}

    def forget(self, worker: str) -> None:
        """Drop a worker that is gone."""
        self._last.pop(worker, None)
        self.fps.pop(worker, None)

    async def read(self, worker: str) -> None:
        """Read a worker's heartbeat, which renews it."""
        asked_s = self._clock()
        try:
            heartbeat = await asyncio.wait_for(self._backend.heartbeat(worker), self._limit_s)
        except TimeoutError:
            if self._clock() - asked_s >= self._limit_s - STOOD_STILL_S:
                self._died(worker, f"it has not answered for {self._limit_s:g} s")
        except OldTerm:
            self._superseded()
        except Exception as error:  # noqa: BLE001 - ``death_of`` reports deaths
            if classify(error) is LossScope.CODE:
                line = f"the heartbeat of worker {worker} cannot be read: {first_line(error)}"
                log(LogAction.DEFECT, line, LogIds(worker=worker), error)
        else:
            self._compare(worker, heartbeat)

    def _compare(self, worker: str, heartbeat: Heartbeat) -> None:
        """Feed what has changed since the last heartbeat."""
        if heartbeat.recycle_due:
            self._feed(RecycleDue(worker, heartbeat.recycle_due))
        now_s = self._clock()
        # The first may be of a worker that an earlier supervisor started: what it has open and learnt is news here.
        _, said = self._last.get(worker, (now_s, _NOTHING_SAID))
        before_s, before = self._last.get(worker, (now_s, heartbeat))
        self._last[worker] = (now_s, heartbeat)
        self._note_beats(worker, before, heartbeat)
        refused_at = heartbeat.refused_at if heartbeat.refusals > said.refusals else None
        if heartbeat.encoding != said.encoding or refused_at is not None:
            self._feed(Encoding(worker, heartbeat.encoding, refused_at))
        if now_s <= before_s:
            return
        speed = speed_between(before, heartbeat, now_s - before_s)
        self.fps[worker] = speed.fps
        if heartbeat.decoding or before.decoding:
            self._note_speed(worker, speed.fps)
        if speed.job and speed.fps > 0:
            self._feed(Measured(worker, speed.job, speed.sessions, speed.fps, speed.on_device))
