"""The grid of keyframes that a job asks for."""

from fractions import Fraction
from math import ceil

import numpy as np

from ...actors.segment.frame_rate import CountedGrid
from ...actors.segment.keyframe_grid import KeyframeGrid
from ...errors import UsageError
from ..request.spec import TranscodeSpec
from ..source.index import TrackIndex


def keyframe_grid(
    index: TrackIndex, spec: TranscodeSpec, shown_from_ticks: int | None
) -> KeyframeGrid | CountedGrid | None:
    """Return where keyframes lie, counted from the output's first picture; None where none are asked for.

    ``shown_from_ticks`` is when the source's first picture that decodes is shown; None is when the index says so.

    Raises:
        UsageError: the interval is shorter than a picture.
    """
    interval_s = spec.keyframe_interval_s
    if interval_s is None or not len(index.times):
        return None
    check_interval(interval_s, spec.fps or index.frame_rate)
    if spec.fps is not None:
        return CountedGrid(interval_s * spec.fps)
    return KeyframeGrid(first_picture(index, spec.start_s, shown_from_ticks), interval_s / index.time_base)


def first_picture(index: TrackIndex, start_s: Fraction | None, shown_from_ticks: int | None) -> int:
    """Return when the first picture at or after ``start_s`` is shown; parameters as of ``keyframe_grid``."""
    begin = index.tick_at(start_s or Fraction(0))
    begin = begin if shown_from_ticks is None else max(begin, shown_from_ticks)
    place = min(int(np.searchsorted(index.times, begin)), len(index.times) - 1)
    return int(index.times[place])


def check_interval(interval_s: Fraction, frame_rate: Fraction) -> None:
    """Raise ``UsageError`` for an interval that is shorter than a picture's nominal duration."""
    if interval_s * frame_rate >= 1:
        return
    least_s = Fraction(ceil(10**6 / frame_rate), 10**6)
    message = f"--keyframe-interval {float(interval_s):g} s is shorter than a picture"
    raise UsageError(message, f"Give {float(least_s):g} s at least; packagers usually want 2 s.")
