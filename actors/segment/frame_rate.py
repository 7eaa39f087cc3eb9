"""Frame rates and keyframe intervals: which source picture an output picture shows, and whether it is a keyframe.

Pure functions and values; docs/filters.md and docs/timeline.md have the rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Generic, TypeVar

PictureT = TypeVar("PictureT")


@dataclass(frozen=True, slots=True)
class FrameRate:
    """The pictures of an output with its own rate: when each is shown, and which source picture it shows.

    Picture ``n`` is shown at ``first_ticks + n * step_ticks``, for ``step_ticks``. Its source picture is the one on
    screen ``lead_ticks`` after that time: the last that begins at or before then, or the first if all begin later.
    Output pictures whose source picture would be chosen at or after ``end_ticks`` do not exist. Ticks are those of the
    source; ``fps`` is in pictures a second. No picture is shown before its own time, so a segment that begins with a
    source picture needs no earlier source picture.
    """

    fps: Fraction
    first_ticks: int
    step_ticks: Fraction
    lead_ticks: Fraction
    end_ticks: int

    @property
    def name(self) -> str:
        """The rate's name in the encoder kind."""
        return f"fps={self.fps}"

    @property
    def words(self) -> str:
        """The rate's description for the user."""
        return f"brought to {self.fps} pictures a second"

    @property
    def pictures(self) -> int:
        """The number of output pictures: all whose source picture is chosen before ``end_ticks``, at least one."""
        return max(1, self.following(self.end_ticks))

    def shown_at(self, number: int) -> Fraction:
        """Return when an output picture is shown, in ticks."""
        return self.first_ticks + number * self.step_ticks

    def chosen_at(self, number: int) -> int:
        """Return the tick at which the source picture for an output picture is on screen."""
        return self.first_ticks + floor(number * self.step_ticks + self.lead_ticks)

    def parts_before(self, number: int, shown_ticks: int) -> bool:
        """Return whether a segment may end before an output picture that shows the source picture at ``shown_ticks``.

        If a tick is longer than an output picture, the preceding output picture may show the same source picture.
        """
        return shown_ticks < self.chosen_at(number) or self.chosen_at(number - 1) < shown_ticks

    def following(self, ticks: int) -> int:
        """Return the first output picture whose source picture is chosen at or after ``ticks``."""
        return max(0, ceil((ticks - self.first_ticks - self.lead_ticks) / self.step_ticks))


class Pacer(Generic[PictureT]):
    """Turns source pictures, which come in order, into the ``wanted`` output pictures."""

    def __init__(self, rate: FrameRate, wanted: range) -> None:
        self._rate = rate
        self._number, self._stop = wanted.start, wanted.stop
        self._shown: PictureT | None = None

    def push(self, ticks: int, picture: PictureT) -> Iterator[tuple[int, PictureT]]:
        """Take a source picture, and yield the (number, picture) pairs that are certain now."""
        while self._shown is not None and self._number < self._stop and self._rate.chosen_at(self._number) < ticks:
            yield self._number, self._shown
            self._number += 1
        self._shown = picture

    def finish(self) -> Iterator[tuple[int, PictureT]]:
        """Yield the remaining (number, picture) pairs, which show the last source picture."""
        if self._shown is not None:
            yield from ((number, self._shown) for number in range(self._number, self._stop))


@dataclass(frozen=True, slots=True)
class CountedGrid:
    """Keyframes of a track with its own rate: the first picture at or after each multiple of ``interval_frames``."""

    interval_frames: Fraction

    def following(self, number: int) -> int:
        """Return the first keyframe at or after a picture."""
        return ceil((floor((number - 1) / self.interval_frames) + 1) * self.interval_frames)

    def is_keyframe(self, number: int, before: int | None) -> bool:
        """Return whether a picture is a keyframe; ``before`` is the picture shown before it, if any."""
        return before is None or floor(number / self.interval_frames) > floor(before / self.interval_frames)


@dataclass(frozen=True, slots=True)
class KeyframeGrid:
    """The multiples of ``interval_ticks``, counted from ``first_ticks``, the time of the output's first picture.

    The only keyframes are the first pictures at or after each multiple. If no picture is shown between two multiples,
    one keyframe serves both. Ticks are in the source's time base; multiples are rounded down to ticks, because the
    times of the pictures may have been rounded down, too (to milliseconds in Matroska).
    """

    first_ticks: int
    interval_ticks: Fraction

    def multiple(self, ticks: int) -> int:
        """Return the number of the last multiple at or before ``ticks``."""
        return ceil((ticks - self.first_ticks + 1) / self.interval_ticks) - 1

    def begins(self, multiple: int) -> int:
        """Return the first tick whose picture belongs to this multiple of the keyframe interval."""
        return self.first_ticks + floor(multiple * self.interval_ticks)

    def following(self, ticks: int) -> int:
        """Return the first tick at or after ``ticks`` at which a multiple begins."""
        return self.begins(ceil((ticks - self.first_ticks) / self.interval_ticks))

    def is_keyframe(self, ticks: int, before_ticks: int | None) -> bool:
        """Return whether the picture at ``ticks`` is a keyframe; ``before_ticks`` is the previous picture's time."""
        return before_ticks is None or self.multiple(ticks) > self.multiple(before_ticks)
