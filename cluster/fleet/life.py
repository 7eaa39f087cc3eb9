"""The life of a fleet's host: a pure state machine.

            Wanted             HostStarted
    ABSENT ───────▶ STARTING ──────────────▶ READY
                     │   ▲ ▲                   │
    HostEnded,       └───┘ └───────────────────┘        after too many losses: FAILED instead of STARTING
    Refused: again                HostEnded

A first start that fails is not repeated, because the caller has to fix the error. After a loss, failed starts are
repeated until a deadline, because a cluster may be restarting.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from ...actors.backoff import Backoff
from ...errors import CodecfleetError, FleetUnavailable

LOSSES_MAX: Final = 3
"""How many lost hosts in a row are replaced."""
STEADY_S: Final = 600.0
"""A host that was ready for this long resets the count of lost hosts."""
REACH_S: Final = 120.0
"""For this long after a loss, a failed start is repeated. A cluster's control service takes a minute to restart."""
_WAITS: Final = Backoff(first_s=0.5, most_s=8.0)
_HELP: Final = (
    "Run `codecfleet doctor`, look for OOM kills (`dmesg`), and for a cluster run `ray status`; then try again."
)


class HostPhase(Enum):
    """The phase of a fleet's host."""

    ABSENT = "absent"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


EDGES: Final[dict[HostPhase, frozenset[HostPhase]]] = {
    HostPhase.ABSENT: frozenset({HostPhase.STARTING, HostPhase.CLOSED}),
    HostPhase.STARTING: frozenset({HostPhase.READY, HostPhase.STARTING, HostPhase.FAILED, HostPhase.CLOSED}),
    HostPhase.READY: frozenset({HostPhase.STARTING, HostPhase.FAILED, HostPhase.CLOSED}),
    HostPhase.FAILED: frozenset({HostPhase.STARTING, HostPhase.CLOSED}),  # a later job starts a host again
    HostPhase.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Life:
    """A host's phase and history. Times are in seconds of the monotonic clock."""

    phase: HostPhase = HostPhase.ABSENT
    since_s: float = 0.0  # when the phase began
    losses: int = 0  # how many hosts were lost in a row
    tries: int = 0  # how many times the start was repeated since the host was last ready
    deadline_s: float | None = None  # after this time, failed starts are not repeated
    lost: str = ""  # why the last host ended
    error: CodecfleetError | None = None  # why there is no host, if the phase is FAILED


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job needs workers."""


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
    """The pool failed because of a defect in codecfleet."""

    error: CodecfleetError


@dataclass(frozen=True, slots=True)
class Closed:
    """The fleet is closed."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a host."""

    wait_s: float | None = None  # pause before the start; None for a first start


Event: TypeAlias = Wanted | HostStarted | Refused | HostEnded | Broken | Closed
Decision: TypeAlias = tuple[Life, Spawn | None]


def decide(life: Life, event: Event, now_s: float) -> Decision:
    """Return the next ``Life``, and the effect to carry out; an event that comes too late changes nothing."""
    decision: Decision = life, None
    match life.phase, event:
        case HostPhase.ABSENT | HostPhase.FAILED, Wanted():
            decision = _to(Life(life.phase), HostPhase.STARTING, now_s), Spawn()
        case HostPhase.STARTING, HostStarted():
            decision = replace(_to(life, HostPhase.READY, now_s), tries=0, deadline_s=None), None
        case HostPhase.STARTING, Refused(error):
            decision = _refused(life, error, now_s)
        case ((HostPhase.STARTING | HostPhase.READY), HostEnded(reason)):
            decision = _ended(life, reason, now_s)
        case ((HostPhase.STARTING | HostPhase.READY), Broken(error)):
            decision = replace(_to(life, HostPhase.FAILED, now_s), error=error), None
        case _, Closed() if life.phase is not HostPhase.CLOSED:
            decision = _to(life, HostPhase.CLOSED, now_s), None
    return decision


def _to(life: Life, phase: HostPhase, now_s: float) -> Life:
    if phase not in EDGES[life.phase]:
        raise ValueError(f"a host cannot go from {life.phase} to {phase}")
    return replace(life, phase=phase, since_s=now_s)


def _refused(life: Life, error: CodecfleetError, now_s: float) -> Decision:
    if life.deadline_s is None or now_s >= life.deadline_s or not isinstance(error, FleetUnavailable):
        return replace(_to(life, HostPhase.FAILED, now_s), error=error), None
    return _again(life, now_s)


def _ended(life: Life, reason: str, now_s: float) -> Decision:
    was_steady = life.phase is HostPhase.READY and now_s - life.since_s >= STEADY_S
    losses = 1 if was_steady else life.losses + 1
    deadline_s = now_s + REACH_S if life.deadline_s is None else life.deadline_s
    life = replace(life, losses=losses, lost=reason, deadline_s=deadline_s)
    if losses <= LOSSES_MAX:
        return _again(life, now_s)
    message = f"the process connected to Ray ended {losses} times in a row, last: {reason}"
    return replace(_to(life, HostPhase.FAILED, now_s), error=FleetUnavailable(message, _HELP)), None


def _again(life: Life, now_s: float) -> Decision:
    return replace(_to(life, HostPhase.STARTING, now_s), tries=life.tries + 1), Spawn(_WAITS.wait_s(life.tries))
