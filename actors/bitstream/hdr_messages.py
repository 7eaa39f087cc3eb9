"""The static HDR values that a packet states: SEI messages of H.264 and HEVC, metadata OBUs of AV1.

Sources: ITU-T H.264 (08/2021) and H.265 (08/2021), annex D (mastering display colour volume, content light level
information); AV1 Bitstream and Decoding Process Specification, sections 5.8.2 and 5.8.3.
"""

import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from ..media.values import ContentLight, HdrStatic, MasteringDisplay
from .access_points import annex_b_units, nal_kind, sei_messages
from .packet_headers import leb128, open_bitstream_units

_SEI_UNITS: Final = {"h264": (6,), "hevc": (39,)}
_MASTERING, _LIGHT = 137, 144
_METADATA_OBU: Final = 5
_AV1_LIGHT, _AV1_MASTERING = 1, 2
_DISPLAY: Final = struct.Struct(">8H2I")
_LEVELS: Final = struct.Struct(">2H")
_UNITS: Final = (50_000, 10_000, 10_000)
"""Of chromaticities, and of the largest and the least luminance."""
_AV1_UNITS: Final = (1 << 16, 1 << 8, 1 << 14)


def hdr_of_packet(codec: str, payload: bytes) -> HdrStatic:
    """Return what a packet states, of H.264 and HEVC in Annex B form; a message that is cut short states nothing."""
    mastering = light = None
    for kind, message in _messages(codec, payload):
        if kind == _MASTERING and len(message) >= _DISPLAY.size:
            # In the message green and blue precede red; in AV1's the order is red, green, blue.
            values = _DISPLAY.unpack_from(message)
            mastering = _mastering(values, _AV1_UNITS if codec == "av1" else _UNITS, red_first=codec == "av1")
        elif kind == _LIGHT and len(message) >= _LEVELS.size:
            light = ContentLight(*_LEVELS.unpack_from(message))
    return HdrStatic(mastering, light if light and (light.max_cll or light.max_fall) else None)


def _messages(codec: str, payload: bytes) -> Iterator[tuple[int, bytes]]:
    if codec == "av1":
        for unit in open_bitstream_units(payload):
            if unit.kind == _METADATA_OBU:
                kind, at = leb128(unit.payload, 0)
                yield {_AV1_LIGHT: _LIGHT, _AV1_MASTERING: _MASTERING}.get(kind, 0), unit.payload[at:]
        return
    hevc = codec == "hevc"
    for data in annex_b_units(payload) if codec in _SEI_UNITS else ():
        if nal_kind(data, hevc=hevc) in _SEI_UNITS[codec]:
            yield from sei_messages(data, hevc=hevc)


def _mastering(values: tuple[int, ...], units: tuple[int, int, int], *, red_first: bool) -> MasteringDisplay | None:
    if not any(values):
        return None
    points = [(Fraction(x, units[0]), Fraction(y, units[0])) for x, y in zip(values[:8:2], values[1:8:2], strict=True)]
    red, green, blue = points[:3] if red_first else (points[2], points[0], points[1])
    largest, least = Fraction(values[8], units[1]), Fraction(values[9], units[2])
    return MasteringDisplay(red, green, blue, points[3], max_luminance=largest, min_luminance=least)
