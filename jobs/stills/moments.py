"""When stills are taken: pure arithmetic over exact times, in seconds after the track's first picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

from ...errors import UsageError
from .spec import STILLS_MOST


@dataclass(frozen=True, slots=True)
class Moment:
    """One still: the picture on screen at ``at_s``, which stands for [``begin_s``, ``end_s``)."""

    at_s: Fraction
    begin_s: Fraction
    end_s: Fraction

    def ticks(self, first_ticks: int, time_base: Fraction) -> int:
        """Return the latest tick that is not after it, on a clock that shows the first picture at ``first_ticks``."""
        return first_ticks + floor(self.at_s / time_base)


def at_multiples(every_s: Fraction, begin_s: Fraction, end_s: Fraction) -> tuple[Moment, ...]:
    """Return the moments ``begin_s``, and ``every_s`` after each, that lie before ``end_s``.

    Raises:
        UsageError: there are more than ``STILLS_MOST``.
    """
    count = ceil((end_s - begin_s) / every_s)
    if count > STILLS_MOST:
        message = f"{count} stills are more than {STILLS_MOST:,}: one each {float(every_s):g} s"
        raise UsageError(message, "Give a longer time, or a smaller part of the film.")
    return _from_each([begin_s + every_s * n for n in range(count)], end_s)


def at_middles(count: int, begin_s: Fraction, end_s: Fraction) -> tuple[Moment, ...]:
    """Return the middles of ``count`` equal parts of [``begin_s``, ``end_s``)."""
    part_s = (end_s - begin_s) / count
    return tuple(
        Moment(begin_s + part_s * (n + Fraction(1, 2)), begin_s + part_s * n, begin_s + part_s * (n + 1))
        for n in range(count)
    )


def at_scenes(starts_s: Sequence[Fraction], end_s: Fraction) -> tuple[Moment, ...]:
    """Return the starts of scenes, of which the last one ends at ``end_s``.

    Raises:
        UsageError: there are more than ``STILLS_MOST``.
    """
    if len(starts_s) > STILLS_MOST:
        message = f"{len(starts_s)} scenes are more than {STILLS_MOST:,}"
        raise UsageError(message, "Give a higher --scene-threshold or longer --scene-seconds.")
    return _from_each(starts_s, end_s)


def _from_each(starts_s: Sequence[Fraction], end_s: Fraction) -> tuple[Moment, ...]:
    return tuple(Moment(begin, begin, end) for begin, end in pairwise([*starts_s, end_s]))
