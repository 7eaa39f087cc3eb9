"""Where the keyframes of a track lie whose keyframe interval was asked for."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor


@dataclass(frozen=True, slots=True)
class KeyframeGrid:
    """The multiples of ``interval_ticks`` after ``first_ticks``, which is when the output's first picture is shown.

    A keyframe is the first picture at or after each multiple; between two multiples there is no other. Where no picture
    is shown between two of them, one keyframe serves both. Ticks are those of the source's time base, and a multiple is
    rounded down to them: the picture that it means may have been, as in Matroska's milliseconds.
    """

    first_ticks: int
    interval_ticks: Fraction

    def multiple(self, ticks: int) -> int:
        """Return the number of the last multiple at or before ``ticks``."""
        return ceil((ticks - self.first_ticks + 1) / self.interval_ticks) - 1

    def begins(self, multiple: int) -> int:
        """Return the tick at which a multiple begins: pictures from there on belong to it."""
        return self.first_ticks + floor(multiple * self.interval_ticks)

    def following(self, ticks: int) -> int:
        """Return the first tick at or after ``ticks`` at which a multiple begins."""
        return self.begins(ceil((ticks - self.first_ticks) / self.interval_ticks))

    def is_keyframe(self, ticks: int, before_ticks: int | None) -> bool:
        """Return whether the picture at ``ticks`` is a keyframe, shown after the one at ``before_ticks``, if any."""
        return before_ticks is None or self.multiple(ticks) > self.multiple(before_ticks)
