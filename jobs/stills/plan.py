"""What a job for stills is to do: the look of its pictures, the ranges to decode, and the work of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from ...actors.decode.describe import StreamExtras
from ...actors.encode.pix_fmt import is_rgb
from ...actors.media.location import name_of
from ...actors.media.values import UNSPECIFIED, Colour, VideoFormat
from ...actors.segment.filtering import FULL_RANGE
from ...actors.segment.tone import TRANSFERS, Operator, ToneMap
from ...actors.stills.files import SIDE_MAX
from ...actors.stills.look import StillFormat, StillLook, Turn, shown_size
from ...actors.stills.measuring import MeasureSegment
from ...actors.stills.taking import TakeStills
from ...cluster.placement.model import Demand, EncoderChoice
from ...cluster.probes.report import Direction
from ...errors import Unsupported, redacted
from ..board.events import Run
from ..plan.placing import INTERLACED_IN_SOFTWARE, media_case
from ..plan.steps import stated_region
from ..plan.tone import tone_of
from ..plan.track_ranges import TrackRanges
from ..source.index import TrackIndex
from ..source.source import read_source
from .moments import Moment, at_middles, at_multiples
from .shots import ShotList, plan_shots
from .spec import QUALITY, SHEET_WIDTH, StillsSpec

TAKEN_BYTES_MOST: Final = 256 << 20
"""How much the stills of one range may take, at a byte a pixel of JPEG and WebP and three of PNG and sheets."""
SHEET_PIXELS_MOST: Final = 1 << 27
"""A sheet is put together in memory, at three bytes a pixel."""
_BT709, _BT601 = 1, 6
_KNOWN_MATRICES: Final = frozenset({_BT709, 4, 5, _BT601, 7, 9})
"""H.273's matrices that FFmpeg converts from: BT.709, FCC, BT.601 twice, SMPTE 240M, BT.2020 with constant weights."""
_NO_MATRIX: Final = frozenset({0, UNSPECIFIED, 3})
"""What says nothing of YUV: RGB's own, unspecified, reserved."""
_HD: Final = (1280, 577)
"""From this width or height on, players take an unspecified matrix for BT.709."""
_WITHOUT_BASE_LAYER: Final = 5
"""The Dolby Vision profile whose pictures are in a colour space of its own."""


@dataclass(frozen=True, slots=True)
class StillsPlan:
    """Everything that is settled before the first picture is decoded.

    ``format`` is what is decoded, with its matrix and range known. The part is [``begin_s``, ``end_s``), in seconds
    after the track's first picture. ``software`` says why no GPU may decode it, "" where one may.
    """

    spec: StillsSpec
    index: TrackIndex
    format: VideoFormat
    look: StillLook
    ranges: TrackRanges
    software: str
    warnings: tuple[str, ...]

    @property
    def begin_s(self) -> Fraction:
        """When the first picture of the part is shown."""
        start = self.ranges.segments[0].start_ticks
        index = self.index
        place = 0 if start is None else int(np.searchsorted(index.times, start))
        return (int(index.times[place]) - index.first_ticks) * index.time_base

    @property
    def end_s(self) -> Fraction:
        """When the part is over."""
        end = self.ranges.segments[-1].end_ticks
        index = self.index
        return (min(index.end_ticks, index.end_ticks if end is None else end) - index.first_ticks) * index.time_base

    def moments(self) -> tuple[Moment, ...]:
        """Return when stills are taken, unless that is of scenes.

        Raises:
            UsageError: there are too many.
        """
        if self.spec.every_s is not None:
            return at_multiples(self.spec.every_s, self.begin_s, self.end_s)
        return at_middles(self.spec.count or 1, self.begin_s, self.end_s)

    def shots(self, moments: Sequence[Moment]) -> ShotList:
        """Return the ranges that have the pictures of these moments."""
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
        """Return what ranges, by their numbers of frames, ask of machines: decoders alone."""
        spec = self.spec
        return Demand(
            job=job,
            segments=tuple(frames),
            decode=media_case(self.index.codec, Direction.DECODE, self.format.pix_fmt),
            width=self.format.width,
            height=self.format.height,
            renditions=(),
            encoder=EncoderChoice.SOFTWARE,
            software_decode="the job asks for processors alone" if spec.device == "cpu" else self.software,
            needs_gpu=spec.device == "gpu",
            frames_total=sum(frames),
            workers_max=spec.workers,
            priority=spec.priority,
            weight=Fraction(spec.weight),
            finish_within_s=spec.finish_within_s,
            title=name_of(redacted(spec.source)),
        )

    def measuring(self, job: str, run: Run) -> MeasureSegment:
        """Return the work of measuring a segment."""
        segments = self.ranges.segments
        first, last = segments[run.segment], segments[run.until]
        return MeasureSegment(
            job=job,
            label=run.label,
            apart_from=run.apart_from,
            constraints=run.constraints,
            segment=run.segment,
            decode=self.ranges.decode(first, run.entry_moves, until=last),
            start_ticks=first.start_ticks,
            end_ticks=last.end_ticks,
            require_device=self.spec.device == "gpu",
            format=self.format,
        )

    def taking(self, job: str, shots: ShotList, run: Run) -> TakeStills:
        """Return the work of taking the stills of a range."""
        return TakeStills(
            job=job,
            label=run.label,
            apart_from=run.apart_from,
            constraints=run.constraints,
            segment=run.segment,
            decode=shots.decode(run),
            start_ticks=shots.shots[run.segment].segment.start_ticks,
            end_ticks=shots.shots[run.until].segment.end_ticks,
            require_device=self.spec.device == "gpu",
            moments=shots.moments(run),
            still=self.look,
        )


