"""Finds side data that encoders do not carry over (captions, dynamic HDR, a second view, alpha), named as in FFmpeg.

Only unit headers and messages before the first slice are read, which takes one or two microseconds for each packet.
Sources: ITU-T T.35, ATSC A/53-4; SMPTE ST 2094-40; CTA-861-H, T/UWA 005; SCTE 20; ITU-T H.264 7.3.1, 7.4.1; H.265
7.4.2.2; ISO/IEC 13818-2 6.2; AV1 Bitstream & Decoding Process Specification 5.8; RFC 9559 5.1.3.5.2.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Final

from .access_points import BitReader, nal_kind, prefix_bytes, sei_messages
from .packet_headers import open_bitstream_units
from .parameter_sets import configuration_units

CAPTIONS: Final = "A53_CC"
AFD: Final = "AFD"
HDR10_PLUS: Final = "DYNAMIC_HDR_PLUS"
HDR10_PLUS_WINDOWS: Final = "HDR10_PLUS_WINDOWS"
"""HDR10+ metadata with more windows (parts of the picture) than the first, which is the whole picture."""
HDR_VIVID: Final = "DYNAMIC_HDR_VIVID"
DOLBY_VISION: Final = "DOVI_RPU_BUFFER"
SECOND_VIEW: Final = "VIEW_ID"
LCEVC: Final = "LCEVC"
STEREO: Final = "STEREO3D"
ROTATION: Final = "DISPLAYMATRIX"
ALPHA: Final = "ALPHA"

SIDE_DATA: Final = {"a53_cc": CAPTIONS, "afd": AFD, "dynamic_hdr10_plus": HDR10_PLUS, "lcevc": LCEVC}
"""The kinds of packets' side data that FFmpeg's decoders pass on to pictures, by FFmpeg's name."""
BLOCK_ADDITION: Final = "matroska_block_additional"

_FILLED: Final = rb"[\x41-\x5f\x61-\x7f\xc1-\xdf\xe1-\xff]"
"""Matches the byte that announces captions: process_cc_data_flag is set, and cc_count is above 0."""
_ACTIVE: Final = rb"[\x40-\x7f\xc0-\xff]"
_REGISTERED: Final = re.compile(
    rb"\xb5\x00\x31(?:(?P<A53_CC>GA94\x03%b)|(?P<AFD>DTG1%b))"
    rb"|(?P<DYNAMIC_HDR_PLUS>\xb5\x00\x3c\x00\x01\x04)"
    rb"|(?P<DOVI_RPU_BUFFER>\xb5\x00\x3b\x00\x00\x08\x00)"
    rb"|(?P<DYNAMIC_HDR_VIVID>\x26\x00\x04\x00\x05)"
    rb"|(?P<LCEVC>\xb4\x00\x50)" % (_FILLED, _ACTIVE)
)
"""The beginnings of registered messages: T.35's country and provider codes, and the provider's own code."""
_USER_DATA: Final = re.compile(
    rb"\x00\x00\x01\xb2(?:(?P<A53_CC>GA94\x03%b|CC\x01\xf8|\x03[\x01\x81])|(?P<AFD>DTG1%b))" % (_FILLED, _ACTIVE)
)
_FIRST_SLICE: Final = b"\x00\x00\x01\x01"
_START_CODE: Final = b"\x00\x00\x01"
_MPEG2: Final = frozenset({"mpeg1video", "mpeg2video"})
_UNIT_CODECS: Final = frozenset({"h264", "hevc"})
_WITH_ALPHA: Final = frozenset({"vp8", "vp9"})

_H264_SEI: Final = 6
_H264_SLICES: Final = range(1, 6)
_H264_EXTENSION: Final = 20
_SCALABLE: Final = 0x80
"""svc_extension_flag: the unit extends a picture in resolution, and adds no view."""
_HEVC_SEI: Final = (39, 40)
_T35: Final = 4
"""The type of registered messages, which is the same in SEI and in AV1's metadata."""
_WINDOWS_AT, _SECOND_WINDOW = 7, b"\x80"
"""The position of the byte of an HDR10+ message whose first bits are num_windows, and that byte's least value with two
windows.
"""
_FRAME_PACKING: Final = 45
_ALPHA_CHANNEL, _ALPHA_CANCELLED = 165, 0x80
_ORIENTATION: Final = 47
_LONG_NUMBER: Final = 0xFF
"""The first byte of a message kind of 255 or more; such a kind takes several bytes."""
_ORIENTATION_CANCELLED: Final = 1 << 18
"""The cancel flag of display orientation, whose 19 bits are this flag, two mirror flags and an angle."""
_HEVC_SLICES: Final = 32
_HEVC_RPU: Final = 62
_HEAD_BYTES: Final = 4096
"""How many bytes of a packet are read first; the picture's first slice usually begins within them."""
_TAIL_BYTES: Final = 1 << 16
"""How many bytes at the end of a packet are searched for the last unit, which has Dolby Vision's metadata (RPU)."""
_METADATA_OBU: Final = 5
_ALPHA_ADDITION: Final = (1).to_bytes(8)
"""The head of a block addition with BlockAddID 1, which belongs to the codec: for VP8 and VP9 it is the alpha plane."""


