"""The life of a fleet's host: a pure state machine.

                            HostStarted
    ABSENT ───▶ STARTING ────────────────▶ READY
                 ▲    │                      │
                 │    │ HostEnded, Refused   │ HostEnded
                 │    ▼                      ▼
                 └── RESTING ◀───────────────┘      FAILED instead of RESTING once that happened too often

The first start is tried once: what refuses it is the caller's to fix. After a loss, a host that is refused tries again
until a deadline: a cluster may be restarting.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from ...actors.backoff import Backoff
from ...errors import CodecfleetError, FleetUnavailable

LOSSES_MAX: Final = 3
"""How many lost hosts are replaced, if one soon follows the other."""
STEADY_S: Final = 600.0
"""A host that was ready for this long begins a new count."""
REACH_S: Final = 120.0
"""How long after a loss Ray is tried again: a cluster's control service takes a minute to be restarted."""
_RESTS: Final = Backoff(first_s=0.5, most_s=8.0)
_HELP: Final = "Run codecfleet doctor; look for a lack of memory (dmesg) and at `ray status` for a cluster; try again."


class HostPhase(Enum):
    """Where it stands."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    RESTING = "resting"
    FAILED = "failed"
    CLOSED = "closed"


EDGES: Final[dict[HostPhase, frozenset[HostPhase]]] = {
    # Somebody wants workers; or the fleet is closed before.
    HostPhase.ABSENT: frozenset({HostPhase.STARTING, HostPhase.CLOSED}),
    # Its pool has started; it ended, or could not start, after an earlier one was lost; it could not start at all.
    HostPhase.STARTING: frozenset({HostPhase.READY, HostPhase.RESTING, HostPhase.FAILED, HostPhase.CLOSED}),
    # It ended: once more, or once too often.
    HostPhase.READY: frozenset({HostPhase.RESTING, HostPhase.FAILED, HostPhase.CLOSED}),
    # The rest is over; the pool itself failed.
    HostPhase.RESTING: frozenset({HostPhase.STARTING, HostPhase.FAILED, HostPhase.CLOSED}),
    # A later job tries again.
    HostPhase.FAILED: frozenset({HostPhase.STARTING, HostPhase.CLOSED}),
    HostPhase.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Life:
    """A host's phase, and since when.

    ``losses`` counts hosts that ended, ``tries`` starts since the last one that succeeded; after a loss these go on
    until ``deadline_s``. ``lost`` says why the last one ended, ``error`` why there is none.
    """

    phase: HostPhase = HostPhase.ABSENT
    since_s: float = 0.0
    losses: int = 0
    tries: int = 0
    deadline_s: float | None = None
    lost: str = ""
    error: CodecfleetError | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job will need workers."""


@dataclass(frozen=True, slots=True)
class HostStarted:
    """The host's pool has started."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The host's pool did not start."""

    error: CodecfleetError


@dataclass(frozen=True, slots=True)
class HostEnded:
    """The host is gone: it was killed, or its Ray ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The pool itself failed, by a defect."""

    error: CodecfleetError


@dataclass(frozen=True, slots=True)
class Rested:
    """The rest is over."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The fleet is closed."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a host."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait before the next start."""

    seconds: float


Event: TypeAlias = Wanted | HostStarted | Refused | HostEnded | Broken | Rested | Closed
Effect: TypeAlias = Spawn | Rest


def decide(life: Life, event: Event, now_s: float) -> tuple[Life, tuple[Effect, ...]]:
    """Return the life after an event, and what to do; an event that no longer matters changes nothing."""
    effects: tuple[Effect, ...] = ()
    match life.phase, event:
        case (HostPhase.ABSENT | HostPhase.FAILED, Wanted()) | (HostPhase.RESTING, Rested()):
            begun = life if life.phase is HostPhase.RESTING else Life(life.phase)
            life, effects = _to(begun, HostPhase.STARTING, now_s), (Spawn(),)
        case HostPhase.STARTING, HostStarted():
            life = replace(_to(life, HostPhase.READY, now_s), tries=0, deadline_s=None)
        case HostPhase.STARTING, Refused(error):
            life, effects = _refused(life, error, now_s)
        case ((HostPhase.STARTING | HostPhase.READY), HostEnded(reason)):
            life, effects = _ended(life, reason, now_s)
        case ((HostPhase.STARTING | HostPhase.READY | HostPhase.RESTING), Broken(error)):
            life = replace(_to(life, HostPhase.FAILED, now_s), error=error)
        case _, Closed() if life.phase is not HostPhase.CLOSED:
            life = _to(life, HostPhase.CLOSED, now_s)
    return life, effects


def _to(life: Life, phase: HostPhase, now_s: float) -> Life:
    if phase not in EDGES[life.phase]:
        raise ValueError(f"a host cannot go from {life.phase} to {phase}")
    return replace(life, phase=phase, since_s=now_s)


def _refused(life: Life, error: CodecfleetError, now_s: float) -> tuple[Life, tuple[Effect, ...]]:
    if life.deadline_s is None or now_s >= life.deadline_s or not isinstance(error, FleetUnavailable):
        return replace(_to(life, HostPhase.FAILED, now_s), error=error), ()
    return _rest(life, now_s)


def _ended(life: Life, reason: str, now_s: float) -> tuple[Life, tuple[Effect, ...]]:
    was_steady = life.phase is HostPhase.READY and now_s - life.since_s >= STEADY_S
    losses = 1 if was_steady else life.losses + 1
    deadline_s = now_s + REACH_S if life.deadline_s is None else life.deadline_s
    life = replace(life, losses=losses, lost=reason, deadline_s=deadline_s)
    if losses <= LOSSES_MAX:
        return _rest(life, now_s)
    message = f"the process that holds Ray ended {losses} times in a row, last: {reason}"
    return replace(_to(life, HostPhase.FAILED, now_s), error=FleetUnavailable(message, _HELP)), ()


def _rest(life: Life, now_s: float) -> tuple[Life, tuple[Effect, ...]]:
    """Rest before the next try: not at all before the first, then ever longer."""
    return replace(_to(life, HostPhase.RESTING, now_s), tries=life.tries + 1), (Rest(_RESTS.wait_s(life.tries)),)
