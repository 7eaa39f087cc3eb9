"""A value that a machine does not have, and why: never a failure, and never a zero."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class Absence(Enum):
    """What kind of "no" it is."""

    NOT_SUPPORTED = "not supported"  #: the device or its driver has no such thing
    NO_PERMISSION = "no permission"  #: it is there, but not for us
    FUNCTION_NOT_FOUND = "function not found"  #: the driver or the package is older than the question
    NOT_FOUND = "not found"  #: nothing there now: no sample, no session, no such index
    DOES_NOT_APPLY = "does not apply"  #: known to be meaningless here, so not asked (a vGPU's serial number)
    NO_LIBRARY = "no library"  #: the library or package that would answer is not there
    TIMED_OUT = "timed out"  #: no answer within the probe's time limit
    FAILED = "failed"  #: an error that is none of these; the reason names it


@dataclass(frozen=True, slots=True)
class Unavailable:
    """There is no such value here; ``reason`` says why in one sentence without a full stop."""

    absence: Absence
    reason: str


Maybe: TypeAlias = T | Unavailable
"""A value, or why there is none."""


def known(value: Maybe[T], otherwise: T) -> T:
    """Return the value, or ``otherwise`` where there is none: for sums and tables, never for decisions."""
    return otherwise if isinstance(value, Unavailable) else value
