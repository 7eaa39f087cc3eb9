"""Finds running work that hangs or is late, from samples taken a few times a second. Pure.

Only time in which this process was awake counts: a late sample counts as a few seconds, so no work is ended because a
laptop was suspended or a machine was busy. The *deadline* of work is a multiple of the time it should take, at least
half a minute (``WaitOptions``). The deadline restarts after each twentieth of the frames, so slow work continues; only
work without progress counts as hung.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import median

from ...actors.watchdog import OPENING_S
from ...cluster.worker_names import NO_WORKER, StationId
from ..request.running import WaitOptions

LOOK_S = 0.5  #: The time between two samples of running work
LATE_LOOK_S = 3.0  #: A longer time between samples counts as this much, because this process was suspended meanwhile
STEPS = 20  #: Progress is measured in this many equal parts of the frames of the work
RATES_KEPT = 8  #: A station's speed is the median of this many newest results
GAIN = 1.5  #: A second run is worthwhile if the first still needs over this many times as long as it
SETTLED = 0.5  #: A run's own speed counts only after this fraction of the usual time, since a run first opens and seeks


@dataclass(frozen=True, slots=True)
class Seen:
    """A sample of running work: the station, and the frames done there when the worker last reported."""

    station: StationId
    frames: int


@dataclass(frozen=True, slots=True)
class WorkPace:
    """The progress of running work, and when its deadline last started."""

    label: str
    total: int  #: the work's frames; 0 if unknown
    station: StationId = NO_WORKER.station
    awake_s: float = 0.0  #: the time since the work was first seen at this station
    frames: int = 0  #: the frames done
    mark_frames: int = 0  #: the frames done when the deadline last started
    mark_s: float = 0.0  #: ``awake_s`` when the deadline last started

    @property
    def silent_s(self) -> float:
        """How long the work has made no progress."""
        return self.awake_s - self.mark_s

    @property
    def left_s(self) -> float:
        """How much longer the work will take at its own speed; infinite before its first frame."""
        return (self.total - self.frames) * self.awake_s / self.frames if self.frames else inf

    def seen(self, seen: Seen | None, passed_s: float) -> "WorkPace":
        """Return the pace after another sample, ``passed_s`` after the previous sample.

        ``seen`` is None while the work waits for a slot.
        """
        if seen is None:
            return WorkPace(self.label, self.total)
        if seen.station != self.station:
            return WorkPace(self.label, self.total, seen.station)
        later = replace(self, awake_s=self.awake_s + passed_s)
        has_stepped = seen.frames - self.mark_frames >= max(1, ceil(self.total / STEPS))
        # When another decoder replaces a failed decoder, the work starts over with fewer frames.
        if has_stepped or seen.frames < self.mark_frames:
            return replace(later, frames=seen.frames, mark_frames=seen.frames, mark_s=later.awake_s)
        return replace(later, frames=seen.frames)


@dataclass(frozen=True, slots=True)
class Paces:
    """The running work of one job, and the speeds of its stations."""

    patience: WaitOptions
    #: the speed that placement expects of one session, used until the first result; 0 if unknown
    start_fps: float = 0.0
    #: the running work by its number; numbers are never reused
    running: Mapping[int, WorkPace] = field(default_factory=dict)
    fps_at: Mapping[StationId, tuple[float, ...]] = field(default_factory=dict)  #: speeds of the newest results
    lagging: frozenset[StationId] = frozenset()  #: stations whose last work was late and overtaken by a second run

    def begun(self, number: int, label: str, total: int) -> "Paces":
        """Return a copy of these paces that also tracks a new piece of work."""
        return replace(self, running={**self.running, number: WorkPace(label, total)})

    def ended(self, number: int, *, delivered: bool, withdrawn: bool = False) -> "Paces":
        """Return a copy that no longer tracks ended work; delivered work counts towards its station's speed."""
        pace = self.running[number]
        rest = replace(self, running={other: each for other, each in self.running.items() if other != number})
        if withdrawn and self._gain(pace) > GAIN:
            return replace(rest, lagging=self.lagging | {pace.station})
        if not delivered or not pace.total or not pace.station:
            return rest
        # Work without a sample began and ended between two samples.
        rates = (*self.fps_at.get(pace.station, ()), pace.total / (pace.awake_s or LOOK_S))[-RATES_KEPT:]
        return replace(rest, fps_at={**self.fps_at, pace.station: rates}, lagging=self.lagging - {pace.station})

    def looked(self, seen: Mapping[str, Seen], since_s: float) -> "Paces":
        """Return the paces after a sample of all work, ``since_s`` after the previous sample."""
        passed_s = min(since_s, LATE_LOOK_S)
        later = {number: pace.seen(seen.get(pace.label), passed_s) for number, pace in self.running.items()}
        return replace(self, running=later)

    def deadline_s(self, pace: WorkPace) -> float:
        """Return how long work may go without progress."""
        floor_s, fps = float(self.patience.deadline_s), self._usual_fps(pace.station)
        usual_s = pace.total / fps if pace.total and fps else floor_s
        opening_s = OPENING_S if pace.station.has_device and pace.station not in self.fps_at else 0.0
        return max(floor_s, opening_s, self.patience.deadline_factor * usual_s)

    def hung(self) -> list[WorkPace]:
        """Return the work that has missed its deadline."""
        return [pace for pace in self.running.values() if pace.silent_s >= self.deadline_s(pace)]

    def late(self) -> list[str]:
        """Return the labels of work that a second run elsewhere would overtake, the largest gain first."""
        gains = [(self._gain(pace), pace.label) for pace in self.running.values()]
        return [label for gain, label in sorted(gains, reverse=True) if gain > GAIN]

    def _gain(self, pace: WorkPace) -> float:
        """Return the ratio of the time that work will still take to the time of a second run elsewhere."""
        elsewhere = [median(rates) for station, rates in self.fps_at.items() if station != pace.station]
        if not elsewhere or not pace.total:
            return 0.0
        usual_s = pace.total / median(elsewhere)
        if pace.awake_s < max(SETTLED * usual_s, 2 * LOOK_S):
            return 0.0
        # Fast work that has stopped is late once it has been silent for as long as the whole work should take.
        return inf if pace.silent_s > usual_s else pace.left_s / usual_s

    def _usual_fps(self, station: StationId) -> float:
        """Return a station's speed; if it has no results, the speed of the slowest station."""
        rates: Iterable[Sequence[float]] = [self.fps_at[station]] if station in self.fps_at else self.fps_at.values()
        return min((median(each) for each in rates), default=self.start_fps)
