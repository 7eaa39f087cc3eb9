"""The recent work and speed of stations for ``codecfleet dashboard``, taken from heartbeats.

The size is limited; there is no clock and no I/O.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from ....actors.device.pieces import ReportedPiece
from ...worker_names import NodeId, StationId, WorkerId

KEPT_S: Final = 900.0  # how far back the history goes, unless one of the limits below is reached first
EACH_MAX: Final = 240  # the most work items kept for one station
TOTAL_MAX: Final = 60_000
"""The most work items of all stations together, at about 300 bytes each; every station may keep an equal share."""
EACH_LEAST: Final = 8
SPEEDS_MAX: Final = 450  # the most speeds kept: one every 2 s, for ``KEPT_S``
GONE_MAX: Final = 24  # the most lost stations in an answer, besides the requested stations
SLACK_S: Final = 0.02
"""By how much a work item may seem to begin before its predecessor ends, because heartbeats take time."""
RUNNING: Final = "running"
LOST: Final = "lost"  # the item ended with its process, or is missing from the process's next heartbeat


@dataclass(frozen=True, slots=True)
class PieceSeen:
    """One work item on a station."""

    job: str
    label: str
    lane: int  # the row of the item, if several items run at the same time
    began_s: float  # seconds before now in a ``History``; a time on the supervisor's clock in a ``WorkHistory``
    ended_s: float | None  # when the item ended, on the clock of ``began_s``; None while the item runs
    ending: str  # ``running``, ``lost``, or one of ``pieces.Ending``


@dataclass(frozen=True, slots=True)
class History:
    """The work of stations; times are seconds before now."""

    pieces: dict[StationId, tuple[PieceSeen, ...]] = field(default_factory=dict)  # work items, in order of time
    speeds: tuple[tuple[float, float], ...] = ()  # (time, source frames a second of all workers) at several times
    gone: dict[StationId, str] = field(default_factory=dict)  # lost stations, the latest first: {station: node name}


@dataclass(slots=True)
class _Station:
    worker: WorkerId
    node: str
    beat_s: float
    pieces: dict[str, PieceSeen] = field(default_factory=dict)  # the work items by run, oldest first
    free_s: list[float] = field(default_factory=list)  # when each lane becomes free
    dropped_s: float = -math.inf  # items that ended no later than this were dropped

    def begin(self, run: str, job: str, label: str, began_s: float) -> None:
        lane = next((n for n, free_s in enumerate(self.free_s) if free_s <= began_s + SLACK_S), len(self.free_s))
        self.free_s[lane : lane + 1] = [math.inf]
        self.pieces[run] = PieceSeen(job, label, lane, began_s, None, RUNNING)

    def end(self, run: str, ended_s: float, ending: str) -> None:
        ended = self.pieces[run] = replace(self.pieces[run], ended_s=ended_s, ending=ending)
        self.free_s[ended.lane] = ended_s

    def lose(self, still: Collection[str] = ()) -> None:
        """End all work items except the running items (``still``), at the time of the last heartbeat."""
        for run, kept in self.pieces.items():
            if kept.ended_s is None and run not in still:
                self.end(run, max(kept.began_s, self.beat_s), LOST)

    def trim(self, most: int, since_s: float) -> None:
        """Drop items beyond ``most``, and items that ended before ``since_s``; running items are never dropped."""
        dropped: list[str] = []
        for run, kept in self.pieces.items():
            if kept.ended_s is None:
                continue
            if len(self.pieces) - len(dropped) <= most and kept.ended_s >= since_s:
                break
            dropped.append(run)
            self.dropped_s = max(self.dropped_s, kept.ended_s)
        for run in dropped:
            del self.pieces[run]


class WorkHistory:
    """Collects heartbeats, with times on the supervisor's clock. ``title`` returns a live node's display name."""

    def __init__(self, title: Callable[[NodeId], str]) -> None:
        self._title = title
        self._stations: dict[StationId, _Station] = {}
        self._speeds: deque[tuple[float, float]] = deque(maxlen=SPEEDS_MAX)

    def note(self, worker: WorkerId, pieces: Iterable[ReportedPiece], now_s: float) -> None:
        """Record a worker's work items; the items' times are relative to the heartbeat."""
        station = self._of(worker, now_s)
        reported = sorted(pieces, key=lambda piece: piece[3])
        station.lose({run for run, *_ in reported})
        for run, job, label, began_s, ended_s, ending in reported:
            if run not in station.pieces and (ended_s is None or now_s + ended_s > station.dropped_s):
                station.begin(run, job, label, now_s + began_s)
            kept = station.pieces.get(run)
            if kept is not None and kept.ended_s is None and ended_s is not None:
                station.end(run, now_s + ended_s, ending)
        station.beat_s = now_s
        share = TOTAL_MAX // len(self._stations)
        station.trim(max(EACH_LEAST, min(EACH_MAX, share)), now_s - KEPT_S)

    def _of(self, worker: WorkerId, now_s: float) -> _Station:
        name = worker.station
        found = self._stations.get(name)
        if found is None:
            found = self._stations[name] = _Station(worker, self._title(name.node), now_s)
        elif found.worker != worker:
            found.lose()
            found.worker = worker
        return found

    def look(self, fps: float, now_s: float) -> None:
        """Record the total speed of all workers, and forget stations that have sent no heartbeat for ``KEPT_S``."""
        self._speeds.append((now_s, fps))
        for name in [name for name, station in self._stations.items() if station.beat_s < now_s - KEPT_S]:
            del self._stations[name]

    def of(self, stations: Iterable[StationId], is_live: Callable[[WorkerId], bool], now_s: float) -> History:
        """Return the work of these stations and of lost stations; ``is_live`` returns whether a worker is up."""
        asked = {name: self._stations[name] for name in stations if name in self._stations}
        idle = ((name, each) for name, each in self._stations.items() if each.pieces and not is_live(each.worker))
        others = [(name, each) for name, each in idle if name not in asked]
        gone = dict(heapq.nlargest(GONE_MAX, others, key=lambda each: each[1].beat_s))
        for station in (*asked.values(), *gone.values()):
            if not is_live(station.worker):
                station.lose()
        shown = asked | gone
        return History(
            {name: tuple(_aged(piece, now_s) for piece in each.pieces.values()) for name, each in shown.items()},
            tuple((now_s - at_s, fps) for at_s, fps in self._speeds if at_s >= now_s - KEPT_S),
            {name: each.node for name, each in gone.items()},
        )


def _aged(piece: PieceSeen, now_s: float) -> PieceSeen:
    ended_s = None if piece.ended_s is None else now_s - piece.ended_s
    return replace(piece, began_s=now_s - piece.began_s, ended_s=ended_s)