class RiderReader:
    """Finds the side data on the packets of one track.

    ``codec`` is FFmpeg's canonical name of the codec; ``extradata`` says how units are delimited.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._is_hevc = codec == "hevc"
        self._prefix_bytes = prefix_bytes(extradata, hevc=self._is_hevc)
        stated = configuration_units(extradata, hevc=True) if self._is_hevc else ()
        # What HEVC's layer above the base layer holds: alpha or a second view.
        self._above = ALPHA if any(ALPHA in _of_messages(unit, hevc=True) for unit in stated) else SECOND_VIEW
        self._read_firsts = _HEVC_READ if self._is_hevc else _H264_READ
        self.reads = codec in _UNIT_CODECS | _MPEG2 | {"av1"}  # whether packets of this codec are read

    def kinds(self, packet: memoryview) -> set[str]:
        """Return the kinds of side data on a packet's pictures."""
        if self._codec in _UNIT_CODECS:
            return self._of_units(packet)
        if self._codec == "av1":
            return _of_open_units(bytes(packet))
        data = bytes(packet[:_HEAD_BYTES])
        if (end := data.find(_FIRST_SLICE)) < 0:
            data = bytes(packet)
            end = data.find(_FIRST_SLICE)
        return {str(match.lastgroup) for match in _USER_DATA.finditer(data, 0, end if end >= 0 else len(data))}

    def added(self, addition: bytes) -> str | None:
        """Return the side data that a block addition of Matroska adds to the picture; None if its kind is unknown."""
        return ALPHA if self._codec in _WITH_ALPHA and addition.startswith(_ALPHA_ADDITION) else None

    def _of_units(self, packet: memoryview) -> set[str]:
        found: set[str] = set()
        if self._prefix_bytes is None:
            for unit in _annex_b_heads(packet, hevc=self._is_hevc):
                self._read(unit, found)
            return found
        # This runs for every unit of every packet: it uses no generator, and copies only the units that are read.
        length_bytes, end, read, is_hevc = self._prefix_bytes, len(packet), self._read_firsts, self._is_hevc
        length = _LENGTHS[length_bytes]
        begin = length_bytes
        while begin < end:
            after = begin + length(packet, begin - length_bytes)[0]
            first = packet[begin]
            if first in read or (is_hevc and _is_above(packet, begin)):
                self._read(packet[begin:after], found)
            begin = after + length_bytes
        return found

    def _read(self, unit: bytes | memoryview, found: set[str]) -> None:
        if not unit:
            return
        if self._is_hevc:
            self._read_hevc(unit, found)
        elif unit[0] & 0x1F == _H264_SEI:
            if _may_ride(unit, hevc=False):
                found.update(_of_messages(bytes(unit), hevc=False))
        elif len(unit) > 1 and not unit[1] & _SCALABLE:
            found.add(SECOND_VIEW)

    def _read_hevc(self, unit: bytes | memoryview, found: set[str]) -> None:
        kind = _hevc_kind(unit[0])
        if kind == _HEVC_RPU:
            found.add(DOLBY_VISION)
        elif kind in _HEVC_SEI:
            if _may_ride(unit, hevc=True):
                found.update(_of_messages(bytes(unit), hevc=True))
            self._above = ALPHA if ALPHA in found else self._above
        else:
            found.add(self._above)


def _may_ride(unit: bytes | memoryview, *, hevc: bool) -> bool:
    """Return whether an SEI unit may have a message that is read; most units have only a picture's timing."""
    begin = 2 if hevc else 1
    message = unit[begin : begin + 2]
    is_short = len(message) > 1 and len(unit) <= begin + 2 + message[1] + 1
    return not is_short or message[0] in (_T35, _FRAME_PACKING, _ALPHA_CHANNEL, _ORIENTATION, _LONG_NUMBER)


