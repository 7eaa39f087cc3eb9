"""Runs a probe in a child process with a time limit, because calls in the probe may hang, crash or call exit().

A process can end without an exception when it initialises CUDA, imports PyNvVideoCodec or creates a decoder.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from ....actors.process.plain import PlainEnd
from ....actors.process.process import run_program
from ....actors.process.program import begin
from ....actors.process.running import Limits, Running, signal_name
from ... import machine

Probe: TypeAlias = Callable[..., Any]
"""An importable function or generator function whose arguments and results can be pickled."""
STUCK_S = 2.0
"""How long to wait for the end of a killed child; a child that is stuck in a kernel driver never ends."""


class ChildEnd(Enum):
    """How a child process ended."""

    RETURNED = "returned"  #: the probe finished
    RAISED = "raised"  #: the probe raised the exception that ``detail`` names
    EXITED = "exited"  #: the process exited with the error code that ``detail`` names, or could not start
    KILLED = "killed"  #: a signal ended the process, as in a crash
    TIMED_OUT = "timed out"  #: the process was killed at its time limit


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """The result of a probe that ran in a child process."""

    end: ChildEnd
    values: tuple[Any, ...] = ()  #: all values that the probe returned or yielded before the process ended
    detail: str = ""  #: why the probe did not finish, in one line; "" if it finished
    said: str = ""  #: the last lines that the process printed

    @property
    def returned(self) -> bool:
        """Whether the probe finished."""
        return self.end is ChildEnd.RETURNED


@dataclass(frozen=True, slots=True)
class Raised:
    """The last message of a child: the exception that ended the probe."""

    error: str


def run_in_child(
    probe: Probe,
    arguments: Mapping[str, Any],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> ChildOutcome:
    """Run ``probe`` with keyword ``arguments`` in a child process; never raises, even if the probe fails.

    After ``limit_s``, the child and its own children are killed; they also end when this process ends. ``environment``
    is added to this process's variables.
    """
    until_s = time.monotonic() + limit_s
    # The kernel also limits the child's CPU time, because this process may be stopped and miss the deadline.
    limits = Limits(cpu_s=math.ceil(limit_s) * machine.cores())
    try:
        child = run_program(__name__, environment={**os.environ, **(environment or {})}, limits=limits)
    except OSError as refused:
        return ChildOutcome(ChildEnd.EXITED, detail=f"the child process did not start: {refused}")
    values: list[Any] = []
    try:
        error = _receive(child, (probe, arguments), until_s, values)
        end, detail = _end(child, until_s, limit_s)
        said = child.last_words()
    finally:
        child.kill_group()
        child.end.close()
        child.ended()
    if error is not None:
        end, detail = ChildEnd.RAISED, error
    return ChildOutcome(end, tuple(values), detail, said)


def _receive(child: Running, order: tuple[Probe, Mapping[str, Any]], until_s: float, values: list[Any]) -> str | None:
    """Append the child's values to ``values`` until the deadline; return the error that ended the probe, if any."""
    try:
        end = PlainEnd(child.end)
        end.send(order)
        while not isinstance(value := end.receive(until_s), Raised):
            values.append(value)
    except (EOFError, OSError):  # the child has ended, or the deadline has passed
        return None
    return value.error


def _end(child: Running, until_s: float, limit_s: float) -> tuple[ChildEnd, str]:
    code = child.code(max(0.0, until_s - time.monotonic()))
    if code is None:
        child.kill_group()
        child.code(STUCK_S)
        return ChildEnd.TIMED_OUT, f"no answer within {limit_s:g} s"
    if code < 0:
        return ChildEnd.KILLED, f"the process was killed by {signal_name(-code)}"
    if code > 0:
        return ChildEnd.EXITED, f"the process exited with code {code}"
    return ChildEnd.RETURNED, ""


def main() -> None:
    """Run the probe that the parent process sends, and send each of its values back."""
    end = PlainEnd(begin()[0])
    try:
        probe, arguments = end.receive()
        found = probe(**arguments)
        for value in found if isinstance(found, Iterator) else (found,):
            end.send(value)
    except Exception as error:  # noqa: BLE001 - the exception is the probe's result
        end.send(Raised(f"{type(error).__name__}: {error}"))


CHILDREN_MAX = 8
"""How many child processes try cases, one after another; if this many end early, the machine itself may be faulty."""
_LEAST_S = 0.5
_TOO_LATE = "the time limit for trials was reached"

RunChild: TypeAlias = Callable[..., ChildOutcome]
"""Has the signature of ``run_in_child``, for which tests pass a substitute."""


@dataclass(frozen=True, slots=True)
class CasesOutcome:
    """The results of all cases."""

    results: dict[str, Any]  #: the result of each finished case
    deaths: dict[str, ChildOutcome]  #: for each case that ended its child: how the child ended
    untried: tuple[str, ...]
    problem: str  #: why cases were not tried; "" if all were tried


def try_cases(
    probe: Probe,
    cases: Sequence[str],
    arguments: Callable[[tuple[str, ...]], Mapping[str, Any]],
    limit_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    run: RunChild,
    clock: Callable[[], float] = time.monotonic,
) -> CasesOutcome:
    """Try ``cases`` in order, all within ``limit_s``; if a case ends its child, continue in another child.

    ``probe`` is a generator function that yields each case's name when the case begins, and (name, result) when it is
    done. ``arguments`` returns the keyword arguments of ``probe`` for the remaining cases; the remaining time is added
    as ``limit_s``.
    """
    results: dict[str, Any] = {}
    deaths: dict[str, ChildOutcome] = {}
    left, ends_s, problem = tuple(cases), clock() + limit_s, ""
    for _ in range(CHILDREN_MAX):
        remaining_s = ends_s - clock()
        if not left or remaining_s < _LEAST_S:
            break
        outcome = run(probe, {**arguments(left), "limit_s": remaining_s}, remaining_s, environment)
        done: dict[str, Any] = dict(value for value in outcome.values if isinstance(value, tuple))
        results |= done
        problem = outcome.detail
        if outcome.end is ChildEnd.TIMED_OUT and done:
            problem = _TOO_LATE  # the case that was running is not to blame
        elif not outcome.returned:
            deaths |= {case: outcome for case in outcome.values if isinstance(case, str) and case not in done}
        before, left = left, tuple(case for case in left if case not in results and case not in deaths)
        if left == before or outcome.returned:
            break
    return CasesOutcome(results, deaths, left, (problem or _TOO_LATE) if left else "")
