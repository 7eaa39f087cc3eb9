"""Who runs what, and when a dead worker process is replaced: a state machine without Ray, clock or I/O.

``Dispatch.decide`` takes one event and returns the effects that the shell (cluster/ray_pool.py) carries out; what
comes of them returns as further events. Tasks wait in one queue and go, in order, to the least loaded process.

A *seat* is the place of one worker process. Its processes come one after the other; each is a *life* of the seat, and
an event that speaks of a former life is ignored: the same death is often told twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

__all__ = [
    "Answered",
    "Closed",
    "Died",
    "Dispatch",
    "Effect",
    "Event",
    "Finished",
    "Kill",
    "Lose",
    "Refuse",
    "Run",
    "SeatState",
    "Start",
    "Stop",
    "Submitted",
    "Withdrawn",
]

DEATHS_IN_A_ROW_MAX = 5
"""A seat whose processes die this often without finishing anything is given up."""
FIRST_REST_S = 0.1
LONGEST_REST_S = 5.0


class SeatState(Enum):
    """What the process of a seat is doing."""

    EMPTY = "empty"  #: nothing was started yet
    STARTING = "starting"  #: its process is on its way, perhaps after a rest
    READY = "ready"  #: its process answered, and takes work
    GIVEN_UP = "given up"  #: its processes died too often in a row


@dataclass(frozen=True, slots=True)
class Submitted:
    """Somebody wants ``task`` done."""

    task: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Nobody waits for ``task`` any more."""

    task: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The process came to an end with ``task``, well or badly, and is free for another."""

    task: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The process of ``seat`` is up."""

    seat: int
    life: int


@dataclass(frozen=True, slots=True)
class Died:
    """The process of ``seat`` is gone, did not start, or cannot be trusted any more."""

    seat: int
    life: int
    reason: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The pool is closed, or what it runs on is gone."""

    reason: str = "the pool is closed"


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process for ``seat`` after a rest of ``rest_s`` seconds."""

    seat: int
    life: int
    rest_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """Hand ``task`` to the process of ``seat``."""

    task: int
    seat: int
    life: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the process of ``seat`` to stop ``task``; it says Finished once it has."""

    task: int
    seat: int
    life: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Tell whoever waits for ``task`` that its process died."""

    task: int
    seat: int
    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell whoever waits for ``task`` that there is nothing left to run it on."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Make sure that the process of this life is gone: it may be alive, only out of reach."""

    seat: int
    life: int


Event = Submitted | Withdrawn | Finished | Answered | Died | Closed
Effect = Start | Run | Stop | Lose | Refuse | Kill


@dataclass(slots=True)
class _Seat:
    slots: int
    state: SeatState = SeatState.EMPTY
    life: int = 0
    tasks: set[int] = field(default_factory=set)
    deaths_in_a_row: int = 0

    @property
    def load(self) -> Fraction:
        return Fraction(len(self.tasks), self.slots)


