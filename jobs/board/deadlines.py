"""Which running work hangs, and which is late: pure functions of what is seen of it a few times a second.

A piece of work is *seen* at its station, with the frames it has done. Time
counts while this process was awake: a look that comes late counts as one after a few seconds, so neither a suspended
laptop nor a machine under load ends anything.

The *deadline* of a piece of work is a multiple of what it should take, half a minute at least (``WaitOptions``). A
twentieth of its frames starts it again: what makes progress is slow, and only what makes none is hung.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import median

from ...actors.watchdog import OPENING_S
from ...cluster.worker_names import NO_WORKER, StationId
from ..request.running import WaitOptions

LOOK_S = 0.5
"""How often running work is looked at."""
LATE_LOOK_S = 3.0
"""A look after a longer time counts as one after this: this process stood still. Progress is waited for a second."""
STEPS = 20
"""The parts of a piece of work that count as progress, each."""
RATES_KEPT = 8
"""A station's speed is the median of its newest pieces of work."""
GAIN = 1.5
"""A second run must be expected to take this many times less than the first still would."""
SETTLED = 0.5
"""The part of the usual time after which a run's own speed says something: before, it opened and sought."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a running piece of work: its station, and the frames done there when its worker last answered."""

    station: StationId
    frames: int


@dataclass(frozen=True, slots=True)
class WorkPace:
    """How the work ``label`` of ``total`` frames (0: unknown) has gone on, in seconds awake since it was first seen.

    ``mark_frames`` were done at ``mark_s``, when it last did a step.
    """

    label: str
    total: int
    station: StationId = NO_WORKER.station
    awake_s: float = 0.0
    frames: int = 0
    mark_frames: int = 0
    mark_s: float = 0.0

    @property
    def silent_s(self) -> float:
        """How long it has done no step."""
        return self.awake_s - self.mark_s

    @property
    def left_s(self) -> float:
        """How long it will take at its own speed; without end while it has done nothing."""
        return (self.total - self.frames) * self.awake_s / self.frames if self.frames else inf

    def seen(self, seen: Seen | None, passed_s: float) -> "WorkPace":
        """Return it after another look, ``passed_s`` after the one before; None: it waits for a slot."""
        if seen is None:
            return WorkPace(self.label, self.total)
        if seen.station != self.station:
            return WorkPace(self.label, self.total, seen.station)
        later = replace(self, awake_s=self.awake_s + passed_s)
        has_stepped = seen.frames - self.mark_frames >= max(1, ceil(self.total / STEPS))
        # It starts over, with fewer frames, where a decoder fails and another takes its place.
        if has_stepped or seen.frames < self.mark_frames:
            return replace(later, frames=seen.frames, mark_frames=seen.frames, mark_s=later.awake_s)
        return replace(later, frames=seen.frames)


@dataclass(frozen=True, slots=True)
class Paces:
    """The running work of one job, by numbers never used again, and how fast each station did what has ended.

    ``start_fps`` is placement's figure for one session, 0 where it has none: it holds until something has ended.
    ``lagging`` are the stations whose last work was late and overtaken by its second run.
    """

    patience: WaitOptions
    start_fps: float = 0.0
    running: Mapping[int, WorkPace] = field(default_factory=dict)
    fps_at: Mapping[StationId, tuple[float, ...]] = field(default_factory=dict)
    lagging: frozenset[StationId] = frozenset()

    def begun(self, number: int, label: str, total: int) -> "Paces":
        """Return them with one more piece of work."""
        return replace(self, running={**self.running, number: WorkPace(label, total)})

    def ended(self, number: int, *, delivered: bool, withdrawn: bool = False) -> "Paces":
        """Return them without a piece of work; what it delivered counts for its station's speed."""
        pace = self.running[number]
        rest = replace(self, running={other: each for other, each in self.running.items() if other != number})
        if withdrawn and self._gain(pace) > GAIN:
            return replace(rest, lagging=self.lagging | {pace.station})
        if not delivered or not pace.total or not pace.station:
            return rest
        # What was seen only once ended within a look.
        rates = (*self.fps_at.get(pace.station, ()), pace.total / (pace.awake_s or LOOK_S))[-RATES_KEPT:]
        return replace(rest, fps_at={**self.fps_at, pace.station: rates}, lagging=self.lagging - {pace.station})

    def looked(self, seen: Mapping[str, Seen], since_s: float) -> "Paces":
        """Return them after a look, ``since_s`` after the one before."""
        passed_s = min(since_s, LATE_LOOK_S)
        later = {number: pace.seen(seen.get(pace.label), passed_s) for number, pace in self.running.items()}
        return replace(self, running=later)

    def deadline_s(self, pace: WorkPace) -> float:
        """Return how long a piece of work may do no step."""
        floor_s, fps = float(self.patience.deadline_s), self._usual_fps(pace.station)
        usual_s = pace.total / fps if pace.total and fps else floor_s
        opening_s = OPENING_S if pace.station.has_device and pace.station not in self.fps_at else 0.0
        return max(floor_s, opening_s, self.patience.deadline_factor * usual_s)

    def hung(self) -> list[WorkPace]:
        """Return the work that has missed its deadline."""
        return [pace for pace in self.running.values() if pace.silent_s >= self.deadline_s(pace)]

    def late(self) -> list[str]:
        """Return the labels of work that would end sooner if it ran a second time elsewhere; the latest first."""
        gains = [(self._gain(pace), pace.label) for pace in self.running.values()]
        return [label for gain, label in sorted(gains, reverse=True) if gain > GAIN]

    def _gain(self, pace: WorkPace) -> float:
        """Return how many times longer a piece of work will take than it would elsewhere."""
        elsewhere = [median(rates) for station, rates in self.fps_at.items() if station != pace.station]
        if not elsewhere or not pace.total:
            return 0.0
        usual_s = pace.total / median(elsewhere)
        if pace.awake_s < max(SETTLED * usual_s, 2 * LOOK_S):
            return 0.0
        # One that did well and then stopped is late once it has stood still for as long as all of it should take.
        return inf if pace.silent_s > usual_s else pace.left_s / usual_s

    def _usual_fps(self, station: StationId) -> float:
        """Return the speed of a piece of work there; of the slowest station where none has ended there."""
        rates: Iterable[Sequence[float]] = [self.fps_at[station]] if station in self.fps_at else self.fps_at.values()
        return min((median(each) for each in rates), default=self.start_fps)
