"""At what times the output's pictures are shown: the source's own, or at a rate that was asked for. Pure."""

from dataclasses import dataclass
from fractions import Fraction

from ...actors.media.values import VideoFormat
from ...actors.segment.frame_rate import FrameRate
from ...errors import Unsupported
from ..report.report import Warning_
from ..request.spec import TranscodeSpec
from ..source.index import TrackIndex
from .keyframes import first_picture


@dataclass(frozen=True, slots=True)
class OutputClock:
    """The clock of encoded pictures: a tick's length, the source's time of tick 0, and a picture's usual duration."""

    tick_s: Fraction
    zero_s: Fraction
    picture_ticks: Fraction


def output_clock(index: TrackIndex, rate: FrameRate | None) -> OutputClock:
    """Return the source's own clock; with a rate, one that counts pictures."""
    if rate is None:
        return OutputClock(index.time_base, Fraction(0), index.nominal_ticks)
    return OutputClock(1 / rate.fps, rate.first_ticks * index.time_base, Fraction(1))


def settle_rate(
    index: TrackIndex, source: VideoFormat, spec: TranscodeSpec, shown_from_ticks: int | None
) -> FrameRate | None:
    """Return the rate that was asked for, from the first picture to the end of the part; None where none was.

    ``shown_from_ticks`` is when the source's first picture that decodes is shown; None is when the index says so.

    Raises:
        Unsupported: the pictures stay interlaced.
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


def rate_choices(rate: FrameRate | None) -> tuple[Warning_, ...]:
    """Return what was asked for; ``verify`` expects it of times and pictures, so no check may fail."""
    if rate is None:
        return ()
    return (Warning_(code="frame-rate", message=f"the pictures are {rate.words}", checks=()),)