class Dispatch:
    """The state of a pool whose seats have ``slots`` slots each.

    What an event does to a seat (anything else is ignored, as told of a former life):

        EMPTY    -> STARTING   ``open`` was called
        STARTING -> READY      Answered: the new process is up
        STARTING -> STARTING   Died: it did not come up; the next one starts after a rest
        READY    -> STARTING   Died: its tasks are lost; the next process starts, at once after the first death
        STARTING -> GIVEN_UP   Died, for the fifth time in a row: resting longer would not help
        READY    -> GIVEN_UP   the same
        any      -> GIVEN_UP   Closed

    A finished task clears its seat's count of deaths. When the last seat is given up, whatever waits is refused.
    """

    def __init__(self, slots: Sequence[int]) -> None:
        self._seats = [_Seat(count) for count in slots]
        self._waiting: dict[int, None] = {}  # an ordered set
        self._seat_of: dict[int, int] = {}
        self._end: str | None = None
        self._handlers: dict[type[Event], Callable[..., list[Effect]]] = {
            Submitted: self._submitted,
            Withdrawn: self._withdrawn,
            Finished: self._finished,
            Answered: self._answered,
            Died: self._died,
            Closed: self._closed,
        }

    @property
    def end(self) -> str | None:
        """Why nothing can run any more; None while something can."""
        return self._end

    @property
    def starting(self) -> int:
        """How many seats have a process on its way."""
        return sum(seat.state is SeatState.STARTING for seat in self._seats)

    @property
    def waiting(self) -> int:
        """How many tasks wait for a slot."""
        return len(self._waiting)

    def lives(self) -> list[tuple[int, int]]:
        """Return (seat, life) of every process that takes work."""
        return [(i, seat.life) for i, seat in enumerate(self._seats) if seat.state is SeatState.READY]

    def open(self) -> list[Effect]:
        """Start the first process of every seat."""
        return [self._start(i, 0.0) for i, seat in enumerate(self._seats) if seat.state is SeatState.EMPTY]

    def decide(self, event: Event) -> list[Effect]:
        """Take in what happened and return what is to be done, in order."""
        effects = self._handlers[type(event)](event)
        return effects + self._hand_out()

    def _submitted(self, event: Submitted) -> list[Effect]:
        if self._end is not None:
            return [Refuse(event.task, self._end)]
        self._waiting[event.task] = None
        return []

    def _withdrawn(self, event: Withdrawn) -> list[Effect]:
        self._waiting.pop(event.task, None)
        if event.task not in self._seat_of:
            return []
        # The slot stays taken until the process says Finished: until then the thread is at work.
        seat = self._seat_of[event.task]
        return [Stop(event.task, seat, self._seats[seat].life)]

    def _finished(self, event: Finished) -> list[Effect]:
        index = self._seat_of.pop(event.task, None)
        if index is not None:
            self._seats[index].tasks.discard(event.task)
            self._seats[index].deaths_in_a_row = 0
        return []

    def _answered(self, event: Answered) -> list[Effect]:
        seat = self._seats[event.seat]
        if seat.life == event.life and seat.state is SeatState.STARTING:
            seat.state = SeatState.READY
        return []

    def _died(self, event: Died) -> list[Effect]:
        seat = self._seats[event.seat]
        if seat.life != event.life or seat.state is SeatState.GIVEN_UP:
            return []
        effects: list[Effect] = [Kill(event.seat, event.life)]
        effects += [Lose(task, event.seat, event.reason) for task in self._take_tasks(seat)]
        seat.deaths_in_a_row += 1
        if seat.deaths_in_a_row < DEATHS_IN_A_ROW_MAX:
            return [*effects, self._start(event.seat, _rest_s(seat.deaths_in_a_row))]
        seat.state = SeatState.GIVEN_UP
        if all(other.state is SeatState.GIVEN_UP for other in self._seats):
            effects += self._finish(f"every worker process died {DEATHS_IN_A_ROW_MAX} times in a row: {event.reason}")
        return effects

    def _closed(self, event: Closed) -> list[Effect]:
        effects: list[Effect] = []
        for index, seat in enumerate(self._seats):
            if seat.state in (SeatState.STARTING, SeatState.READY):
                effects.append(Kill(index, seat.life))
            seat.state = SeatState.GIVEN_UP
        running = [task for seat in self._seats for task in self._take_tasks(seat)]
        return [*effects, *(Refuse(task, event.reason) for task in running), *self._finish(event.reason)]

    def _finish(self, reason: str) -> list[Effect]:
        self._end = self._end or reason
        refused, self._waiting = list(self._waiting), {}
        return [Refuse(task, self._end) for task in refused]

    def _start(self, index: int, rest_s: float) -> Start:
        seat = self._seats[index]
        seat.state = SeatState.STARTING
        seat.life += 1
        return Start(index, seat.life, rest_s)

    def _take_tasks(self, seat: _Seat) -> list[int]:
        taken = sorted(seat.tasks)
        seat.tasks.clear()
        for task in taken:
            del self._seat_of[task]
        return taken

    def _hand_out(self) -> list[Effect]:
        effects: list[Effect] = []
        while self._waiting:
            free = [i for i, seat in enumerate(self._seats) if seat.state is SeatState.READY and seat.load < 1]
            if not free:
                break
            index = min(free, key=lambda i: self._seats[i].load)
            task = next(iter(self._waiting))
            del self._waiting[task]
            self._seats[index].tasks.add(task)
            self._seat_of[task] = index
            effects.append(Run(task, index, self._seats[index].life))
        return effects


def _rest_s(deaths_in_a_row: int) -> float:
    if deaths_in_a_row == 1:
        return 0.0
    return min(FIRST_REST_S * 2.0 ** (deaths_in_a_row - 2), LONGEST_REST_S)