def plan_stills(spec: StillsSpec) -> StillsPlan:
    """Read the source's index, and settle what its stills look like.

    Raises:
        InputError: the source cannot be read, or nothing of it decodes.
        RequestError: it has no such video track; or its stills cannot be had in that form.
        UsageError: nothing is presented in the asked-for part.
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
    """Return a picture's colour with a matrix and a range, as players choose them where nothing states one.

    Raises:
        Unsupported: FFmpeg does not convert from its matrix to RGB.
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
    """Return what the stills of such pictures look like.

    Raises:
        Unsupported: no file of that kind is that large; or only Dolby Vision's metadata would give the right colours.
    """
    if extras.dovi_profile == _WITHOUT_BASE_LAYER:
        message = "the colours of Dolby Vision profile 5 come out wrong without its metadata, which is not applied"
        raise Unsupported(message, "Use a version of the film in HDR10, HLG or SDR.")
    turn = Turn.of(extras.display_matrix)
    region, size = stated_region(picture, extras), (picture.width, picture.height)
    shown = shown_size(region.width, region.height, picture.sample_aspect_ratio, turn)
    width, height = _size(spec, *shown)
    columns, rows = spec.sheet or (1, 1)
    most = SIDE_MAX[spec.format]
    if max(columns * width, rows * height) > most or columns * width * rows * height > SHEET_PIXELS_MOST:
        message = (
            f"a picture of {columns * width}x{rows * height} is larger than a {spec.format.value} file may be here"
        )
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
    """Return the size of a still whose picture is shown with that width and height."""
    if spec.scale is not None:
        wanted, down = spec.scale
        return wanted or max(1, round(Fraction(width * down, height))), down
    across = spec.width or (SHEET_WIDTH if spec.sheet else width)
    return across, max(1, round(Fraction(height * across, width)))


def look_warnings(picture: VideoFormat, tone: ToneMap | None) -> list[str]:
    """Return in what stills of such pictures look other than an HDR screen shows them."""
    transfer = TRANSFERS.get(picture.colour.transfer)
    if tone is not None:
        return [f"the stills are {tone.words}"]
    if transfer is None:
        return []
    name = transfer.upper()
    return [f"the source is HDR ({name}) of other colours than BT.2020's, and is not mapped: stills look flat and dark"]
