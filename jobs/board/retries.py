"""How a failed segment is retried: a pure function of its attempts so far.

    beside other work ──▶ there again, in a fresh session ──▶ on another device ──▶ decoded in software ──▶ given up
            │                          (errors that leave the process sound)
            └──▶ alone in a process, on the same kind of device ──▶ in software, alone in a process
                 (errors that broke its process, or may have)

When a device fails, all work in the process fails, and the work that reports it first need not be the cause. So all of
that work is suspect, and only work that ran alone is blamed. A worker's silent death may have an outside cause: the
first death is ignored, and after the second the work runs alone too. A fault in the input or the request is the same
everywhere: it ends the job at once, and no device is blamed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ...actors.device.work import Constraints
from ...cluster.worker_names import WorkerId
from ...errors import (
    CodecfleetError,
    DeadlineMissed,
    DeviceError,
    EngineUnfit,
    NodeEnded,
    ProcessKilled,
    Retry,
    SegmentFailed,
    WorkAbandoned,
    WorkerBroken,
    WorkerLost,
)

#: How many times work may fail in the same way; after device failures, software is one more attempt
ATTEMPTS: Final = 3
#: Work that software can decode is given up after it has failed this many times while alone in its process
FAILURES_ALONE: Final = 2
#: A segment is given up after this many silent deaths of its workers; a failing station is closed sooner
LOSSES: Final = 8
MOVES: Final = 64  #: A segment is given up after this many attempts with the fault ``MOVED``
SHARED_LOSSES: Final = 2  #: After this many silent deaths of workers the work runs alone, because it may be the cause


class FaultKind(Enum):
    """Why an attempt failed. The kind decides how the work is retried."""

    REFUSED = "refused"  #: the input or the request is at fault, so the work fails everywhere in the same way
    FAILED = "failed"  #: the work's process is sound; another attempt may succeed
    FULL = "full"  #: the device had no room for the work
    UNFIT = "unfit"  #: the device cannot do the work; another device may
    HUNG = "hung"  #: the work made no progress, and its worker was replaced
    MOVED = "moved"  #: the node ended as announced, or a supervisor no longer heard of the program: not a failure
    LOST = "lost"  #: the worker died from an unknown cause
    SUSPECT = "suspect"  #: the device failed while it also ran other work
    GUILTY = "guilty"  #: the device failed while this work ran alone
    KILLED = "killed"  #: the process died while this work ran alone


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt: its number, how and where it ran, and the reason for the failure."""

    attempt: int
    constraints: Constraints
    where: WorkerId
    fault: FaultKind
    cause: str

    @classmethod
    def of(cls, attempt: int, constraints: Constraints, error: CodecfleetError) -> "Attempt":
        """Return the attempt that ``error`` ended."""
        cause = f"{type(error).__name__}: {error.message}"
        return cls(attempt, constraints, WorkerId(error.where), fault_of(error, constraints), cause)

    @property
    def step(self) -> str:
        """How the attempt ran, in words."""
        parts = ["in a separate process"] if self.constraints.alone else []
        parts += ["decoded in software"] if self.constraints.software else []
        return ", ".join(parts) or "beside other work"


def fault_of(error: CodecfleetError, constraints: Constraints) -> FaultKind:
    """Return the kind of fault for an error that ended work under ``constraints``."""
    if error.retry is Retry.NEVER:
        return FaultKind.REFUSED
    if isinstance(error, DeviceError) and error.retry is Retry.ELSEWHERE:
        return FaultKind.GUILTY if constraints.alone else FaultKind.SUSPECT
    if isinstance(error, WorkerBroken) and constraints.alone:
        return FaultKind.LOST  # this work ran in a process of its own, so it did not break the worker's process
    return next((fault for kind, fault in _FAULTS.items() if isinstance(error, kind)), FaultKind.FAILED)


_FAULTS: Final = {
    ProcessKilled: FaultKind.KILLED,
    WorkerBroken: FaultKind.SUSPECT,
    NodeEnded: FaultKind.MOVED,
    WorkAbandoned: FaultKind.MOVED,
    WorkerLost: FaultKind.LOST,
    DeadlineMissed: FaultKind.HUNG,
    EngineUnfit: FaultKind.UNFIT,
    DeviceError: FaultKind.FULL,
}
"""The kind of fault of each error class; a class comes before its base."""


