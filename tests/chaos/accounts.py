"""What the faults of a round cost: repeated segments and their waits, from the events of the round's programs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from .driver import Said
from .schedule import ENDS_THE_DRIVER, Fault

HEARD_S: Final = 0.5
"""Segments that start this long after a fault may be lost to it, since a fault takes effect late."""
DAMAGES: Final = frozenset({Fault.JOURNAL_CUT, Fault.JOURNAL_DAMAGED, Fault.PAYLOAD_DAMAGED})
NOTICED_LATE: Final = frozenset(
    {Fault.WORKER_STOPPED, Fault.NODE_STOPPED, Fault.NODE_CUT_OFF, Fault.NODE_CUT_BRIEFLY, Fault.NVDEC_HANGS}
    | {Fault.NODE_TAKEN_BACK}
    | {Fault.GCS_KILLED, Fault.RAYLET_KILLED}
)
"""Faults that take effect, or are noticed, after a while, in which more work starts that will be lost."""
TRIES: Final = 3
"""How many times a segment is tried if its source cannot be read."""

Program = Sequence[Said]
"""The events of one run of a job's command, in order."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was carried out: its time on the monotonic clock, and the program of the job that ran then."""

    fault: Fault
    program: int
    at_s: float


def running(program: Program, at_s: float, heard_s: float = 0.0) -> set[int]:
    """Return the segments that had started by ``at_s + heard_s`` and had not finished at ``at_s``."""
    finished = {said.event["segment"] for said in program if said.kind == "segment_finished" and said.at_s <= at_s}
    started = {said.event["segment"] for said in program if said.is_start and said.at_s <= at_s + heard_s}
    return started - finished


def most_running(program: Program) -> int:
    """Return the largest number of segments that ran at the same time."""
    return max((len(running(program, said.at_s)) for said in program if said.is_start), default=0)


def redone(programs: Sequence[Program]) -> int:
    """Return how many starts were repeated starts of a segment."""
    starts = [said.event["segment"] for program in programs for said in program if said.is_start]
    return len(starts) - len(set(starts))


def allowed(programs: Sequence[Program], struck: Sequence[Struck]) -> int:
    """Return how many segments may have run again: those in flight at the faults, damaged ones, and second runs.

    Segments on workers that were given up for silence also count: frozen workers, and those that the program names.
    """
    second_runs = sum(said.is_start and said.event["is_second"] for program in programs for said in program)
    given_up = 0
    for number, program in enumerate(programs):
        frozen = sum(each.program == number and each.fault in NOTICED_LATE for each in struck)
        silent = sum(said.event.get("code") == "deadline" for said in program)
        given_up += max(frozen, silent) * most_running(program)
    return given_up + second_runs + sum(_allowed(programs[each.program], each) for each in struck)


def _allowed(program: Program, struck: Struck) -> int:
    ends = struck.fault in ENDS_THE_DRIVER
    lost = len(running(program, math.inf) if ends else running(program, struck.at_s, HEARD_S))
    if struck.fault is Fault.STORAGE_GONE:
        lost *= TRIES
    return lost + (struck.fault in DAMAGES)


def recovery_s(programs: Sequence[Program], struck: Sequence[Struck], number: int) -> float | None:
    """Return how long the work that a fault lost waited until it ran again.

    Return None if nothing was lost, or if another fault that may have caused the loss was still in progress.
    """
    ours = struck[number]
    back_s = _back_s(programs, ours)
    if back_s is None or any(other.at_s <= back_s for other in struck[number + 1 :]):
        return None
    if any(_is_open(programs, other, ours.at_s) for other in struck[:number]):
        return None
    return round(back_s - ours.at_s, 3)


def _back_s(programs: Sequence[Program], struck: Struck) -> float | None:
    """Return when the first segment that ran at the time of the fault, or of the program's end, started again."""
    ends = struck.fault in ENDS_THE_DRIVER
    lost = running(programs[struck.program], math.inf if ends else struck.at_s)
    later = programs[struck.program + ends :]
    starts = (said for program in later for said in program if said.is_start and said.at_s > struck.at_s)
    return next((said.at_s for said in starts if said.event["segment"] in lost), None)


def _is_open(programs: Sequence[Program], struck: Struck, at_s: float) -> bool:
    """Return whether, at ``at_s``, a segment that the fault had interrupted had neither started again nor finished."""
    program = programs[struck.program]
    again = {
        said.event["segment"]
        for each in programs[struck.program :]
        for said in each
        if said.is_start and struck.at_s < said.at_s <= at_s
    }
    return bool(running(program, struck.at_s) & running(program, at_s) - again)
