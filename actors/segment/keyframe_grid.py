"""The keyframes of a track for which an interval was requested."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor


@dataclass(frozen=True, slots=True)
class KeyframeGrid:
    """The multiples of ``interval_ticks`` after ``first_ticks``, the time of the output's first picture.

    The only keyframes are the first pictures at or after each multiple. If no picture is shown between two multiples,
    one keyframe serves both. Ticks are in the source's time base; multiples are rounded down to ticks, because the
    pictures' times may have been (Matroska's milliseconds).
    """

    first_ticks: int
    interval_ticks: Fraction

    def multiple(self, ticks: int) -> int:
        """Return the number of the last multiple at or before ``ticks``."""
        return ceil((ticks - self.first_ticks + 1) / self.interval_ticks) - 1

    def begins(self, multiple: int) -> int:
        """Return the tick at which a multiple begins, to which the pictures from there on belong."""
        return self.first_ticks + floor(multiple * self.interval_ticks)

    def following(self, ticks: int) -> int:
        """Return the first tick at or after ``ticks`` at which a multiple begins."""
        return self.begins(ceil((ticks - self.first_ticks) / self.interval_ticks))

    def is_keyframe(self, ticks: int, before_ticks: int | None) -> bool:
        """Return whether the picture at ``ticks`` is a keyframe, shown after the one at ``before_ticks``, if any."""
        return before_ticks is None or self.multiple(ticks) > self.multiple(before_ticks)
