"""Describes one video track: its pictures, its timeline and its default cuts."""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction

from ...actors.decode.describe import StreamExtras, describe_extras, describe_video
from ...actors.media.av_stream import video_parameters
from ...actors.media.opening import open_source
from ...actors.media.values import HdrStatic, VideoFormat
from ...errors import InputUnreadable
from ..plan.cuts import choose_cuts
from ..source.indexer import video_stream
from ..source.source import read_source
from .timeline import describe_timeline
from .values import ColourFacts, CropFacts, CutFacts, HdrFacts, PictureFacts, RiderFacts, VideoFacts

_PROJECTIONS = ("equirectangular", "cubemap", "equirectangular tile", "half equirectangular", "rectilinear", "fisheye")
_SPHERICAL_NUMBER_BYTES = 4
_ANY_RATE = Fraction(25)


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """A property of the pictures that changes ``time_s`` seconds after the first picture."""

    time_s: Fraction
    what: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class VideoFindings:
    """The description of one video track, and the reasons if it is incomplete."""

    facts: VideoFacts
    unreadable: str | None = None  # why the track's packets could not be indexed
    undecodable: str | None = None  # why no picture of the track could be decoded
    changes: tuple[ChangeFacts, ...] = ()  # changes of the pictures in mid-stream


def probe_video(source: str, track: int) -> VideoFindings:
    """Probe the video track with the number ``track``, counted from 0. Facts may be missing.

    Raises InputError if the file does not open.
    """
    try:
        reading = read_source(source, track)
    except InputUnreadable as error:
        return VideoFindings(VideoFacts(picture=_stated(source, track)), error.message)
    index = reading.index
    if not len(index.times):
        return VideoFindings(VideoFacts(picture=_stated(source, track)), "an edit list discards every packet")
    picture = _stated(source, track) if reading.picture is None else _picture(*reading.picture, decoded=True)
    cuts = tuple(
        CutFacts(time_s=(cut.ticks - index.first_ticks) * index.time_base, reason=cut.reason.value)
        for cut in choose_cuts(index)
    )
    facts = VideoFacts(picture=picture, timeline=describe_timeline(index), cuts=cuts, segments=len(cuts) + 1)
    changes = tuple(
        ChangeFacts((each.ticks - index.first_ticks) * index.time_base, each.what, each.before, each.after)
        for each in reading.life.changes
    )
    return VideoFindings(facts, undecodable=reading.undecodable or None, changes=changes)


def _stated(source: str, track: int) -> PictureFacts | None:
    """Return the properties of the pictures that the container states; None if not even the size is stated."""
    with open_source(source) as container:
        try:
            stream = video_stream(container, source, track)
        except InputUnreadable:
            return None
        extras = describe_extras(stream)
        try:
            video = describe_video(stream)
        except InputUnreadable:  # an unknown codec, or no pixel format
            stated = video_parameters(stream)
            if stated.width <= 0 or stated.height <= 0:
                return None
            video = VideoFormat(stated.width, stated.height, "", stated.frame_rate or _ANY_RATE, colour=stated.colour)
    return _picture(video, extras, decoded=False)


def _picture(video: VideoFormat, extras: StreamExtras, *, decoded: bool) -> PictureFacts:
    rotation, mirrored = _rotation(extras.display_matrix)
    return PictureFacts(
        width=video.width,
        height=video.height,
        pix_fmt=video.pix_fmt or None,
        sample_aspect_ratio=video.sample_aspect_ratio,
        interlaced=video.interlaced,
        field_order=extras.field_order.name.lower().replace("_", "-"),
        colour=ColourFacts.model_validate(video.colour, from_attributes=True),
        hdr=_hdr(video.hdr),
        rotation_degrees=rotation,
        mirrored=mirrored,
        display_matrix=extras.display_matrix,
        crop=None if extras.crop is None else CropFacts.model_validate(extras.crop, from_attributes=True),
        dolby_vision_profile=extras.dovi_profile,
        spherical=None if extras.spherical is None else _projection(extras.spherical),
        stereo3d=extras.stereo3d is not None,
        captions=extras.captions,
        side_data=tuple(sorted(extras.frame_kinds)),
        riders=tuple(RiderFacts.model_validate(rider, from_attributes=True) for rider in extras.riders),
        decoded=decoded,
    )


def _hdr(hdr: HdrStatic) -> HdrFacts | None:
    if hdr.mastering is None and hdr.light is None:
        return None
    parts = [asdict(part) for part in (hdr.mastering, hdr.light) if part is not None]
    return HdrFacts.model_validate({name: value for part in parts for name, value in part.items()})


def _rotation(matrix: tuple[int, ...] | None) -> tuple[int, bool]:
    """Return by how many degrees a display matrix turns counter-clockwise, and whether it mirrors."""
    if matrix is None:
        return 0, False
    a, b, _, c, d, *_ = matrix
    mirrored = a * d - b * c < 0
    return round(-math.degrees(math.atan2(b, a))) % 360, mirrored


def _projection(spherical: bytes) -> str:
    number = int.from_bytes(spherical[:_SPHERICAL_NUMBER_BYTES], "little")
    return _PROJECTIONS[number] if number < len(_PROJECTIONS) else f"projection {number}"
