"""Which frames a clip has: clips of a film at random or at regular places, as lists of frame numbers.

Pure functions of a film's length or times. Names, options and results are those of torchcodec's samplers.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Sequence, Sized
from fractions import Fraction
from typing import Any, Final, Literal, NoReturn, TypeVar

from ...errors import UsageError

Policy = Literal["repeat_last", "wrap", "error"]
Seconds = Fraction | float
POLICIES: Final = ("repeat_last", "wrap", "error")
_MOST_DENOMINATOR: Final = 1_000_000  #: Of a time in floating point: 1 / 30 and 1001 / 30000 become exact
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
    """Return clips that begin at random frames; the same clips for the same seed.

    Args:
        film: the number of frames, or something whose length it is.
        seed: chooses the clips.
        num_clips: how many clips.
        num_frames_per_clip: how many frames each has.
        num_indices_between_frames: the step from each frame of a clip to its next one.
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
    """Return clips that begin at equal distances, from the first to the last frame at which one may begin.

    Options and errors are those of ``clips_at_random_indices``. More clips than such frames begin at some twice.
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
        num_frames_per_clip: how many frames each has.
        seconds_between_frames: from each time of a clip to its next one; by default a frame's mean duration.
        sampling_range_start: the first time at which a clip may begin; by default that of the first frame.
        sampling_range_end: the time before which clips begin. By default no clip exceeds the film.
        end_s: when the last frame ends; by default it lasts as long as the frame before it.
        policy: as for ``clips_at_random_indices``.

    Raises:
        UsageError: an option is out of range, or a clip exceeds the film and ``policy`` is "error".
    """
    times, end = _timeline(times_s, end_s)
    step = _time_step(times, end, seconds_between_frames)
    low, high = _time_range(times[0], end, step, num_frames_per_clip, sampling_range_start, sampling_range_end)
    chosen = _generator(seed)
    starts = [low + (high - low) * Fraction(chosen.random()) for _ in range(_positive("num_clips", num_clips))]
    return [_timed_clip(start, num_frames_per_clip, step, times, end, policy) for start in starts]


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
    """Return clips that begin every ``seconds_between_clip_starts``.

    Other options and errors are those of ``clips_at_random_times``.
    """
    times, end = _timeline(times_s, end_s)
    step = _time_step(times, end, seconds_between_frames)
    low, high = _time_range(times[0], end, step, num_frames_per_clip, sampling_range_start, sampling_range_end)
    apart = _positive("seconds_between_clip_starts", _exact(seconds_between_clip_starts))
    starts = [low + number * apart for number in range(math.ceil((high - low) / apart))]
    return [_timed_clip(start, num_frames_per_clip, step, times, end, policy) for start in starts]


def _generator(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - chooses clips, guards nothing


def _counted(film: int | Sized) -> int:
    frames = film if isinstance(film, int) else len(film)
    if frames < 1:
        _refuse("there are no frames to choose from")
    return frames


def _span(frames: int, step: int) -> int:
    """Return how many frames of the film a clip covers, from its first to its last."""
    return _positive("num_indices_between_frames", step) * (_positive("num_frames_per_clip", frames) - 1) + 1


def _index_range(frames: int, span: int, start: int, end: int | None) -> tuple[int, int]:
    """Return [first, last) of the frames at which a clip may begin."""
    low = start + frames if start < 0 else start
    if end is None:
        high = max(frames - span + 1, 1)
    else:
        high = min(end + frames if end < 0 else end, frames)
    if not 0 <= low < high:
        _refuse(f"no clip can begin at a frame from {low} to {high - 1} of {frames} frames")
    return low, high


def _spaced(first: int, last: int, count: int) -> list[int]:
    """Return whole numbers at equal distances; rounded as torch.linspace rounds them, from both ends to the middle."""
    step = (last - first) / max(1, count - 1)
    return [int(first + step * n if n < count // 2 or count == 1 else last - step * (count - n - 1)) for n in range(count)]


def _clip(start: int, count: int, step: int, frames: int, policy: Policy) -> list[int]:
    inside = list(range(start, frames, step))[:count]
    return _filled(inside, count, policy)


def _timeline(times_s: Sequence[Seconds], end_s: Seconds | None) -> tuple[list[Fraction], Fraction]:
    """Return the times and the end of a film's frames."""
    times = [_exact(each) for each in times_s]
    if not times:
        _refuse("there are no frames to choose from")
    last = times[-1] - times[-2] if len(times) > 1 else Fraction(0)
    end = times[-1] + last if end_s is None else _exact(end_s)
    if end <= times[-1]:
        _refuse(f"the last frame ends at {float(end):g} s, and begins at {float(times[-1]):g} s")
    return times, end


def _time_step(times: Sequence[Fraction], end: Fraction, given: Seconds | None) -> Fraction:
    if given is None:
        return (end - times[0]) / len(times)
    return _positive("seconds_between_frames", _exact(given))


def _time_range(
    first: Fraction, end: Fraction, step: Fraction, count: int, low_s: Seconds | None, high_s: Seconds | None
) -> tuple[Fraction, Fraction]:
    """Return [first, last) of the times at which a clip may begin."""
    low = first if low_s is None else _exact(low_s)
    high = end - (_positive("num_frames_per_clip", count) - 1) * step if high_s is None else min(_exact(high_s), end)
    if not first <= low < high:
        _refuse(f"no clip can begin from {float(low):g} s to {float(high):g} s of frames that end at {float(end):g} s")
    return low, high


def _timed_clip(
    start: Fraction, count: int, step: Fraction, times: Sequence[Fraction], end: Fraction, policy: Policy
) -> list[int]:
    moments = [moment for n in range(count) if (moment := start + n * step) < end]
    return [bisect_right(times, moment) - 1 for moment in _filled(moments, count, policy)]


def _filled(places: list[_PlaceT], count: int, policy: Policy) -> list[_PlaceT]:
    """Return ``count`` places: those of a clip that are inside the film, and others for the rest."""
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


def _positive(name: str, value: Any) -> Any:  # noqa: ANN401 - a number, as it was given
    if value <= 0:
        _refuse(f"{name} is {value}, and must be greater than 0")
    return value


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"clips: {message}", "docs/learning.md describes the options.")
