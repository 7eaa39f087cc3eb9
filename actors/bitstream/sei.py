"""Reads and writes the messages that accompany a picture: SEI messages of H.264 and HEVC, metadata OBUs of AV1.

Sources: ITU-T H.264 (08/2021) 7.3.2.3, 7.4.1, annex D; ITU-T H.265 (08/2021) 7.3.2.4, annex D; AV1 Bitstream and
Decoding Process Specification 5.3, 5.8, 6.7.
"""

import struct
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Final

from ..media.values import ContentLight, HdrStatic, MasteringDisplay, SeiMessage
from .access_points import annex_b, nal_kind, nal_units, sei_messages
from .packet_headers import ObuKind, leb128, open_bitstream_units

_UNIT_KINDS: Final = {"h264": 6, "hevc": 39}
_UNIT_HEADERS: Final = {"h264": b"\x06", "hevc": b"\x4e\x01"}
_SLICES: Final = {"h264": range(1, 6), "hevc": range(32)}
_ZEROS, _PREVENTION = 2, 3
"""An emulation prevention byte of 3 is inserted between two zero bytes and a byte of 0 to 3."""
_FULL: Final = 0xFF
_METADATA_OBU, _METADATA_HEADER = 5, b"\x2a"  # with a size field
_FRAMES: Final = (ObuKind.FRAME_HEADER, ObuKind.FRAME)
_MASTERING: Final = {"h264": 137, "hevc": 137, "av1": 2}
_LIGHT: Final = {"h264": 144, "hevc": 144, "av1": 1}
_DISPLAY: Final = struct.Struct(">8H2I")
_LEVELS: Final = struct.Struct(">2H")
_UNITS: Final = (50_000, 10_000, 10_000)
"""How many units make 1.0 of a chromaticity coordinate, and 1 cd/m² of the highest and the lowest luminance."""
_AV1_UNITS: Final = (1 << 16, 1 << 8, 1 << 14)


def messages_of(codec: str, payload: bytes, extradata: bytes = b"") -> Iterator[SeiMessage]:
    """Yield the messages of a packet, in order; ``extradata`` says how NAL units are delimited."""
    if codec == "av1":
        for unit in open_bitstream_units(payload):
            if unit.kind == _METADATA_OBU:
                kind, at = leb128(unit.payload, 0)
                # after the last byte come a 1 bit and zeros (AV1 specification 6.7.1)
                yield SeiMessage(kind, unit.payload[at:].rstrip(b"\0").removesuffix(b"\x80"))
        return
    hevc = codec == "hevc"
    for data in nal_units(payload, extradata, hevc=hevc) if codec in _UNIT_KINDS else ():
        if nal_kind(data, hevc=hevc) == _UNIT_KINDS[codec]:
            yield from (SeiMessage(*each) for each in sei_messages(data, hevc=hevc))


def hdr_of(codec: str, messages: Iterable[SeiMessage]) -> HdrStatic:
    """Return the static HDR values that messages state; truncated messages are ignored."""
    mastering = light = None
    for message in messages:
        if message.kind == _MASTERING.get(codec) and len(message.payload) >= _DISPLAY.size:
            mastering = _mastering(_DISPLAY.unpack_from(message.payload), is_av1=codec == "av1")
        elif message.kind == _LIGHT.get(codec) and len(message.payload) >= _LEVELS.size:
            light = ContentLight(*_LEVELS.unpack_from(message.payload))
    return HdrStatic(mastering, light if light and (light.max_cll or light.max_fall) else None)


def hdr_messages(codec: str, hdr: HdrStatic) -> list[SeiMessage]:
    """Return the messages that state static HDR values."""
    found = []
    if hdr.mastering is not None:
        found.append(SeiMessage(_MASTERING[codec], _mastering_payload(codec, hdr.mastering)))
    if hdr.light is not None:
        found.append(SeiMessage(_LIGHT[codec], _LEVELS.pack(hdr.light.max_cll, hdr.light.max_fall)))
    return found


def with_messages(codec: str, payload: bytes, messages: Iterable[SeiMessage]) -> bytes:
    """Return a packet (Annex B, or OBUs) with messages inserted before its picture, after its existing messages.

    AV1 decoders apply messages to the next frame, so the messages are inserted after frames that are not shown.
    """
    if codec == "av1":
        at = _shown_frame_at(payload)
        return payload[:at] + b"".join(message_unit(codec, each) for each in messages) + payload[at:]
    hevc = codec == "hevc"
    units = list(nal_units(payload))
    kinds = [nal_kind(unit, hevc=hevc) for unit in units]
    at = next((place for place, kind in enumerate(kinds) if kind in _SLICES[codec]), len(units))
    return annex_b([*units[:at], *(message_unit(codec, each) for each in messages), *units[at:]])


def message_unit(codec: str, message: SeiMessage) -> bytes:
    """Return a message as a NAL unit without a start code (H.264, HEVC) or as an OBU (AV1)."""
    # SEI units and metadata OBUs end in 0x80, a stop bit.
    if codec == "av1":
        body = _leb128(message.kind) + message.payload + b"\x80"
        return _METADATA_HEADER + _leb128(len(body)) + body
    body = _number(message.kind) + _number(len(message.payload)) + message.payload + b"\x80"
    return _UNIT_HEADERS[codec] + _escaped(body)


def _mastering(values: tuple[int, ...], *, is_av1: bool) -> MasteringDisplay | None:
    if not any(values):
        return None
    unit, largest, least = _AV1_UNITS if is_av1 else _UNITS
    points = [(Fraction(x, unit), Fraction(y, unit)) for x, y in zip(values[:8:2], values[1:8:2], strict=True)]
    red, green, blue = points[:3] if is_av1 else (points[2], points[0], points[1])
    luminance = Fraction(values[8], largest), Fraction(values[9], least)
    return MasteringDisplay(red, green, blue, points[3], max_luminance=luminance[0], min_luminance=luminance[1])


def _mastering_payload(codec: str, display: MasteringDisplay) -> bytes:
    is_av1 = codec == "av1"
    unit, largest, least = _AV1_UNITS if is_av1 else _UNITS
    first, second, third = (0, 1, 2) if is_av1 else (1, 2, 0)
    colours = (display.red, display.green, display.blue)
    points = (*colours[first], *colours[second], *colours[third], *display.white)
    fixed = (min(0xFFFF, round(value * unit)) for value in points)
    return _DISPLAY.pack(*fixed, round(display.max_luminance * largest), round(display.min_luminance * least))


def _shown_frame_at(data: bytes) -> int:
    """Return the position of the header of a temporal unit's last frame, the only one that is shown."""
    at = found = 0
    while at < len(data):
        found = at if data[at] >> 3 & 15 in _FRAMES else found
        size, begin = leb128(data, at + (2 if data[at] & 4 else 1)) if data[at] & 2 else (len(data), at)
        at = begin + size
    return found


def _number(value: int) -> bytes:
    return bytes([_FULL] * (value // _FULL)) + bytes([value % _FULL])


def _leb128(value: int) -> bytes:
    found = bytearray()
    while value >> 7:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _escaped(body: bytes) -> bytes:
    escaped = bytearray()
    zeros = 0
    for byte in body:
        if zeros == _ZEROS and byte <= _PREVENTION:
            escaped.append(_PREVENTION)
            zeros = 0
        escaped.append(byte)
        zeros = 0 if byte else zeros + 1
    return bytes(escaped)
