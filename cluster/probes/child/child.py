"""Runs a probe in a process of its own, with a time limit: for calls that may hang, crash or call exit().

Initialising CUDA, importing PyNvVideoCodec and creating a decoder can end the process without an exception. So such a
probe is an importable function that takes and returns values of importable classes.
"""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ... import machine
from ...process.plain import PlainEnd
from ...process.process import run_program
from ...process.running import Limits, Running, signal_name
from .program import Probe, Raised, RunProbe, Yielded

_PROGRAM = RunProbe.__module__
SAID_KEPT_CHARACTERS = 2000
STUCK_S = 2.0
"""How long a killed child is waited for: one that is stuck in the kernel's driver never ends."""


class ChildEnd(Enum):
    """How the child ended."""

    RETURNED = "returned"  #: it said all it had to say
    RAISED = "raised"  #: an exception ended it; ``detail`` names it
    EXITED = "exited"  #: the process ended itself; ``detail`` holds its exit code
    KILLED = "killed"  #: a signal ended it: a crash
    TIMED_OUT = "timed out"  #: it was killed at its time limit


@dataclass(frozen=True, slots=True)
class ChildOutcome:
    """What came of a probe that ran in a child process.

    ``values`` are what it returned (one value), or what it had yielded by the time it ended, however it ended.
    ``detail`` is one line for people, "" when it returned; ``said`` is the end of what it printed.
    """

    end: ChildEnd
    values: tuple[Any, ...] = ()
    detail: str = ""
    said: str = ""
    took_s: float = 0.0

    @property
    def returned(self) -> bool:
        """Whether it came to its own end."""
        return self.end is ChildEnd.RETURNED


def run_in_child(
    probe: Probe,
    arguments: Mapping[str, Any],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
) -> ChildOutcome:
    """Run ``probe`` in a child process; never raises for what happens there.

    ``probe`` is an importable function, or a generator function whose items are kept as they come; its keyword
    ``arguments`` and all results are values that pickle. After ``limit_s`` the child is killed, with its own children;
    with this process it ends at once. ``environment`` is set over this process's own.
    """
    began_s = time.monotonic()
    # This process may be stopped, and then watches no clock.
    limits = Limits(cpu_s=math.ceil(limit_s) * machine.cores())
    try:
        child = run_program(_PROGRAM, environment={**os.environ, **(environment or {})}, limits=limits)
    except OSError as refused:
        return ChildOutcome(ChildEnd.EXITED, detail=f"the child process did not start: {refused}")
    try:
        values, error = _heard(child, RunProbe(probe, arguments), began_s + limit_s)
        end, detail = _end(child, began_s + limit_s, limit_s)
        said = child.last_words()[-SAID_KEPT_CHARACTERS:]
    finally:
        child.kill_group()
        child.end.close()
        child.ended()
    if error is not None:
        end, detail = ChildEnd.RAISED, error
    return ChildOutcome(end, values, detail, said, time.monotonic() - began_s)


def _heard(child: Running, order: RunProbe, until_s: float) -> tuple[tuple[Any, ...], str | None]:
    """Return what a child yields until then, and what it raised."""
    values: list[Any] = []
    try:
        end = PlainEnd(child.end)
        end.send(order)
        while True:
            match end.receive(until_s):
                case Yielded(value):
                    values.append(value)
                case Raised(error):
                    return tuple(values), error
    except (EOFError, OSError):  # it has ended, or its time is up: what came before counts
        return tuple(values), None


def _end(child: Running, until_s: float, limit_s: float) -> tuple[ChildEnd, str]:
    """Return how a child ended that has no more to say; one that is late is killed."""
    code = child.code(max(0.0, until_s - time.monotonic()))
    if code is None:
        child.kill_group()
        child.code(STUCK_S)  # stuck inside the kernel's driver, where no signal reaches, it does not end
        return ChildEnd.TIMED_OUT, f"no answer within {limit_s:g} s"
    if code < 0:
        return ChildEnd.KILLED, f"the process was ended by {signal_name(-code)}"
    if code > 0:
        return ChildEnd.EXITED, f"the process exited with code {code}"
    return ChildEnd.RETURNED, ""
