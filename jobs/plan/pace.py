"""At what times the output's pictures are shown, the source's own or at a rate, and which are keyframes. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil

import numpy as np

from ...actors.decode.describe import StreamExtras
from ...actors.media.values import VideoFormat
from ...actors.segment.frame_rate import CountedGrid, FrameRate
from ...actors.segment.keyframe_grid import KeyframeGrid
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

    tick_s: Fraction  #: How long a tick lasts
    zero_s: Fraction  #: The source's time of tick 0
    picture_ticks: Fraction  #: A picture's usual duration
    last_ticks: Fraction  #: How long the last picture is shown
    last_shown_ticks: int | None = None  #: When the index says that it is shown; None where the clock counts pictures
    end_ticks: int | None = None  #: When the part that was asked for ends; None where it ends with the source

    def shown_ticks(self, last: int) -> Fraction:
        """Return how long the ``last`` decoded picture is shown; a part keeps its end if later ones do not decode."""
        late = 0 if self.last_shown_ticks is None else last - self.last_shown_ticks
        if late and self.end_ticks is not None:
            return max(Fraction(self.end_ticks - last), self.picture_ticks)
        return max(self.last_ticks - late, self.picture_ticks) if late > 0 else self.last_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePart:
    """The part of the source that is asked for, in segments, and when its pictures are shown."""

    reading: SourceReading  #: with the formats and changes of this part alone
    format: VideoFormat  #: the one format of its pictures
    extras: StreamExtras  #: what they have beside it
    grid: KeyframeGrid | CountedGrid | None  #: where keyframes lie, if that was asked for
    rate: FrameRate | None  #: the rate that was asked for
    ranges: TrackRanges
    clock: OutputClock


def settle_part(whole: SourceReading, spec: TranscodeSpec) -> SourcePart:
    """Return the part that is asked for of what was read of a source.

    Raises:
        InputUnreadable: nothing of it is presented, or nothing decodes.
        RequestError: nothing is presented in that part; or its times cannot be what they are asked to be.
    """
    index, first_ticks = whole.index, whole.first_ticks
    grid = keyframe_grid(index, spec, first_ticks)
    cut = partial(TrackRanges.cut, index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s, grid=grid)
    if whole.picture is None:
        cut()  # that no picture is shown says more than that none decodes
    reading = whole.in_part(spec.start_s, spec.end_s)
    format_, extras = reading.described()
    rate = settle_rate(index, format_, spec, first_ticks)
    ranges = cut(rate=rate)
    clock = output_clock(index, rate, spec.end_s)
    return SourcePart(reading=reading, format=format_, extras=extras, grid=grid, rate=rate, ranges=ranges, clock=clock)


def output_clock(index: TrackIndex, rate: FrameRate | None, end_s: Fraction | None) -> OutputClock:
    """Return the source's own clock, of the part up to ``end_s``; with a rate, one that counts pictures."""
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
    """Return the rate that was asked for, if any; ``shown_from_ticks`` is when the first decodable picture is shown.

    Raises Unsupported: the pictures stay interlaced.
    """
    if spec.fps is None or not len(index.times):
        return None
    if source.interlaced and spec.deinterlace == "off":
        message = "the pictures are interlaced: at another rate their fields would be shown in another order"
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
    """Return where keyframes are asked for, counted from the output's first picture; ``shown_from_ticks`` as above.

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
    """Return when the first picture at or after ``start_s`` is shown; parameters as of ``keyframe_grid``."""
    begin = index.tick_at(start_s or Fraction(0))
    begin = begin if shown_from_ticks is None else max(begin, shown_from_ticks)
    place = min(int(np.searchsorted(index.times, begin)), len(index.times) - 1)
    return int(index.times[place])


def picture_times(index: TrackIndex, spec: TranscodeSpec, shown_from_ticks: int | None) -> PictureTimes:
    """Return what tracks beside the pictures need to know of them; parameters as of ``keyframe_grid``."""
    first = first_picture(index, spec.start_s, shown_from_ticks)
    return PictureTimes(
        rate=index.frame_rate,
        skipped_s=(first - index.first_ticks) * index.time_base,
        end_s=index.end_ticks * index.time_base,
    )


def check_interval(interval_s: Fraction, frame_rate: Fraction) -> None:
    """Raise ``UsageError`` for an interval that is shorter than a picture's nominal duration."""
    if interval_s * frame_rate >= 1:
        return
    least_s = Fraction(ceil(10**6 / frame_rate), 10**6)
    message = f"--keyframe-interval {float(interval_s):g} s is shorter than a picture"
    raise UsageError(message, f"Give {float(least_s):g} s at least; packagers usually want 2 s.")


def source_warnings(reading: SourceReading, spec: TranscodeSpec) -> Iterator[Warning_]:
    """Yield what of the source is missing, and what of its times could not be kept."""
    index = reading.index
    if reading.is_cut_short:
        message = "the source is cut short or damaged: it promises more than can be read"
        yield Warning_(code="source-truncated", message=message, checks=("source.whole",))
    if index.states_too_long:
        message = f"the last picture is shown for its nominal duration, not for the {index.stated_last_words}"
        yield Warning_(code="last-duration", message=message, checks=("times.last",))
    if index.shifts:
        message = (
            f"the source's clock was reset {len(index.shifts)} times; what follows was moved up behind what came before"
        )
        yield Warning_(code="clock-reset", message=message, checks=())
    if index.late_frames:
        message = f"{index.late_frames} pictures come later than can be sorted: some are shown out of order"
        # Such a picture counts as part of what was asked for by when it is shown.
        of_part = () if spec.start_s is None and spec.end_s is None else ("frames.count",)
        yield Warning_(code="time-disorder", message=message, checks=("times", "pictures", *of_part))
