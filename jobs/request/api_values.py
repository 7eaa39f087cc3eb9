"""Values as programs pass them, checked before anything begins: Python holds nobody to the types of a signature."""

import os
from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral
from typing import Any, Final

from ...errors import UsageError
from .values import SIDE_MAX

__all__ = ["TERM_MAX", "check_ratio", "check_size", "check_text", "check_whole", "exact", "is_ffmpeg_ratio", "location"]

TERM_MAX: Final = (1 << 31) - 1
"""FFmpeg's rationals have a numerator and a denominator of 32 bits (libavutil, rational.h)."""


def exact(name: str, value: Any) -> Fraction | None:  # noqa: ANN401 - whatever a program passes
    """Return a number as what it is, to the last digit; None stays None.

    Raises:
        UsageError: it is no number, or not finite.
    """
    if value is None:
        return None
    try:
        return Fraction(value)
    except (TypeError, ValueError, ArithmeticError):
        message = f"{name} is no number: {value!r}"
        raise UsageError(message, "Give a Fraction, such as Fraction(30000, 1001).") from None


def is_ffmpeg_ratio(value: Fraction) -> bool:
    """Tell whether FFmpeg has a number for a positive ratio."""
    return max(value.numerator, value.denominator) <= TERM_MAX


def check_ratio(name: str, value: Fraction | None) -> None:
    """Make sure that FFmpeg can take a rate, a time base or an aspect ratio exactly, if it is given.

    Raises:
        UsageError: it is not positive, or needs larger numbers.
    """
    if value is None:
        return
    if value <= 0:
        message = f"{name} must be positive: {value}"
        raise UsageError(message, "Leave it out for the default.")
    if not is_ffmpeg_ratio(value):
        message = f"{name} needs numbers of more than 31 bits: {value}"
        raise UsageError(message, "Give a simpler Fraction: 29.97 frames a second are Fraction(30000, 1001).")


def check_whole(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> None:  # noqa: ANN401
    """Make sure that a value, if it is given, is a whole number in that range.

    Raises:
        UsageError: it is not.
    """
    if value is None:
        return
    if not isinstance(value, Integral):
        message = f"{name} is no whole number: {value!r}"
    elif least is not None and int(value) < least:
        message = f"{name} must be at least {least}: {value}"
    elif most is not None and int(value) > most:
        message = f"{name} must be at most {most}: {value}"
    else:
        return
    raise UsageError(message, "Leave it out for the default.")


def check_size(name: str, value: object) -> None:
    """Make sure that a value, if it is given, is a (width, height) in pixels.

    Raises:
        UsageError: it is not.
    """
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:  # noqa: PLR2004 - width, height
        message = f"{name} is no pair of sides: {value!r}"
        raise UsageError(message, "Give (width, height).")
    for side in value:
        check_whole(f"a side of {name}", side, least=1, most=SIDE_MAX)


def check_text(name: str, value: object) -> None:
    """Make sure that a value, if it is given, is text.

    Raises:
        UsageError: it is not.
    """
    if value is not None and not isinstance(value, str):
        message = f"{name} is no text: {value!r}"
        raise UsageError(message, "Give a str.")


def location(name: str, value: object) -> str:
    """Return a path or URL as text.

    Raises:
        UsageError: it is neither ``str`` nor ``os.PathLike``.
    """
    path = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(path, str):
        message = f"{name} is not a path: {value!r}"
        raise UsageError(message, "Give a str or a pathlib.Path.")
    return path