def next_step(history: Sequence[Attempt], *, software: bool) -> Constraints | None:
    """Return how to run work again after these attempts; None if it is given up.

    With ``software``, software may decode the work.
    """
    last = history[-1]
    match last.fault:
        case FaultKind.REFUSED:
            return None
        case FaultKind.MOVED:
            return _after_a_move(history, software=software)
        case FaultKind.LOST:
            return _after_a_loss(history, software=software)
        case FaultKind.SUSPECT:
            return replace(_elsewhere(history), alone=True, same_kind_as=last.where)
        case FaultKind.GUILTY | FaultKind.KILLED:
            return _after_guilt(history, software=software)
        case FaultKind.FAILED | FaultKind.FULL | FaultKind.UNFIT | FaultKind.HUNG:
            return _after_a_failure(history, software=software)


def _after_a_move(history: Sequence[Attempt], *, software: bool) -> Constraints | None:
    others = [attempt for attempt in history if attempt.fault is not FaultKind.MOVED]
    # A second run may end with its node after the first run has failed for the last time.
    is_given_up = bool(others) and next_step(others, software=software) is None
    return None if is_given_up or len(history) - len(others) >= MOVES else history[-1].constraints


def _after_a_loss(history: Sequence[Attempt], *, software: bool) -> Constraints | None:
    losses = [attempt for attempt in history if attempt.fault is FaultKind.LOST]
    others = [attempt for attempt in history if attempt.fault is not FaultKind.LOST]
    # A second run may be lost after the first run has failed for the last time.
    is_given_up = bool(others) and next_step(others, software=software) is None
    if is_given_up or len(losses) >= LOSSES:
        return None
    last = history[-1].constraints
    return replace(last, alone=last.alone or len(losses) >= SHARED_LOSSES)


def _after_guilt(history: Sequence[Attempt], *, software: bool) -> Constraints | None:
    last = history[-1]
    if software and not last.constraints.software:
        return replace(_elsewhere(history), alone=True, same_kind_as="", software=reason(last))
    alone = [attempt for attempt in history if attempt.fault in (FaultKind.GUILTY, FaultKind.KILLED)]
    charged = len(alone) + sum(attempt.fault is FaultKind.SUSPECT for attempt in history)
    is_given_up = len(alone) >= FAILURES_ALONE if software else charged >= ATTEMPTS
    return None if is_given_up else replace(_elsewhere(history), alone=True)


def _after_a_failure(history: Sequence[Attempt], *, software: bool) -> Constraints | None:
    last = history[-1]
    failures = [attempt for attempt in history if attempt.fault in _SOUND]
    if len(failures) < ATTEMPTS:
        # A fresh session on the same device comes first, unless that device is unfit; then comes another device.
        is_elsewhere = len(failures) > 1 or last.fault in (FaultKind.UNFIT, FaultKind.HUNG)
        return _elsewhere(history) if is_elsewhere else last.constraints
    if last.fault in (FaultKind.FULL, FaultKind.UNFIT) and software and not last.constraints.software:
        return replace(_elsewhere(history), software=reason(last))
    return None


def given_up(segment: int, history: Sequence[Attempt], error: CodecfleetError) -> SegmentFailed:
    """Return the error of a segment that no attempt could complete; ``error`` ended the last attempt."""
    times = len(history)
    if history[-1].fault is FaultKind.KILLED:
        message = f"segment {segment} killed every process that ran it, {times} in all, last: {error.message}"
        advice = "Run the job again with --keep-evidence, which saves the segment's input, and report the error."
        return SegmentFailed(message, advice, segment)
    return SegmentFailed(f"segment {segment} failed {times} times, last: {error.message}", error.next_step, segment)


def reason(attempt: Attempt) -> str:
    """Return, in words, why software decodes work after this attempt failed."""
    return f"the device failed: {attempt.cause.partition(': ')[2]}"


_BLAMELESS: Final = frozenset({FaultKind.LOST, FaultKind.MOVED})
_SOUND: Final = frozenset({FaultKind.FAILED, FaultKind.FULL, FaultKind.UNFIT, FaultKind.HUNG})


def _elsewhere(history: Sequence[Attempt]) -> Constraints:
    """Return the last attempt's constraints; they avoid each station that may be to blame for a failed attempt."""
    failed = (attempt.where.station for attempt in history if attempt.fault not in _BLAMELESS)
    return replace(history[-1].constraints, avoid=frozenset(failed))
