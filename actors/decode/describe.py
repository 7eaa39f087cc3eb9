"""The format of a video stream, from its container, its codec parameters and its first picture.

If both the container and the stream state a value, the container's value is used, because players read it first.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import hypot
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, cast

from ...errors import InputUnreadable
from ..bitstream.picture_messages import MESSAGE_KINDS, Messages
from ..bitstream.riders import ALPHA, CAPTIONS
from ..media.av_abi import frame_structure
from ..media.av_stream import FieldOrder, side_data, video_parameters
from ..media.seeking import AccessPoint
from ..media.values import (
    UNSPECIFIED,
    Colour,
    HdrStatic,
    StatedPicture,
    VideoFormat,
    content_light_from_bytes,
    content_light_to_bytes,
    mastering_display_from_bytes,
    mastering_display_to_bytes,
)
from .nvdec_support import track_facts, unsupported_reason

if TYPE_CHECKING:
    from av import VideoFrame
    from av.sidedata.sidedata import SideData
    from av.video.codeccontext import VideoCodecContext
    from av.video.stream import VideoStream


_MATRIX = struct.Struct("=9i")
_CROP = struct.Struct("<4I")
_STRETCH = 1 / 100
_IDENTITY = (1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
_VIEW_ID = "29"  # AV_FRAME_DATA_VIEW_ID
_FALLBACK_FPS = Fraction(25)
_SLOWEST_FPS, _FASTEST_FPS = Fraction(1, 60), Fraction(300)

_SAYS_FIELDS = frozenset({"h264", "hevc", "vvc", "mpeg1video", "mpeg2video", "mpeg4", "vc1", "wmv3"})
"""Codecs in which each picture states whether it is field-coded; FFmpeg reads the field order from the pictures."""
_TOP_FIELD_FIRST = 1 << 4  # AV_FRAME_FLAG_TOP_FIELD_FIRST
_FIELD_CODED = frozenset(FieldOrder) - {FieldOrder.UNKNOWN, FieldOrder.PROGRESSIVE}


class Crop(NamedTuple):
    """How many samples players must leave out at each edge of a picture."""

    top: int
    bottom: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Rider:
    """Side data of one kind on a track's pictures. Times count from the first picture, and are None if unknown."""

    kind: str
    """FFmpeg's name of the pictures' side data, or a name defined in ``actors/bitstream/riders.py``."""
    first_s: Fraction | None
    """When the first picture with such data is shown."""
    last_s: Fraction | None
    """When the last picture with such data is shown."""

    def is_within(self, start_s: Fraction | None, end_s: Fraction | None) -> bool:
        """Return whether a picture shown in [start, end) may have this data; None means the track's start or end."""
        ended = start_s is not None and self.last_s is not None and self.last_s < start_s
        return not ended and (end_s is None or self.first_s is None or self.first_s < end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamExtras:
    """A track's properties that encoders do not carry over; ``bytes`` fields have the names of FFmpeg's side data."""

    display_matrix: tuple[int, ...] | None = None
    """The matrix of ISO/IEC 14496-12: a b u c d v x y w in 16.16 and 2.30 fixed point; None for the identity."""
    dovi_configuration: bytes | None = None
    """Dolby Vision's configuration record."""
    spherical: bytes | None = None
    """How a sphere is projected onto the pictures."""
    stereo3d: bytes | None = None
    """How the two views of a stereoscopic picture are arranged."""
    crop: Crop | None = None
    """The cropping that the container states (Matroska's PixelCrop, ``clap`` of mp4 and mov), None for no cropping."""
    field_order: FieldOrder = FieldOrder.UNKNOWN
    """Which field is first, as the container or the codec's headers state it."""
    unflagged_field: Literal["top", "bottom"] | None = None
    """The first field according to ``field_order``, for a track whose pictures have no field flags."""
    frame_kinds: frozenset[str] = frozenset()
    """FFmpeg's names of the side data on the first picture, or on all pictures once ``riders`` are known."""
    riders: tuple[Rider, ...] = ()
    """The side data on the packets of the whole track; empty if only the first picture was read."""
    held_messages: tuple[tuple[int, Messages], ...] = ()
    """The keyframes' packets without HDR10+ messages of their own, and the earlier messages that still hold there."""
    device_unsupported_reason: str = ""
    """Why no GPU may decode the track; "" if a GPU may."""

    def with_riders(self, riders: tuple[Rider, ...], held_messages: tuple[tuple[int, Messages], ...] = ()) -> Self:
        """Return a copy with ``riders`` as the side data of the track's pictures."""
        kinds = self.frame_kinds | {rider.kind for rider in riders}
        return replace(self, frame_kinds=kinds, riders=riders, held_messages=held_messages)

    def messages_before(self, entry: AccessPoint | None) -> Messages | None:
        """Return the messages that hold before decoding starts at ``entry``; None if no picture has any to read."""
        held = () if entry is None else dict(self.held_messages).get(entry.packet, ())
        return held if MESSAGE_KINDS & self.frame_kinds else None

    def during(self, start_s: Fraction | None, end_s: Fraction | None) -> Self:
        """Return a copy for the pictures shown in [start, end); the times count from the first picture.

        None means the start or end of the track.
        """
        outside = {rider.kind for rider in self.riders if not rider.is_within(start_s, end_s)}
        return replace(self, frame_kinds=self.frame_kinds - outside)

    @property
    def captions(self) -> bool:
        """Whether a picture carries closed captions (CTA-708 / EIA-608 in A53)."""
        return CAPTIONS in self.frame_kinds

    @property
    def dovi_profile(self) -> int | None:
        """The Dolby Vision profile in the configuration record; None if there is no record."""
        # AVDOVIDecoderConfigurationRecord, a byte each: major version, minor version, profile, level, five flags.
        return next(iter((self.dovi_configuration or b"")[2:3]), None)


def frame_side_data(frame: "VideoFrame") -> dict[str, bytes]:
    """Return the picture's side data by FFmpeg's names.

    PyAV refuses the whole list if one kind, such as the views of MV-HEVC, has no name in PyAV. In that case only this
    kind is returned, without data, as ``VIEW_ID`` or as ``KIND_`` and its number.
    """
    try:
        # PyAV declares the side data a mapping, but iteration yields the values.
        entries = list(cast("Iterable[SideData]", frame.side_data))
    except ValueError as error:
        number = str(error).partition(" ")[0]
        return {"VIEW_ID" if number == _VIEW_ID else f"KIND_{number}": b""}
    return {entry.type.name: bytes(entry) for entry in entries}


def describe_video(stream: "VideoStream", first_frame: "VideoFrame | None" = None) -> VideoFormat:
    """Return a stream's format, completed by a first picture; ``InputUnreadable`` if it has no size or pixel format."""
    stated = video_parameters(stream)
    width, height, pix_fmt = stated.width, stated.height, stated.pix_fmt
    if first_frame is not None:
        width, height, pix_fmt = first_frame.width, first_frame.height, first_frame.format.name
    if width <= 0 or height <= 0 or pix_fmt is None:
        message = f"video track {stream.index} does not state the size or the pixel format of its pictures"
        raise InputUnreadable(message, "Check that the file is complete and not encrypted.")
    # The sample aspect ratio comes from the bitstream, unless the container's matrix stretches the samples.
    matrix = _display_matrix(side_data(stream).get("display_matrix"))
    is_stretched = matrix is not None and stretches(matrix)
    return VideoFormat(
        width=width,
        height=height,
        pix_fmt=pix_fmt,
        frame_rate=nominal_frame_rate(stream.average_rate, stream.guessed_rate, stream.base_rate),
        sample_aspect_ratio=(stream.sample_aspect_ratio if is_stretched else stated.sample_aspect_ratio) or Fraction(1),
        colour=_completed(stated.colour, first_frame),
        hdr=_static_hdr(side_data(stream), frame_side_data(first_frame) if first_frame is not None else {}),
        interlaced=stated.field_order in _FIELD_CODED or (first_frame is not None and first_frame.interlaced_frame),
        bottom_first=_is_bottom_first(first_frame, stated.field_order),
    )


def _is_bottom_first(frame: "VideoFrame | None", stated: FieldOrder) -> bool:
    """Return whether a picture shows its lower field first; the stated order holds if the picture says nothing."""
    if frame is None or not frame.interlaced_frame:
        return stated.shown_first == "bottom"
    return not frame_structure(frame).flags & _TOP_FIELD_FIRST


def stated_picture(context: "VideoCodecContext", frame: "VideoFrame") -> StatedPicture:
    """Return a picture's properties as its decoder reads them. The decoder must not know the container's values."""
    return StatedPicture(
        width=frame.width,
        height=frame.height,
        pix_fmt=frame.format.name,
        sample_aspect_ratio=context.sample_aspect_ratio or None,
        colour=_completed(Colour(), frame),
        hdr=_static_hdr({}, frame_side_data(frame)),
        interlaced=frame.interlaced_frame,
        frame_rate=context.framerate or None,
    )


def stretches(matrix: tuple[int, ...]) -> bool:
    """Return whether a display matrix scales the axes differently enough for FFmpeg to derive a pixel's shape."""
    across, down = axis_scales(matrix)
    return min(across, down) > 1 and abs(across / down - 1) > _STRETCH


def axis_scales(matrix: tuple[int, ...]) -> tuple[float, float]:
    """Return the horizontal and vertical scale of a display matrix, in units of 1/65536."""
    a, b, _, c, d, *_ = matrix
    return hypot(a, c), hypot(b, d)


def nominal_frame_rate(*candidates: Fraction | None) -> Fraction:
    """Return the first plausible frame rate (the most trusted is first), otherwise the lowest positive rate, or 25."""
    positive = [rate for rate in candidates if rate is not None and rate > 0]
    plausible = (rate for rate in positive if _SLOWEST_FPS <= rate <= _FASTEST_FPS)
    return next(plausible, min(positive, default=_FALLBACK_FPS))


def _completed(colour: Colour, frame: "VideoFrame | None") -> Colour:
    if frame is None:
        return colour
    return Colour(
        range=colour.range or int(frame.color_range),
        primaries=_known(colour.primaries, int(frame.color_primaries)),
        transfer=_known(colour.transfer, int(frame.color_trc)),
        matrix=_known(colour.matrix, int(frame.colorspace)),
        chroma_location=colour.chroma_location,
    )


def _known(first: int, second: int) -> int:
    return first if first != UNSPECIFIED else second


def _static_hdr(of_stream: Mapping[str, bytes], of_frame: Mapping[str, bytes]) -> HdrStatic:
    mastering = of_stream.get("mastering_display_metadata") or of_frame.get("MASTERING_DISPLAY_METADATA")
    light = of_stream.get("content_light_level") or of_frame.get("CONTENT_LIGHT_LEVEL")
    return HdrStatic(
        mastering=mastering_display_from_bytes(mastering) if mastering else None,
        light=content_light_from_bytes(light) if light else None,
    )


def describe_extras(stream: "VideoStream", first_frame: "VideoFrame | None" = None) -> StreamExtras:
    """Return the properties that encoders do not carry over, from the stream and, if given, its first picture."""
    of_stream = side_data(stream)
    of_frame = frame_side_data(first_frame) if first_frame is not None else {}
    has_alpha = first_frame is not None and any(component.is_alpha for component in first_frame.format.components)
    order = video_parameters(stream).field_order
    is_flagged = first_frame is None or first_frame.interlaced_frame
    says_fields = is_flagged or stream.codec_context.codec.canonical_name in _SAYS_FIELDS
    return StreamExtras(
        display_matrix=_display_matrix(of_stream.get("display_matrix") or of_frame.get("DISPLAYMATRIX")),
        dovi_configuration=of_stream.get("dovi_conf"),
        spherical=of_stream.get("spherical") or of_frame.get("SPHERICAL"),
        stereo3d=of_stream.get("stereo_3d") or of_frame.get("STEREO3D"),
        crop=_crop(of_stream.get("frame_cropping")),
        field_order=order,
        unflagged_field=None if says_fields else order.shown_first,
        frame_kinds=frozenset({*of_frame, *([ALPHA] if has_alpha else [])}),
        device_unsupported_reason=unsupported_reason(track_facts(stream)),
    )


def _crop(data: bytes | None) -> Crop | None:
    if data is None or len(data) < _CROP.size:
        return None
    crop = Crop(*_CROP.unpack_from(data))
    return crop if any(crop) else None


def _display_matrix(data: bytes | None) -> tuple[int, ...] | None:
    if data is None or len(data) < _MATRIX.size:
        return None
    matrix = _MATRIX.unpack_from(data)
    return None if matrix == _IDENTITY else matrix


def container_side_data(video: VideoFormat, extras: StreamExtras) -> dict[str, bytes]:
    """Return the side data that a container can state, under FFmpeg's names and in FFmpeg's layout."""
    found: dict[str, bytes | None] = {
        "mastering_display_metadata": mastering_display_to_bytes(video.hdr.mastering) if video.hdr.mastering else None,
        "content_light_level": content_light_to_bytes(video.hdr.light) if video.hdr.light else None,
        "display_matrix": _MATRIX.pack(*extras.display_matrix) if extras.display_matrix else None,
        "dovi_conf": extras.dovi_configuration,
        "spherical": extras.spherical,
        "stereo_3d": extras.stereo3d,
    }
    return {kind: data for kind, data in found.items() if data is not None}
