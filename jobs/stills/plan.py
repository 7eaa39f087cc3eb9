"""Plans a stills job: the look of the stills, the ranges to decode, and the work for each range."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ...actors.decode.describe import StreamExtras
from ...actors.encode.pix_fmt import is_rgb
from ...actors.media.location import name_of
from ...actors.media.values import UNSPECIFIED, Colour, VideoFormat
from ...actors.segment.filtering import FULL_RANGE
from ...actors.segment.steps import nearest_turn, shown_size
from ...actors.segment.tone import TRANSFERS, Operator, ToneMap
from ...actors.stills.files import SIDE_MAX
from ...actors.stills.look import StillFormat, StillLook
from ...actors.stills.measuring import MeasureSegment
from ...actors.stills.taking import TakeStills
from ...cluster.placement.model import Demand, EncoderChoice
from ...cluster.probes.report import Direction
from ...errors import Unsupported, redacted
from ..board.events import Run
from ..plan.placing import CPU_ONLY, INTERLACED_IN_SOFTWARE, media_case
from ..plan.steps import stated_region
from ..plan.tone import tone_of
from ..plan.track_ranges import PlannedSegment, TrackRanges
from ..source.index import TrackIndex
from ..source.source import read_source
from .moments import Moment, at_middles, at_multiples
from .shots import ShotList, plan_shots
from .spec import QUALITY, SHEET_WIDTH, StillsSpec

# the most bytes of one range's stills, at 1 byte per pixel for JPEG and WebP, otherwise 3
TAKEN_BYTES_MOST: Final = 256 << 20
SHEET_PIXELS_MOST: Final = 1 << 27  # the most pixels of a sheet, which is assembled in memory with 3 bytes per pixel
_BT709, _BT601 = 1, 6
_KNOWN_MATRICES: Final = frozenset({_BT709, 4, 5, _BT601, 7, 9})  # H.273 matrices from which FFmpeg can convert
_NO_MATRIX: Final = frozenset({0, UNSPECIFIED, 3})  # H.273: identity (RGB), unspecified, reserved
_HD: Final = (1280, 577)  # from this width or height on, players assume BT.709 for an unspecified matrix
_WITHOUT_BASE_LAYER: Final = 5  # the Dolby Vision profile that has a special colour space


@dataclass(frozen=True, slots=True)
class StillsPlan:
    """The decisions about a stills job, for the part [``begin_s``, ``end_s``)."""

    spec: StillsSpec
    index: TrackIndex
    format: VideoFormat  # the format of the decoded pictures, with known matrix and range
    look: StillLook
    ranges: TrackRanges  # the whole part, in segments
    software: str  # why no GPU may decode the track; "" if one may
    warnings: tuple[str, ...]

    @property
    def begin_s(self) -> Fraction:
        """The time of the part's first picture, in seconds after the track's first picture."""
        start = self.ranges.segments[0].start_ticks
        index = self.index
        place = 0 if start is None else int(np.searchsorted(index.times, start))
        return (int(index.times[place]) - index.first_ticks) * index.time_base

    @property
    def end_s(self) -> Fraction:
        """The end of the part, in seconds after the track's first picture."""
        end = self.ranges.segments[-1].end_ticks
        index = self.index
        return (min(index.end_ticks, index.end_ticks if end is None else end) - index.first_ticks) * index.time_base

    def moments(self) -> tuple[Moment, ...]:
        """Return the times of the stills; not for ``scene``. Raises UsageError: there are too many."""
        if self.spec.every_s is not None:
            return at_multiples(self.spec.every_s, self.begin_s, self.end_s)
        return at_middles(self.spec.count or 1, self.begin_s, self.end_s)

    def shots(self, moments: Sequence[Moment]) -> ShotList:
        """Return the ranges to decode for these moments."""
        index, spec, look = self.index, self.spec, self.look
        still_bytes = look.width * look.height * (3 if look.format in (None, StillFormat.PNG) else 1)
        return plan_shots(
            index,
            [moment.ticks(index.first_ticks, index.time_base) for moment in moments],
            start_s=spec.start_s,
            end_s=spec.end_s,
            segment_s=spec.segment_s,
            most_pictures=max(1, TAKEN_BYTES_MOST // still_bytes),
        )

    def demand(self, job: str, frames: Sequence[int]) -> Demand:
        """Return the demand of decoding ranges with these numbers of frames."""
        spec = self.spec
        return Demand(
            job=job,
            segments=tuple(frames),
            decode=media_case(self.index.codec, Direction.DECODE, self.format.pix_fmt),
            width=self.format.width,
            height=self.format.height,
            renditions=(),
            encoder=EncoderChoice.SOFTWARE,
            software_decode=CPU_ONLY if spec.device == "cpu" else self.software,
            needs_gpu=spec.device == "gpu",
            frames_total=sum(frames),
            workers_max=spec.workers,
            priority=spec.priority,
            weight=Fraction(spec.weight),
            finish_within_s=spec.finish_within_s,
            title=name_of(redacted(spec.source)),
        )

    def measuring(self, job: str, run: Run) -> MeasureSegment:
        """Return the work that measures how much each picture of a run differs from the one before, to find scenes."""
        first, last = self.ranges.segments[run.segment], self.ranges.segments[run.until]
        decode = self.ranges.decode(first, run.entry_moves, until=last)
        return MeasureSegment(**self._work(job, run, first, last), decode=decode, format=self.format)

    def taking(self, job: str, shots: ShotList, run: Run) -> TakeStills:
        """Return the work of taking the stills of a range."""
        first, last = shots.shots[run.segment].segment, shots.shots[run.until].segment
        common, moments = self._work(job, run, first, last), shots.moments(run)
        return TakeStills(**common, decode=shots.decode(run), moments=moments, still=self.look)

    def _work(self, job: str, run: Run, first: PlannedSegment, last: PlannedSegment) -> dict[str, Any]:
        return {
            "job": job,
            "label": run.label,
            "apart_from": run.apart_from,
            "constraints": run.constraints,
            "segment": run.segment,
            "start_ticks": first.start_ticks,
            "end_ticks": last.end_ticks,
            "require_device": self.spec.device == "gpu",
        }


def plan_stills(spec: StillsSpec) -> StillsPlan:
    """Read a source, and plan its stills.

    Raises InputError; RequestError: there is no such track, or stills cannot have the requested form; UsageError: the
    part has no visible picture.
    """
    reading = read_source(spec.source, spec.video_track)
    format_, extras = reading.described()
    tone = tone_of(format_, Operator.BT2390)
    format_ = replace(format_, colour=settled_colour(format_))
    look = replace(look_of(spec, format_, extras), tone=tone, by_picture=bool(reading.index.colours))
    return StillsPlan(
        spec=spec,
        index=reading.index,
        format=format_,
        look=look,
        ranges=TrackRanges.cut(reading.index, start_s=spec.start_s, end_s=spec.end_s, segment_s=spec.segment_s),
        software=INTERLACED_IN_SOFTWARE if format_.interlaced else extras.device_unsupported_reason,
        warnings=tuple(look_warnings(format_, tone)),
    )


def settled_colour(picture: VideoFormat) -> Colour:
    """Return a picture's colour with the matrix and range that players assume.

    Raises Unsupported: pictures with this matrix cannot be converted to RGB.
    """
    colour = picture.colour
    if picture.pix_fmt.startswith("yuvj"):
        colour = replace(colour, range=FULL_RANGE)
    if is_rgb(picture.pix_fmt):
        return colour
    if colour.matrix in _NO_MATRIX:
        is_hd = picture.width >= _HD[0] or picture.height >= _HD[1]
        return replace(colour, matrix=_BT709 if is_hd else _BT601)
    if colour.matrix not in _KNOWN_MATRICES:
        message = f"the pictures cannot be converted to RGB: their colour matrix is number {colour.matrix} of H.273"
        raise Unsupported(message, "Transcode the source with another program first.")
    return colour


def look_of(spec: StillsSpec, picture: VideoFormat, extras: StreamExtras) -> StillLook:
    """Return the look of stills. Raises Unsupported: stills are too large, or Dolby Vision has no base layer."""
    if extras.dovi_profile == _WITHOUT_BASE_LAYER:
        message = "Dolby Vision profile 5 has wrong colours without its metadata, which is not applied"
        raise Unsupported(message, "Use a version of the film in HDR10, HLG or SDR.")
    turn = nearest_turn(extras.display_matrix)
    region, size = stated_region(picture, extras), (picture.width, picture.height)
    shown = shown_size(region.width, region.height, picture.sample_aspect_ratio, turn)
    width, height = _size(spec, *shown)
    columns, rows = spec.sheet or (1, 1)
    most = SIDE_MAX[spec.format]
    if max(columns * width, rows * height) > most or columns * width * rows * height > SHEET_PIXELS_MOST:
        size_ = f"{columns * width}x{rows * height}"
        message = f"a picture of {size_} is too large for a {spec.format.value} file"
        raise Unsupported(message, "Give a smaller --width, or fewer stills on a --sheet.")
    return StillLook(
        width=width,
        height=height,
        turn=turn,
        colour=picture.colour,
        format=None if spec.sheet else spec.format,
        quality=spec.quality or QUALITY,
        crop=None if (region.width, region.height) == size else (size, region),
    )


def _size(spec: StillsSpec, width: int, height: int) -> tuple[int, int]:
    if spec.scale is not None:
        wanted, down = spec.scale
        return wanted or max(1, round(Fraction(width * down, height))), down
    across = spec.width or (SHEET_WIDTH if spec.sheet else width)
    return across, max(1, round(Fraction(height * across, width)))


def look_warnings(picture: VideoFormat, tone: ToneMap | None) -> list[str]:
    """Return warnings that stills look different from the HDR source."""
    transfer = TRANSFERS.get(picture.colour.transfer)
    if tone is not None:
        return [f"the stills are {tone.words}"]
    if transfer is None:
        return []
    name = transfer.upper()
    return [f"the source is HDR ({name}) in colours other than BT.2020's and is not tone mapped: stills look flat"]
