"""SMPTE timecode: hours, minutes, seconds and pictures.

Drop-frame timecode (SMPTE ST 12-1, 5.2.2) keeps up with the clock at 29.97 pictures a second: it skips the first two
numbers of each minute (four at twice the rate), except in every tenth minute.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Final, Self

from ..request.spec import TranscodeSpec
from ..source.tracks import SourceDescription
from .containers import Container

#: The frame rates of timecodes in mp4 and mov, as whole numbers
_COUNTABLE: Final = (24, 25, 30, 48, 50, 60, 100, 120, 150)
_WRITTEN: Final = re.compile(r"(\d{2}):([0-5]\d):([0-5]\d)([:;.,])(\d{2,3})")
_DROPPED_AT_30: Final = 2
_BASE: Final = 30  #: Drop-frame timecode counts 30 pictures a second, or a multiple of 30
_HOURS, _MINUTES, _SECONDS = 24, 60, 60
_HALF: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Timecode:
    """The timecode of one picture."""

    picture: int  #: counted from 00:00:00:00
    per_second: int  #: pictures counted per second, such as 30 for 29.97
    drops: bool  #: whether numbers are skipped

    @classmethod
    def parse(cls, text: str, rate: Fraction) -> Self | None:
        """Read a timecode of pictures at ``rate``; return None if it is invalid for that rate."""
        found = _WRITTEN.fullmatch(text.strip())
        per_second = floor(rate + _HALF)
        if found is None or per_second <= 0:
            return None
        hours, minutes, seconds, pictures = (int(found[group]) for group in (1, 2, 3, 5))
        drops = found[4] != ":"
        if hours >= _HOURS or pictures >= per_second or (drops and per_second % _BASE):
            return None
        minutes += _MINUTES * hours
        named = (_SECONDS * minutes + seconds) * per_second + pictures
        left_out = _left_out(per_second) * (minutes - minutes // 10) if drops else 0
        return cls(named - left_out, per_second, drops)

    def moved(self, pictures: int) -> Self:
        """Return the timecode ``pictures`` pictures later; after a day it begins again at zero."""
        return replace(self, picture=(self.picture + pictures) % self._of_a_day)

    def counted_at(self, rate: Fraction) -> Self | None:
        """Return the timecode of the same picture at ``rate``, a multiple of this rate; None for other rates."""
        per_second = floor(rate + _HALF)
        if per_second < self.per_second or per_second % self.per_second:
            return None
        return replace(self, picture=self.picture * (per_second // self.per_second), per_second=per_second)

    @property
    def _of_a_day(self) -> int:
        minutes = _HOURS * _MINUTES
        left_out = _left_out(self.per_second) * (minutes - minutes // 10) if self.drops else 0
        return minutes * _SECONDS * self.per_second - left_out

    def __str__(self) -> str:
        """Return the timecode as text, with a semicolon if it is drop-frame."""
        minute = _SECONDS * self.per_second
        named = self.picture
        if self.drops:
            dropped = _left_out(self.per_second)
            of_ten = 10 * minute - 9 * dropped
            tens, rest = divmod(self.picture, of_ten)
            # The first of ten minutes skips nothing; each of the others begins two numbers late.
            named += dropped * (9 * tens + max(0, rest - dropped) // (minute - dropped))
        seconds, pictures = divmod(named, self.per_second)
        minutes, seconds = divmod(seconds, _SECONDS)
        hours, minutes = divmod(minutes, _MINUTES)
        return f"{hours:02d}:{minutes:02d}:{seconds:02d}{';' if self.drops else ':'}{pictures:02d}"


def _left_out(per_second: int) -> int:
    return _DROPPED_AT_30 * per_second // _BASE


def output_timecode(
    source: SourceDescription, spec: TranscodeSpec, container: Container, rate: Fraction | None, skipped_s: Fraction
) -> str | None:
    """Return the timecode of the output's first picture.

    The result is None if the source has no timecode, or if the output's rate cannot express it. ``rate`` is
    in pictures per second; ``skipped_s`` is the time from the source's first picture to the output's first picture.
    """
    if source.timecode is None or not container.tags or rate is None or spec.fps is not None:
        return None
    # At 60 pictures per second, cameras count only every second picture.
    stated = Timecode.parse(source.timecode, source.timecode_rate or rate)
    counted = None if stated is None else stated.counted_at(rate)
    if counted is None:
        return source.timecode if container.any_timecode and not skipped_s else None
    whole = counted.per_second
    if not (container.any_timecode or whole in _COUNTABLE or whole % 30 == 0):
        return None
    pictures = floor(skipped_s * rate + _HALF)
    return str(counted.moved(pictures)) if pictures or counted != stated else source.timecode
