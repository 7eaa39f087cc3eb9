"""Decides when pictures are shown (at the source's times or a fixed rate), and which are keyframes. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

import numpy as np

from ...actors.decode.describe import StreamExtras
from ...actors.media.values import VideoFormat
from ...actors.segment.frame_rate import CountedGrid, FrameRate, KeyframeGrid
from ...errors import Unsupported, UsageError
from ..carry.track_plan import PictureTimes
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.index import TrackIndex
from ..source.source import SourceReading
from .track_ranges import TrackRanges


@dataclass(frozen=True, slots=True)
class OutputClock:
    """The clock of encoded pictures."""

    tick_s: Fraction  #: The length of a tick
    zero_s: Fraction  #: The source's time at tick 0
    picture_ticks: Fraction  #: A picture's usual duration
    last_ticks: Fraction  #: The last picture's duration
    last_shown_ticks: int | None = None  #: The last picture's time in the index; None at a fixed frame rate
    end_ticks: int | None = None  #: The end of the requested part; None if that is the source's end

    def shown_ticks(self, last: int) -> Fraction:
        """Return the duration of the picture at tick ``last``, the last picture that decoded.

        If the index names another last picture, this one lasts until ``end_ticks``. If ``end_ticks`` is None, a later
        picture ends together with the index's last picture, and an earlier one lasts ``last_ticks``.
        """
        late = 0 if self.last_shown_ticks is None else last - self.last_shown_ticks
        if late and self.end_ticks is not None:
            return max(Fraction(self.end_ticks - last), self.picture_ticks)
        return max(self.last_ticks - late, self.picture_ticks) if late > 0 else self.last_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """The requested part of the source, cut into segments."""

    reading: SourceReading  #: The source, with the formats and changes of this part only
    format: VideoFormat  #: The common format of the part's pictures
    extras: StreamExtras  #: The side data of the part's pictures
    grid: KeyframeGrid | CountedGrid | None  #: The requested keyframes, if any
    rate: FrameRate | None  #: The requested frame rate, if any
    ranges: TrackRanges  #: The part's segments
    clock: OutputClock


def settle_part(whole: SourceReading, spec: TranscodeSpec) -> SourcePart:
    """Return the requested part of a source.

    Raises:
        InputUnreadable: the track has no visible picture, or none decodes.
        RequestError: the part has no visible picture, or the requested rate or keyframes are impossible.
    """
    index, first_ticks = whole.index, whole.first_ticks
    grid = keyframe_grid(index, spec, first_ticks)
    cut = partial(TrackRanges.cut, index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s, grid=grid)
    if whole.picture is None:
        cut()  # if no picture is visible, this error explains more than the error that no picture decodes
    reading = whole.in_part(spec.start_s, spec.end_s)
    format_, extras = reading.described()
    rate = settle_rate(index, format_, spec, first_ticks)
    ranges = cut(rate=rate)
    clock = output_clock(index, rate, spec.end_s)
    return SourcePart(reading=reading, format=format_, extras=extras, grid=grid, rate=rate, ranges=ranges, clock=clock)


def output_clock(index: TrackIndex, rate: FrameRate | None, end_s: Fraction | None) -> OutputClock:
    """Return the source's own clock for the part up to ``end_s``, or a clock whose tick is a picture of ``rate``."""
    if rate is None:
        end = None if end_s is None else index.tick_at(end_s)
        return OutputClock(
            index.time_base,
            Fraction(0),
            index.nominal_ticks,
            index.shown_ticks(end),
            index.last_before(end),
            end if end is not None and end < index.end_ticks else None,
        )
    return OutputClock(1 / rate.fps, rate.first_ticks * index.time_base, Fraction(1), Fraction(1))