def _of_messages(unit: bytes, *, hevc: bool) -> Iterator[str]:
    """Yield the kinds of side data in an SEI unit's messages; nothing for other units."""
    if not unit or nal_kind(unit, hevc=hevc) not in (_HEVC_SEI if hevc else (_H264_SEI,)):
        return
    for kind, payload in sei_messages(unit, hevc=hevc):
        if kind == _T35:
            yield from registered_kinds(payload)
        elif kind == _FRAME_PACKING and payload and not _cancels_packing(payload):
            yield STEREO
        elif kind == _ORIENTATION and 0 < int.from_bytes(payload[:3].ljust(3, b"\0")) >> 5 < _ORIENTATION_CANCELLED:
            yield ROTATION
        elif hevc and kind == _ALPHA_CHANNEL and payload and not payload[0] & _ALPHA_CANCELLED:
            yield ALPHA


def _cancels_packing(payload: bytes) -> bool:
    reader = BitReader(payload[:8], is_escaped=False)
    try:
        reader.ue()  # frame_packing_arrangement_id
        return reader.flag()
    except EOFError:
        return True


def _hevc_kind(first: int) -> int:
    return first >> 1 & 0x3F


_H264_READ: Final = frozenset(first for first in range(256) if first & 0x1F in (_H264_SEI, _H264_EXTENSION))
_HEVC_READ: Final = frozenset(first for first in range(256) if _hevc_kind(first) in (*_HEVC_SEI, _HEVC_RPU))
"""The values of the first byte of a unit that is read."""
_HEVC_ABOVE: Final = frozenset(first for first in range(256) if _hevc_kind(first) < _HEVC_SLICES and not first & 1)
"""The values of the first byte of a slice that may be in layer 1: the last bit is the highest bit of the layer's
number.
"""


_LENGTHS: Final[Mapping[int, Callable[[memoryview, int], tuple[int, ...]]]] = {
    1: Struct(">B").unpack_from,
    2: Struct(">H").unpack_from,
    3: lambda packet, at: (int.from_bytes(packet[at : at + 3]),),
    4: Struct(">I").unpack_from,
}
"""The reader of a unit's length for each size of the length field; faster than slicing each packet."""


def _is_above(packet: memoryview, begin: int) -> bool:
    return packet[begin] in _HEVC_ABOVE and begin + 1 < len(packet) and packet[begin + 1] >> 3 == 1


def _of_open_units(data: bytes) -> set[str]:
    found: set[str] = set()
    for unit in open_bitstream_units(data):
        if unit.kind == _METADATA_OBU and unit.payload[:1] == bytes((_T35,)):
            found.update(registered_kinds(unit.payload[1:]))
    return found


def registered_kinds(payload: bytes) -> Iterator[str]:
    """Yield the kinds of side data in a registered message (T.35)."""
    if (match := _REGISTERED.match(payload)) is not None:
        yield str(match.lastgroup)
        if match.lastgroup == HDR10_PLUS and payload[_WINDOWS_AT : _WINDOWS_AT + 1] >= _SECOND_WINDOW:
            yield HDR10_PLUS_WINDOWS


def _annex_b_heads(packet: memoryview, *, hevc: bool) -> list[bytes]:
    """Return the units before the first slice, and for HEVC also the last unit, without searching the slices."""
    found, slice_at = _before_slice(bytes(packet[:_HEAD_BYTES]), hevc=hevc)
    if slice_at is None and len(packet) > _HEAD_BYTES:
        found, slice_at = _before_slice(bytes(packet), hevc=hevc)
    if hevc and slice_at is not None:
        tail = bytes(packet[max(slice_at, len(packet) - _TAIL_BYTES) :])
        last = tail.rpartition(_START_CODE)
        found += [last[2]] if last[1] and last[2] and last[2][0] in _HEVC_READ else []
    return found


def _before_slice(data: bytes, *, hevc: bool) -> tuple[list[bytes], int | None]:
    """Return the units of interest before the first slice, and the position of that slice (None without a slice)."""
    found: list[bytes] = []
    at = data.find(_START_CODE) + len(_START_CODE)
    while len(_START_CODE) <= at < len(data):
        if _hevc_kind(data[at]) < _HEVC_SLICES if hevc else data[at] & 0x1F in _H264_SLICES:
            return found, at
        end = data.find(_START_CODE, at)
        if data[at] in (_HEVC_READ if hevc else _H264_READ):
            found.append(data[at : end if end >= 0 else len(data)])
        at = end + len(_START_CODE) if end >= 0 else len(data)
    return found, None
