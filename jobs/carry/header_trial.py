"""Finds the picture properties that a container's header can state: a header is written into memory and read back.

Muxers have too many special cases for a table: Matroska states a rotation but no stretch, QuickTime states no cube map,
and WebM refuses some stereo arrangements. The trial takes well under a millisecond.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import atan2, cos, sin
from struct import Struct
from typing import TYPE_CHECKING

import av
import av.error
from av.packet import Packet

from ...actors.decode.describe import StreamExtras, axis_scales, container_side_data, stretches
from ...actors.media.av_stream import add_side_data, side_data
from ...actors.media.values import VideoFormat, content_light_from_bytes, mastering_display_from_bytes
from ..report.report import Warning_
from .containers import Container, SampleShape

if TYPE_CHECKING:
    from av.stream import Stream


_MATRIX = Struct("=9i")
_ONE = 1 << 16
_SKEW = 1 / 256  #: How far the axes of a rotation may be from a right angle
_SHAPE = 1 / 100  #: How far the sample shape in a matrix may be from the stated shape
_TICK = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class Header:
    """The picture properties that the container's header states, and the losses."""

    picture: VideoFormat
    extras: StreamExtras  #: properties of the pictures that are not part of their format
    side: Mapping[str, bytes]  #: the side data that is written, by FFmpeg's kinds
    losses: tuple[Warning_, ...]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of side data: its name, and the check of ``verify`` that covers it."""

    code: str
    name: str
    check: str

    def warning(self, container: Container, *, changed: bool) -> Warning_:
        what = "is stated differently from the source" if changed else "is lost: the container cannot state it"
        code = f"{self.code}-{'changed' if changed else 'dropped'}"
        return Warning_(code=code, message=f"{self.name} {what} (.{container.name})", checks=(self.check,))


_KINDS = {
    "display_matrix": _Kind("rotation", "the rotation", "metadata.rotation"),
    "spherical": _Kind("spherical", "the spherical projection", "metadata.spherical"),
    "stereo_3d": _Kind("stereo3d", "the arrangement of the two views", "metadata.stereo3d"),
}
_HDR_KINDS = {
    "mastering_display_metadata": _Kind("mastering-display", "the mastering display", "hdr.container"),
    "content_light_level": _Kind("light-level", "the content light level", "hdr.container"),
}
"""A bitstream can state this side data too, so the trial covers it only in containers that have a header."""


def settle_orientation(
    source: VideoFormat, output: VideoFormat, extras: StreamExtras, container: Container
) -> tuple[VideoFormat, StreamExtras]:
    """Return the output's format and extras with a display matrix that the output's container can state.

    From a matrix that stretches, FFmpeg also reads the samples' shape. In mp4 and mov the matrix stays, and no shape is
    stated. Elsewhere, or if the source's shape and matrix differ, the shape is stated, and the matrix only rotates and
    flips.
    """
    matrix = extras.display_matrix
    if matrix is None or not stretches(matrix):
        return output, extras
    if container.sample_shape is SampleShape.EXACT and states_shape(matrix, source.sample_aspect_ratio):
        return replace(output, sample_aspect_ratio=output.sample_aspect_ratio / source.sample_aspect_ratio), extras
    return output, replace(extras, display_matrix=_turn_alone(matrix))


def states_shape(matrix: tuple[int, ...], sample_aspect_ratio: Fraction) -> bool:
    """Return whether a display matrix stretches samples into the stated shape."""
    across, down = axis_scales(matrix)
    return stretches(matrix) and abs(float(sample_aspect_ratio) * down / across - 1) < _SHAPE


def settle_header(output: VideoFormat, extras: StreamExtras, container: Container) -> Header:
    """Return the header's side data, and warnings about losses.

    Data that the muxer refuses is left out; data that reads back differently is written anyway, with a warning.
    """
    wanted = container_side_data(output, extras)
    if not wanted or not container.has_header:
        return Header(output, extras, {}, tuple(_losses(_KINDS, wanted, {}, container)))
    kinds = _KINDS | _HDR_KINDS
    # Dolby Vision's configuration needs the encoder's bitstream, so this trial leaves it out.
    taken = {
        kind: data
        for kind, data in wanted.items()
        if kind not in kinds or _read_back({kind: data}, container) is not None
    }
    found = _read_back({kind: data for kind, data in taken.items() if kind in kinds}, container) or {}
    return Header(output, extras, taken, tuple(_losses(kinds, wanted, found, container)))


def _losses(
    kinds: Mapping[str, _Kind], wanted: Mapping[str, bytes], found: Mapping[str, bytes], container: Container
) -> Iterator[Warning_]:
    for kind in (kind for kind in kinds if kind in wanted):
        before, after = _meaning(kind, wanted[kind]), _meaning(kind, found.get(kind))
        if isinstance(before, tuple) and isinstance(after, tuple):
            differs = any(abs(a - b) > 1 for a, b in zip(before, after, strict=True))  # writers round sines differently
        else:
            differs = before != after
        if differs:
            yield kinds[kind].warning(container, changed=after is not None)


def _meaning(kind: str, data: bytes | None) -> object:
    """Return side data as a player understands it, so that different encodings of one value are equal."""
    if data is None:
        return None
    if kind == "mastering_display_metadata":
        return mastering_display_from_bytes(data)
    if kind == "content_light_level":
        return content_light_from_bytes(data)
    if kind == "display_matrix":
        a, b, _, c, d, *_ = _MATRIX.unpack_from(data)
        turn = tuple(round(value * 128 / _ONE) for value in (a, b, c, d))  # players ignore the translation
        return None if turn == (128, 0, 0, 128) else turn
    return data


def _read_back(side: Mapping[str, bytes], container: Container) -> dict[str, bytes] | None:
    """Write a header with ``side`` into memory and return what FFmpeg reads back; None if the muxer refuses."""
    file = io.BytesIO()
    options = {"fflags": "+bitexact", "strict": "unofficial"}
    options |= {"movflags": "+empty_moov"} if container.fragment_flags else {}
    try:
        with av.open(file, "w", format=container.muxer, container_options=options) as output:
            # The codec does not matter: the header is written without parameter sets.
            codec = "mpeg4" if "mpeg4" in container.extra_video_codecs else "vp8"
            stream = output.add_mux_stream(codec, width=160, height=96)
            for kind, data in side.items():
                add_side_data(stream, kind, data)
            packet: Packet[Stream] = Packet(1)
            packet.stream, packet.pts, packet.dts, packet.time_base, packet.is_keyframe = stream, 0, 0, _TICK, True
            output.mux(packet)
        file.seek(0)
        with av.open(file) as written:
            return side_data(written.streams[0])
    except (av.error.FFmpegError, ValueError):
        return None


def _turn_alone(matrix: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a matrix without its stretch, or None for the identity. A matrix that skews is returned unchanged."""
    across, down = axis_scales(matrix)
    a, b, _, c, d, *rest = matrix
    if abs(a * b + c * d) > _SKEW * across * down:
        return matrix
    angle, flip = atan2(b / down, a / across), 1 if a * d > b * c else -1
    turned = tuple(round(_ONE * value) for value in (cos(angle), sin(angle), -flip * sin(angle), flip * cos(angle)))
    return None if turned == (_ONE, 0, 0, _ONE) else (*turned[:2], 0, *turned[2:], *rest)