def settle_rate(
    index: TrackIndex, source: VideoFormat, spec: TranscodeSpec, shown_from_ticks: int | None
) -> FrameRate | None:
    """Return the requested rate, if any; ``shown_from_ticks`` is the time of the first picture that decodes.

    Raises Unsupported: the pictures stay interlaced.
    """
    if spec.fps is None or not len(index.times):
        return None
    if source.interlaced and spec.deinterlace == "off":
        message = "the pictures are interlaced: a new frame rate would put their fields out of order"
        raise Unsupported(message, "Add --deinterlace on, or leave out --fps.")
    step_ticks = 1 / (spec.fps * index.time_base)
    end_ticks = index.end_ticks if spec.end_s is None else min(index.end_ticks, index.tick_at(spec.end_s))
    return FrameRate(
        fps=spec.fps,
        first_ticks=first_picture(index, spec.start_s, shown_from_ticks),
        step_ticks=step_ticks,
        lead_ticks=min(step_ticks, index.nominal_ticks) / 2,
        end_ticks=end_ticks,
    )


def keyframe_grid(
    index: TrackIndex, spec: TranscodeSpec, shown_from_ticks: int | None
) -> KeyframeGrid | CountedGrid | None:
    """Return the requested keyframe grid, which counts from the output's first picture.

    ``shown_from_ticks`` is as in ``settle_rate``.

    Raises UsageError: the interval is shorter than a picture.
    """
    interval_s = spec.keyframe_interval_s
    if interval_s is None or not len(index.times):
        return None
    check_interval(interval_s, spec.fps or index.frame_rate)
    if spec.fps is not None:
        return CountedGrid(interval_s * spec.fps)
    return KeyframeGrid(first_picture(index, spec.start_s, shown_from_ticks), interval_s / index.time_base)


def first_picture(index: TrackIndex, start_s: Fraction | None, shown_from_ticks: int | None) -> int:
    """Return the time of the first picture at or after ``start_s``; ``shown_from_ticks`` is as in ``settle_rate``."""
    begin = index.tick_at(start_s or Fraction(0))
    begin = begin if shown_from_ticks is None else max(begin, shown_from_ticks)
    place = min(int(np.searchsorted(index.times, begin)), len(index.times) - 1)
    return int(index.times[place])


def picture_times(index: TrackIndex, spec: TranscodeSpec, shown_from_ticks: int | None) -> PictureTimes:
    """Return the times that sound and subtitle tracks need; ``shown_from_ticks`` is as in ``settle_rate``."""
    first = first_picture(index, spec.start_s, shown_from_ticks)
    return PictureTimes(
        rate=index.frame_rate,
        skipped_s=(first - index.first_ticks) * index.time_base,
        end_s=index.end_ticks * index.time_base,
    )


def check_interval(interval_s: Fraction, frame_rate: Fraction) -> None:
    """Raise UsageError if an interval is shorter than a picture's nominal duration."""
    if interval_s * frame_rate >= 1:
        return
    least_s = Fraction(ceil(10**6 / frame_rate), 10**6)
    message = f"--keyframe-interval {float(interval_s):g} s is shorter than a picture"
    raise UsageError(message, f"Use at least {float(least_s):g} s; packagers usually need 2 s.")


def source_warnings(reading: SourceReading, spec: TranscodeSpec) -> Iterator[Warning_]:
    """Yield warnings about missing parts of the source, and about times that will change or are out of order."""
    index = reading.index
    if reading.is_cut_short:
        message = "the source is cut short or damaged: its headers promise more than can be read"
        yield Warning_(code="source-truncated", message=message, checks=("source.whole",))
    if index.states_too_long:
        message = f"the last picture lasts for its nominal duration, not for {index.stated_last_words}"
        yield Warning_(code="last-duration", message=message, checks=("times.last",))
    if index.shifts:
        message = f"the source's clock was reset {len(index.shifts)} times; later times were shifted to follow on"
        yield Warning_(code="clock-reset", message=message, checks=())
    if index.late_frames:
        message = f"{index.late_frames} pictures come too late to be sorted: some are shown out of order"
        # The time at which a late picture is shown decides whether it is in the part, so the number may differ too.
        of_part = () if spec.start_s is None and spec.end_s is None else ("frames.count",)
        yield Warning_(code="time-disorder", message=message, checks=("times", "pictures", *of_part))
