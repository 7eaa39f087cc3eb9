"""Represents missing values, each with the reason."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class Absence(Enum):
    """Why a value is missing."""

    NOT_SUPPORTED = "not supported"  #: the device or its driver has no such value
    NO_PERMISSION = "no permission"  #: the value exists, but this user may not read it
    FUNCTION_NOT_FOUND = "function not found"  #: the driver or the package is too old to answer
    NOT_FOUND = "not found"  #: there is no such value now, for example no sample, no session or no such index
    #: the value would be meaningless, such as a vGPU's serial number, so it was not queried
    DOES_NOT_APPLY = "does not apply"
    NO_LIBRARY = "no library"  #: the library or package that would answer is missing
    TIMED_OUT = "timed out"  #: no answer within the probe's time limit
    FAILED = "failed"  #: another error, named in the reason


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A missing value; ``reason`` is a sentence without a full stop."""

    absence: Absence
    reason: str


Maybe: TypeAlias = T | Unavailable
"""A value, or why there is none."""


def known(value: Maybe[T], otherwise: T) -> T:
    """Return the value; if it is missing, return ``otherwise``."""
    return otherwise if isinstance(value, Unavailable) else value
