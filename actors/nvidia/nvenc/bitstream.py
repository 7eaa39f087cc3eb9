"""Changes to NVENC's bitstream: parameter sets are moved out of band, and colour and HDR values are added.

PyNvVideoCodec has no settings for colours: FFmpeg's metadata filters write them, and HDR values are in messages.
Sources: ITU-T H.264 (08/2021) 7.3.2.3, annex D; ITU-T H.265 (08/2021) 7.3.2.4, annex D; AV1 Bitstream and Decoding
Process Specification 5.3, 5.8, 6.7.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import av.error
from av.bitstream import BitStreamFilterContext
from av.packet import Packet

from ....errors import EngineFailed
from ...bitstream.access_points import annex_b, nal_kind, nal_units
from ...bitstream.packet_headers import leb128
from ...bitstream.sei import hdr_messages, message_unit
from ...encode.settings import Codec
from ...media.values import UNSPECIFIED, Colour, HdrStatic, VideoFormat

if TYPE_CHECKING:
    from av.stream import Stream

_PARAMETER_SETS: Final = {Codec.H264: frozenset({7, 8}), Codec.HEVC: frozenset({32, 33, 34})}
_LAST_SLICE: Final = {Codec.H264: 5, Codec.HEVC: 31}
_SEQUENCE_HEADER, _FRAME_KINDS = 1, frozenset({3, 6})
_LIMITED, _FULL = 1, 2
_RETRY: Final = "Try again on another device."
_AV1_CHROMA_POSITION: Final = {1: 1, 3: 2}
"""AV1's chroma positions by FFmpeg's numbers: left is "vertical", top left is "colocated". AV1 has no other positions.
"""


class BitstreamWriter:
    """Rewrites one session's packets with the colour, sample aspect ratio and HDR values of ``picture``.

    Raises ``EngineFailed`` if ``sequence_parameters`` has no parameter sets.
    """

    def __init__(self, codec: Codec, picture: VideoFormat, sequence_parameters: bytes) -> None:
        self._codec = codec
        self._native = tuple(_parameter_sets(codec, sequence_parameters))
        if not self._native:
            raise EngineFailed(f"NVENC gave no {codec} parameter sets", _RETRY)
        self._hdr = hdr_units(codec, picture.hdr)
        self._changed = False
        self._filter = metadata_filter(codec, picture)
        self.extradata = _filtered(codec, self._filter, _joined(codec, self._native))
        self._described = {self._native[0]: self.extradata}

    def parameters_may_change(self) -> None:
        """Accept other parameter sets from here on: the encoder was reconfigured."""
        self._changed = True

    def packet(self, data: bytes, *, is_keyframe: bool) -> bytes:
        """Return a packet's payload; raises ``EngineFailed`` if the picture is missing or parameter sets changed."""
        hdr = self._hdr if is_keyframe else ()
        payload = self._av1(data, hdr) if self._codec is Codec.AV1 else self._h26x(data, hdr)
        if not payload:
            raise EngineFailed("NVENC gave a packet without a picture", _RETRY)
        return payload

    def _h26x(self, data: bytes, hdr: tuple[bytes, ...]) -> bytes:
        units: list[bytes] = []
        new_sets = self._new_parameter_sets(data)
        has_slice = False
        for unit in nal_units(data):
            kind = nal_kind(unit, hevc=self._codec is Codec.HEVC)
            if kind in _PARAMETER_SETS[self._codec]:
                units += new_sets
                new_sets = []
                continue
            if kind <= _LAST_SLICE[self._codec] and not has_slice:
                has_slice = True
                units += hdr
            units.append(unit)
        return annex_b(units) if has_slice else b""

    def _av1(self, data: bytes, hdr: tuple[bytes, ...]) -> bytes:
        parts: list[bytes] = []
        has_frame = False
        for kind, unit in obus(data):
            if kind == _SEQUENCE_HEADER:
                # An encoder may write a header that differs from the announced header (SVT-AV1 does); the written
                # header counts.
                if unit not in self._described:
                    self._described[unit] = _filtered(self._codec, self._filter, unit)
                parts += (self._described[unit], *hdr)
                continue
            has_frame = has_frame or kind in _FRAME_KINDS
            parts.append(unit)
        return b"".join(parts) if has_frame else b""

    def _new_parameter_sets(self, data: bytes) -> list[bytes]:
        found = tuple(_parameter_sets(self._codec, data))
        if set(found) <= set(self._native):
            return []
        if not self._changed:
            message = f"NVENC wrote {self._codec} parameter sets that differ from those it announced"
            raise EngineFailed(message, _RETRY)
        return list(nal_units(_filtered(self._codec, self._filter, _joined(self._codec, found))))


