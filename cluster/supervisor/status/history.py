"""What each station ran lately, and how fast all of them were: bounded, from workers' heartbeats, without clock or I/O.

Frozen values for ``codecfleet dashboard``.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from ....actors.device.pieces import ToldPiece
from ...worker_names import node_of, station_of

KEPT_S: Final = 900.0
"""How far back it goes; less where more was done than is kept."""
EACH_MAX: Final = 240
"""The most pieces that are kept of one station."""
TOTAL_MAX: Final = 60_000
"""The most of all stations together, at about 300 bytes each; of that each station has an equal share."""
EACH_LEAST: Final = 8
SPEEDS_MAX: Final = 450
"""One every 2 s, for ``KEPT_S``."""
GONE_MAX: Final = 24
"""The most stations that are told of without being asked for, since their workers are gone."""
SLACK_S: Final = 0.02
"""How much before its predecessor's end work may seem to begin: times are as exact as heartbeats are quick."""
RUNNING: Final = "running"
LOST: Final = "lost"
"""Ended with its process, or without a word."""


@dataclass(frozen=True, slots=True)
class PieceSeen:
    """A piece of work on a station, in its row ``lane`` of work at the same time.

    ``began_s`` and ``ended_s`` are seconds before now; ``ended_s`` is None while it runs. ``ending`` is ``running``,
    ``lost``, or one of ``pieces.PieceEnding``.
    """

    job: str
    label: str
    lane: int
    began_s: float
    ended_s: float | None
    ending: str


@dataclass(frozen=True, slots=True)
class History:
    """What stations did, and (seconds before now, source frames a second of all workers).

    ``pieces`` is {station: pieces, in order of their begin}; ``gone`` is {station: name of its node} of those whose
    workers are gone, the latest first.
    """

    pieces: dict[str, tuple[PieceSeen, ...]] = field(default_factory=dict)
    speeds: tuple[tuple[float, float], ...] = ()
    gone: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    job: str
    label: str
    lane: int
    began_s: float
    ended_s: float | None = None
    ending: str = RUNNING


@dataclass(slots=True)
class _Station:
    """A station's pieces by run, oldest first, and when each of its lanes is free again."""

    worker: str
    node: str
    beat_s: float
    pieces: dict[str, _Kept] = field(default_factory=dict)
    free_s: list[float] = field(default_factory=list)
    dropped_s: float = -math.inf
    """Nothing that ended by then is kept."""

    def begin(self, run: str, job: str, label: str, began_s: float) -> _Kept:
        lane = next((n for n, free_s in enumerate(self.free_s) if free_s <= began_s + SLACK_S), len(self.free_s))
        self.free_s[lane : lane + 1] = [math.inf]
        kept = self.pieces[run] = _Kept(job, label, lane, began_s)
        return kept

    def end(self, kept: _Kept, ended_s: float, ending: str) -> None:
        kept.ended_s, kept.ending = ended_s, ending
        self.free_s[kept.lane] = ended_s

    def lose(self, still: Iterable[str] = ()) -> None:
        """End what runs and is not ``still`` running, at the last heartbeat."""
        for run, kept in self.pieces.items():
            if kept.ended_s is None and run not in still:
                self.end(kept, max(kept.began_s, self.beat_s), LOST)

    def trim(self, most: int, since_s: float) -> None:
        """Keep ``most`` pieces, without those that ended before ``since_s``; what runs is never dropped."""
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


class HistoryBook:
    """Takes heartbeats, and says what was done; times are of the supervisor's clock.

    ``title`` returns a node's name for people, as long as the node is there.
    """

    def __init__(self, title: Callable[[str], str]) -> None:
        self._title = title
        self._stations: dict[str, _Station] = {}
        self._speeds: deque[tuple[float, float]] = deque(maxlen=SPEEDS_MAX)

    def beat(self, worker: str, pieces: Iterable[ToldPiece], now_s: float) -> None:
        """Note what a worker says of its work; ``pieces`` are those of its heartbeat, by which their times count."""
        station = self._of(worker, now_s)
        told = sorted(pieces, key=lambda piece: piece[3])
        station.lose({run for run, *_ in told})
        for run, job, label, began_s, ended_s, ending in told:
            kept = station.pieces.get(run)
            if kept is None and (ended_s is None or now_s + ended_s > station.dropped_s):
                kept = station.begin(run, job, label, now_s + began_s)
            if kept is not None and kept.ended_s is None and ended_s is not None:
                station.end(kept, now_s + ended_s, ending)
        station.beat_s = now_s
        share = TOTAL_MAX // len(self._stations)
        station.trim(max(EACH_LEAST, min(EACH_MAX, share)), now_s - KEPT_S)

    def _of(self, worker: str, now_s: float) -> _Station:
        name = station_of(worker)
        found = self._stations.get(name)
        if found is None:
            found = self._stations[name] = _Station(worker, self._title(node_of(name)), now_s)
        elif found.worker != worker:
            found.lose()
            found.worker = worker
        return found

    def look(self, fps: float, now_s: float) -> None:
        """Note the speed of all workers together, and forget stations that have said nothing for ``KEPT_S``."""
        self._speeds.append((now_s, fps))
        for name in [name for name, station in self._stations.items() if station.beat_s < now_s - KEPT_S]:
            del self._stations[name]

    @property
    def speeds(self) -> tuple[tuple[float, float], ...]:
        """(time, source frames a second of all workers), oldest first."""
        return tuple(self._speeds)

    def recall(self, speeds: Iterable[tuple[float, float]], now_s: float) -> None:
        """Begin with the speeds that an earlier supervisor saw, oldest first."""
        earlier = (each for each in speeds if now_s - KEPT_S <= each[0] <= now_s)
        self._speeds = deque([*earlier, *self._speeds], maxlen=SPEEDS_MAX)

    def told(self, stations: Iterable[str], is_live: Callable[[str], bool], now_s: float) -> History:
        """Return what these stations did, and those that are gone; ``is_live``: a worker of that name is up."""
        asked = {name: self._stations[name] for name in stations if name in self._stations}
        gone = self._gone(asked, is_live)
        for station in (*asked.values(), *gone.values()):
            if not is_live(station.worker):
                station.lose()
        return History(
            {name: tuple(_seen(kept, now_s) for kept in each.pieces.values()) for name, each in (asked | gone).items()},
            tuple((now_s - at_s, fps) for at_s, fps in self._speeds if at_s >= now_s - KEPT_S),
            {name: each.node for name, each in gone.items()},
        )

    def _gone(self, asked: Collection[str], is_live: Callable[[str], bool]) -> dict[str, _Station]:
        """Return those that were not asked for and have no worker: the latest that did something."""
        found = [
            (name, each)
            for name, each in self._stations.items()
            if name not in asked and each.pieces and not is_live(each.worker)
        ]
        return dict(heapq.nlargest(GONE_MAX, found, key=lambda each: each[1].beat_s))


def _seen(kept: _Kept, now_s: float) -> PieceSeen:
    ended_s = None if kept.ended_s is None else now_s - kept.ended_s
    return PieceSeen(kept.job, kept.label, kept.lane, now_s - kept.began_s, ended_s, kept.ending)
