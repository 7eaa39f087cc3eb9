"""Reads workers' heartbeats, and feeds the resulting events to the core."""

import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ....actors.worker.heartbeat import Heartbeat, speed_between
from ....actors.worker.orders import OldTerm
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...logs.writing import log
from ...ray.ray_failures import LossScope, classify
from ...ray.ray_words import first_line
from ...worker_names import NodeId, WorkerId
from ..backends.backend import ClusterBackend
from ..state.events import Died, Encoding, Measured, RecycleDue, SupervisorEvent
from ..state.silence import silent_workers

SENT_KEPT = 5  # the difference of two clocks is estimated from this many of a worker's last heartbeats
_NOTHING_DONE = Heartbeat(0, ())


@dataclass(slots=True, kw_only=True)
class Heartbeats:
    """Each worker's last heartbeat and speed; ``silent_workers`` decides which workers are reported dead."""

    backend: ClusterBackend
    limit_s: float
    clock: Callable[[], float]  # monotonic seconds, without the time in which this process was suspended
    feed: Callable[[SupervisorEvent], None]
    note: Callable[[WorkerId, Heartbeat, Heartbeat], None]  # called with a worker's last two heartbeats
    superseded: Callable[[], None]  # called if a worker obeys a newer supervisor
    utc: Callable[[], float] = time.time  # this machine's clock, in seconds since 1970
    fps: dict[WorkerId, float] = field(default_factory=dict)  # each worker's speed, in source frames a second
    # When each worker's last heartbeat arrived, and that heartbeat.
    _last: dict[WorkerId, tuple[float, Heartbeat]] = field(default_factory=dict)
    _asked_s: dict[WorkerId, float] = field(default_factory=dict)  # when each unanswered read was sent
    # Each worker's maximum speed while its device decoded, since the last ``take_decoding_fps``.
    _decoding_fps: dict[WorkerId, float] = field(default_factory=dict)
    # For each worker's last heartbeats, the arrival time by this machine's clock minus the sending time by the worker's
    # clock, in seconds.
    _delays: dict[WorkerId, deque[float]] = field(default_factory=dict)

    def forget(self, worker: WorkerId) -> None:
        """Drop a worker that is gone."""
        for kept in (self._last, self._asked_s, self.fps, self._decoding_fps, self._delays):
            kept.pop(worker, None)

    def skews_s(self) -> dict[NodeId, float]:
        """Return how many seconds each node's clock is behind this machine's clock; negative if it is ahead.

        Each number is an upper bound, because it includes the least delay of a few heartbeats.
        """
        found: dict[NodeId, float] = {}
        for worker, delays in self._delays.items():
            node = worker.station.node
            found[node] = min(*delays, found.get(node, delays[0]))
        return found

    def heard_s(self) -> dict[WorkerId, float]:
        """Return how many seconds ago each worker's last heartbeat arrived."""
        now_s = self.clock()
        return {worker: now_s - arrived_s for worker, (arrived_s, _) in self._last.items()}

    def take_decoding_fps(self, worker: WorkerId) -> float:
        """Return a worker's highest speed since the last call, while the worker's device decoded."""
        return self._decoding_fps.pop(worker, 0.0)

    def report_silent(self, workers: Collection[WorkerId]) -> None:
        """Report the workers that count as dead because they do not answer."""
        now_s = self.clock()
        waited_s = {worker: now_s - self._asked_s[worker] for worker in workers if worker in self._asked_s}
        for worker in silent_workers(waited_s, len(workers), self.limit_s):
            self.feed(Died(worker, f"it has not answered for {waited_s[worker]:.0f} s"))

    def is_due(self, worker: WorkerId) -> bool:
        """Return whether a worker's heartbeat can be read: each worker has one read at a time."""
        return worker not in self._asked_s

    async def read(self, worker: WorkerId) -> None:
        """Read a worker's heartbeat; the call renews the worker."""
        self._asked_s[worker] = self.clock()
        try:
            heartbeat = await self.backend.heartbeat(worker)
        except OldTerm:
            self.superseded()
        except Exception as error:  # noqa: BLE001 - ``death_of`` reports deaths
            if classify(error) is LossScope.CODE:
                line = f"the heartbeat of worker {worker} cannot be read: {first_line(error)}"
                log(LogAction.DEFECT, line, LogIds(worker=worker), error)
        else:
            if worker in self._asked_s:  # else it was forgotten meanwhile
                self._compare(worker, heartbeat)
        finally:
            self._asked_s.pop(worker, None)

    def _compare(self, worker: WorkerId, heartbeat: Heartbeat) -> None:
        if heartbeat.sent_utc_s is not None:
            self._delays.setdefault(worker, deque(maxlen=SENT_KEPT)).append(self.utc() - heartbeat.sent_utc_s)
        if heartbeat.recycle_due:
            self.feed(RecycleDue(worker, heartbeat.recycle_due))
        now_s = self.clock()
        # The first heartbeat may come from an adopted worker, whose sessions and refusals are new to this supervisor.
        _, known = self._last.get(worker, (now_s, _NOTHING_DONE))
        before_s, before = self._last.get(worker, (now_s, heartbeat))
        self._last[worker] = (now_s, heartbeat)
        self.note(worker, before, heartbeat)
        refused_at = heartbeat.refused_at if heartbeat.refusals > known.refusals else None
        if heartbeat.encoding != known.encoding or refused_at is not None:
            self.feed(Encoding(worker, heartbeat.encoding, refused_at))
        if now_s <= before_s:
            return
        speed = speed_between(before, heartbeat, now_s - before_s)
        self.fps[worker] = speed.fps
        if heartbeat.decoding or before.decoding:
            self._decoding_fps[worker] = max(speed.fps, self._decoding_fps.get(worker, 0.0))
        if speed.job and speed.fps > 0:
            self.feed(Measured(worker, speed.job, speed.sessions, speed.fps, speed.on_device))