def metadata_filter(codec: Codec, picture: VideoFormat) -> str:
    """Return FFmpeg's bitstream filter that writes a picture's colour and aspect ratio; "" if both are unstated."""
    options = _av1_options(picture.colour) if codec is Codec.AV1 else _h26x_options(picture)
    joined = ":".join(f"{name}={value}" for name, value in options.items())
    return f"{codec}_metadata={joined}" if joined else ""


def _h26x_options(picture: VideoFormat) -> dict[str, object]:
    colour = picture.colour
    options = _code_points(colour, "colour_primaries")
    if colour.range in (_LIMITED, _FULL):
        options["video_full_range_flag"] = int(colour.range == _FULL)
    if colour.chroma_location:
        options["chroma_sample_loc_type"] = colour.chroma_location - 1
    if picture.sample_aspect_ratio != 1:
        aspect = picture.sample_aspect_ratio
        options["sample_aspect_ratio"] = f"{aspect.numerator}/{aspect.denominator}"
    return options


def _code_points(colour: Colour, primaries: str) -> dict[str, object]:
    points = (colour.primaries, colour.transfer, colour.matrix)
    names = (primaries, "transfer_characteristics", "matrix_coefficients")
    return {} if set(points) == {UNSPECIFIED} else dict(zip(names, points, strict=True))


def _av1_options(colour: Colour) -> dict[str, object]:
    options = _code_points(colour, "color_primaries")
    if colour.range in (_LIMITED, _FULL):
        options["color_range"] = "pc" if colour.range == _FULL else "tv"
    if colour.chroma_location in _AV1_CHROMA_POSITION:
        options["chroma_sample_position"] = _AV1_CHROMA_POSITION[colour.chroma_location]
    return options


def _filtered(codec: Codec, description: str, parameter_sets: bytes) -> bytes:
    if not description:
        return parameter_sets
    try:
        context = BitStreamFilterContext(description, codec.value)
        packets = [*context.filter(_padded(parameter_sets)), *context.filter(None)]
    except (av.error.FFmpegError, ValueError) as error:
        message = f"FFmpeg cannot write {description} into NVENC's parameter sets: {error}"
        raise EngineFailed(message, "Please report this with the driver's version.") from error
    return b"".join(bytes(packet) for packet in packets)


def _padded(data: bytes) -> "Packet[Stream]":
    """Return a packet followed by the padding that libavcodec reads; a packet made from ``bytes`` has none."""
    packet: Packet[Stream] = Packet(len(data))
    packet.update(data)
    return packet


def hdr_units(codec: Codec, hdr: HdrStatic) -> tuple[bytes, ...]:
    """Return the units that state a track's static HDR metadata: SEI NAL units without start codes, or AV1's OBUs."""
    units = [message_unit(codec, each) for each in hdr_messages(codec, hdr)]
    return tuple(reversed(units) if codec is Codec.AV1 else units)


def obus(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the type and bytes of each OBU of a temporal unit (AV1, 5.3); raises ``EngineFailed`` if malformed."""
    at = 0
    while at < len(data):
        head = data[at]
        begin = at + (2 if head & 4 else 1)
        size, begin = leb128(data, begin)
        if not head & 2 or begin + size > len(data):
            message = f"NVENC gave an AV1 packet that is truncated or has no sizes, at byte {at} of {len(data)}"
            raise EngineFailed(message, _RETRY)
        yield head >> 3 & 15, data[at : begin + size]
        at = begin + size


def _parameter_sets(codec: Codec, data: bytes) -> Iterator[bytes]:
    if codec is Codec.AV1:
        yield from (unit for kind, unit in obus(data) if kind == _SEQUENCE_HEADER)
        return
    hevc = codec is Codec.HEVC
    yield from (unit for unit in nal_units(data) if nal_kind(unit, hevc=hevc) in _PARAMETER_SETS[codec])


def _joined(codec: Codec, units: tuple[bytes, ...]) -> bytes:
    return b"".join(units) if codec is Codec.AV1 else annex_b(units)
