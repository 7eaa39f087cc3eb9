"""Chooses the frames of clips, at random or at regular distances, as lists of frame numbers.

Pure functions of a film's length or times. Names, options and results are those of torchcodec's samplers.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NoReturn, Self, TypeVar

from ...errors import UsageError

Policy = Literal["repeat_last", "wrap", "error"]
Seconds = Fraction | float
POLICIES: Final = ("repeat_last", "wrap", "error")
#: The largest denominator when a float becomes a fraction: 1 / 30 and 1001 / 30000 become exact
_MOST_DENOMINATOR: Final = 1_000_000
_PlaceT = TypeVar("_PlaceT", int, Fraction)


def clips_at_random_indices(
    film: int | Sized,
    *,
    seed: int,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    num_indices_between_frames: int = 1,
    sampling_range_start: int = 0,
    sampling_range_end: int | None = None,
    policy: Policy = "repeat_last",
) -> list[list[int]]:
    """Return clips that begin at random frames; equal seeds give equal clips.

    Args:
        film: the number of frames, or an object with that length.
        seed: chooses the clips.
        num_clips: how many clips.
        num_frames_per_clip: how many frames each clip has.
        num_indices_between_frames: the step from one frame of a clip to the next.
        sampling_range_start: the first frame at which a clip may begin; a negative number counts from the end.
        sampling_range_end: the frame before which clips begin; a negative number counts from the end. By default no
            clip exceeds the film, if the film has enough frames for one clip.
        policy: what replaces frames past the film's end: the clip's last frame ("repeat_last"), its frames from the
            beginning ("wrap"), or an error.

    Raises:
        UsageError: an option is out of range, or a clip exceeds the film and ``policy`` is "error".
    """
    frames = _counted(film)
    span = _span(num_frames_per_clip, num_indices_between_frames)
    low, high = _index_range(frames, span, sampling_range_start, sampling_range_end)
    chosen = _generator(seed)
    starts = [chosen.randrange(low, high) for _ in range(_positive("num_clips", num_clips))]
    return [_clip(start, num_frames_per_clip, num_indices_between_frames, frames, policy) for start in starts]


def clips_at_regular_indices(
    film: int | Sized,
    *,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    num_indices_between_frames: int = 1,
    sampling_range_start: int = 0,
    sampling_range_end: int | None = None,
    policy: Policy = "repeat_last",
) -> list[list[int]]:
    """Return clips that begin at equal distances, from the first to the last frame at which a clip may begin.

    Options and errors are those of ``clips_at_random_indices``. If there are more clips than such frames, several clips
    begin at the same frame.
    """
    frames = _counted(film)
    span = _span(num_frames_per_clip, num_indices_between_frames)
    low, high = _index_range(frames, span, sampling_range_start, sampling_range_end)
    starts = _spaced(low, high - 1, _positive("num_clips", num_clips))
    return [_clip(start, num_frames_per_clip, num_indices_between_frames, frames, policy) for start in starts]


def clips_at_random_times(
    times_s: Sequence[Seconds],
    *,
    seed: int,
    num_clips: int = 1,
    num_frames_per_clip: int = 1,
    seconds_between_frames: Seconds | None = None,
    sampling_range_start: Seconds | None = None,
    sampling_range_end: Seconds | None = None,
    end_s: Seconds | None = None,
    policy: Policy = "repeat_last",
) -> list[list[int]]:
    """Return clips that begin at random times; a clip has the frames that are on screen at its times.

    Args:
        times_s: when each frame is shown, in order, such as ``film.times_s``.
        seed: chooses the clips.
        num_clips: how many clips.
        num_frames_per_clip: how many frames each clip has.
        seconds_between_frames: the step from each time of a clip to the next; by default the mean duration of a frame.
        sampling_range_start: the first time at which a clip may begin; by default the time of the first frame.
        sampling_range_end: the time before which clips begin. By default no clip exceeds the film.
        end_s: when the last frame ends; by default it lasts as long as the previous frame.
        policy: as for ``clips_at_random_indices``.

    Raises:
        UsageError: an option is out of range, or a clip exceeds the film and ``policy`` is "error".
    """
    timing = _Timing.of(times_s, end_s, seconds_between_frames, num_frames_per_clip)
    low, high = timing.starts(sampling_range_start, sampling_range_end)
    chosen = _generator(seed)
    starts = [low + (high - low) * Fraction(chosen.random()) for _ in range(_positive("num_clips", num_clips))]
    return [timing.clip(start, policy) for start in starts]


def clips_at_regular_times(
    times_s: Sequence[Seconds],
    *,
    seconds_between_clip_starts: Seconds,
    num_frames_per_clip: int = 1,
    seconds_between_frames: Seconds | None = None,
    sampling_range_start: Seconds | None = None,
    sampling_range_end: Seconds | None = None,
    end_s: Seconds | None = None,
    policy: Policy = "repeat_last",
) -> list[list[int]]:
    """Return clips whose beginnings are ``seconds_between_clip_starts`` apart.

    Other options and errors are those of ``clips_at_random_times``.
    """
    timing = _Timing.of(times_s, end_s, seconds_between_frames, num_frames_per_clip)
    low, high = timing.starts(sampling_range_start, sampling_range_end)
    apart = _positive("seconds_between_clip_starts", _exact(seconds_between_clip_starts))
    starts = [low + number * apart for number in range(math.ceil((high - low) / apart))]
    return [timing.clip(start, policy) for start in starts]


def _generator(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - not for security


def _counted(film: int | Sized) -> int:
    frames = film if isinstance(film, int) else len(film)
    if frames < 1:
        _refuse("there are no frames to choose from")
    return frames


def _span(frames: int, step: int) -> int:
    """Return how many frames of the film a clip spans."""
    return _positive("num_indices_between_frames", step) * (_positive("num_frames_per_clip", frames) - 1) + 1


def _index_range(frames: int, span: int, start: int, end: int | None) -> tuple[int, int]:
    """Return the range [first, last) of the frames at which a clip may begin."""
    low = start + frames if start < 0 else start
    high = max(frames - span + 1, 1) if end is None else min(end + frames if end < 0 else end, frames)
    if not 0 <= low < high:
        _refuse(f"no clip can begin at a frame from {low} to {high - 1}: there are {frames} frames")
    return low, high


def _spaced(first: int, last: int, count: int) -> list[int]:
    """Return whole numbers at equal distances, computed from both ends to the middle, as torch.linspace does."""
    step = (last - first) / max(1, count - 1)
    return [
        int(first + step * n if n < count // 2 or count == 1 else last - step * (count - n - 1)) for n in range(count)
    ]


def _clip(start: int, count: int, step: int, frames: int, policy: Policy) -> list[int]:
    inside = list(range(start, frames, step))[:count]
    return _filled(inside, count, policy)


@dataclass(frozen=True, slots=True)
class _Timing:
    """The times of the frames of a film, and of the frames of a clip."""

    times: list[Fraction]
    end: Fraction  #: the end of the last frame
    step: Fraction  #: the time from one frame of a clip to the next
    count: int  #: the number of frames in a clip

    @classmethod
    def of(cls, times_s: Sequence[Seconds], end_s: Seconds | None, step_s: Seconds | None, count: int) -> Self:
        times = [_exact(each) for each in times_s]
        _counted(times)
        last = times[-1] - times[-2] if len(times) > 1 else Fraction(0)
        end = times[-1] + last if end_s is None else _exact(end_s)
        if end <= times[-1]:
            _refuse(f"the last frame begins at {float(times[-1]):g} s and ends at {float(end):g} s: give end_s")
        step = (end - times[0]) / len(times) if step_s is None else _exact(step_s)
        return cls(times, end, _positive("seconds_between_frames", step), _positive("num_frames_per_clip", count))

    def starts(self, low_s: Seconds | None, high_s: Seconds | None) -> tuple[Fraction, Fraction]:
        """Return the range [first, last) of the times at which a clip may begin."""
        low = self.times[0] if low_s is None else _exact(low_s)
        high = self.end - (self.count - 1) * self.step if high_s is None else min(_exact(high_s), self.end)
        if not self.times[0] <= low < high:
            message = f"no clip can begin from {float(low):g} s to {float(high):g} s"
            _refuse(f"{message}: the frames are from {float(self.times[0]):g} s to {float(self.end):g} s")
        return low, high

    def clip(self, start: Fraction, policy: Policy) -> list[int]:
        """Return the frames on screen at a clip's times."""
        moments = [moment for n in range(self.count) if (moment := start + n * self.step) < self.end]
        return [bisect_right(self.times, moment) - 1 for moment in _filled(moments, self.count, policy)]


def _filled(places: list[_PlaceT], count: int, policy: Policy) -> list[_PlaceT]:
    """Return a clip's ``count`` places: ``places``, which are inside the film, then replacements for the others."""
    if policy not in POLICIES:
        _refuse(f"policy is {policy!r}, and must be one of {', '.join(POLICIES)}")
    if len(places) < count and policy == "error":
        _refuse(f"a clip has {len(places)} of {count} frames inside the film, and policy is error")
    if policy == "wrap":
        return (places * (count // len(places) + 1))[:count]
    return places + places[-1:] * (count - len(places))


def _exact(seconds: Seconds) -> Fraction:
    exact = Fraction(seconds)
    return exact.limit_denominator(_MOST_DENOMINATOR) if isinstance(seconds, float) else exact


def _positive(name: str, value: _PlaceT) -> _PlaceT:
    if value <= 0:
        _refuse(f"{name} is {value}, and must be greater than 0")
    return value


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"clips: {message}", "docs/learning.md describes the options.")
