"""Timecodes of SMPTE ST 12-1, moved on."""

import re
from fractions import Fraction
from math import floor
from typing import Final

_NUMBERS: Final = 4
"""Hours, minutes, seconds, frames."""
_RATES_A_DROP: Final = 15
"""Drop-frame counting at 30 leaves out 2 numbers a minute, at 60 it leaves out 4."""


def moved_timecode(timecode: str, by_s: Fraction, rate: Fraction, counted: Fraction | None = None) -> str:
    """Return the timecode that ``by_s`` after another has, at ``rate`` pictures a second.

    ``counted`` is how many pictures a second the other one counts, where it counts each second or third picture.
    Drop-frame timecodes, with ";" or "." before the frames, leave out numbers in each minute that 10 does not divide.
    """
    numbers = [int(each) for each in re.findall(r"\d+", timecode)]
    if len(numbers) != _NUMBERS:
        return timecode
    hours, minutes, seconds, frames = numbers
    mark, given, wanted = timecode[-3], round(counted or rate), round(rate)
    factor = wanted // given if given and wanted % given == 0 else 1
    base = given
    dropped = base // _RATES_A_DROP if mark in ";." else 0
    minutes += 60 * hours
    count = (60 * minutes + seconds) * base + frames - dropped * (minutes - minutes // 10)
    pictures = floor(by_s * rate + Fraction(1, 2))
    return _written(count * factor + pictures, base * factor, dropped * factor, mark)


def _written(count: int, base: int, dropped: int, mark: str) -> str:
    """Return the timecode of a picture by its number from midnight on."""
    ten_minutes = 600 * base - 9 * dropped
    tens, rest = divmod(count % (144 * ten_minutes), ten_minutes)
    if rest >= 60 * base:
        rest += dropped * (1 + (rest - 60 * base) // (60 * base - dropped))
    seconds, frames = divmod(600 * base * tens + rest, base)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{mark}{frames:02d}"
