"""Reads the HDR10+ messages of a track's packets, independently of the code that writes them.

FFmpeg decodes these messages, but does not return their bytes.
Sources: ITU-T H.264 and H.265 7.3.2.3 and annex B; AV1 specification 5.3 and 5.8; SMPTE ST 2094-40.
"""

import re
from collections.abc import Iterator
from typing import Final

from ....actors.media.av_abi import is_hdr10_plus

_HEAD: Final = b"\xb5\x00\x3c\x00\x01\x04"
_START: Final = re.compile(rb"\x00\x00\x01")
_ESCAPED: Final = re.compile(rb"(?<=\x00\x00)\x03")
_CODECS: Final = ("h264", "hevc", "av1")
_H264_SEI, _HEVC_SEI = 6, 39
_HEVC_SLICES, _HEVC_SEQUENCE = range(32), range(16, 21)
"""The kinds of units that are slices, and of slices that begin a sequence (BLA, IDR)."""
_METADATA: Final = 5
_HAS_SIZE, _HAS_EXTENSION = 2, 4
_STOP: Final = b"\x80"


class MessageReader:
    """Reads the messages of one track; ``codec`` is FFmpeg's canonical name of its codec."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata
        self._held = b""

    def read(self, packet: bytes) -> bytes | None:
        """Take the next packet; return the joined messages that apply to its picture, None for an unsupported codec.

        In HEVC, messages apply until the next messages or the next sequence. Messages that FFmpeg cannot read are left
        out.
        """
        if self._codec not in _CODECS:
            return None
        found = _of_obus(packet) if self._codec == "av1" else self._of_units(packet)
        messages = b"".join(each for each in found if each.startswith(_HEAD) and is_hdr10_plus(each[len(_HEAD) :]))
        self._held = messages or self._held
        return self._held if self._codec == "hevc" else messages

    def _of_units(self, packet: bytes) -> Iterator[bytes]:
        is_hevc = self._codec == "hevc"
        units = list(self._units(packet))
        kinds = [(unit[0] >> 1) % 64 if is_hevc else unit[0] % 32 for unit in units]
        if is_hevc and next((kind for kind in kinds if kind in _HEVC_SLICES), None) in _HEVC_SEQUENCE:
            self._held = b""
        for kind, unit in zip(kinds, units, strict=True):
            if kind == (_HEVC_SEI if is_hevc else _H264_SEI):
                yield from _of_sei(_ESCAPED.sub(b"", unit[2 if is_hevc else 1 :]))

    def _units(self, packet: bytes) -> Iterator[bytes]:
        place = 21 if self._codec == "hevc" else 4
        if self._extradata[:1] != b"\x01" or len(self._extradata) <= place:
            yield from filter(None, (unit.rstrip(b"\x00") for unit in _START.split(packet)[1:]))
            return
        prefix = self._extradata[place] % 4 + 1
        while len(packet) > prefix:
            size = int.from_bytes(packet[:prefix]) + prefix
            yield packet[prefix:size] or b"\x00"
            packet = packet[size:]


def _of_sei(messages: bytes) -> Iterator[bytes]:
    """Yield the payloads of an SEI unit's registered messages."""
    while messages.strip(b"\x00") not in (b"", _STOP):
        kind, messages = _number(messages)
        size, messages = _number(messages)
        if kind == 4:  # noqa: PLR2004 - user_data_registered_itu_t_t35
            yield messages[:size]
        messages = messages[size:]


def _number(data: bytes) -> tuple[int, bytes]:
    rest = data.lstrip(b"\xff")
    return (len(data) - len(rest)) * 255 + sum(rest[:1]), rest[1:]


def _of_obus(packet: bytes) -> Iterator[bytes]:
    while packet:
        kind, flags = packet[0] >> 3 & 15, packet[0]
        packet = packet[2 if flags & _HAS_EXTENSION else 1 :]
        size = len(packet)
        if flags & _HAS_SIZE:
            size, packet = _leb128(packet)
        if kind == _METADATA and packet[:1] == b"\x04":  # METADATA_TYPE_ITUT_T35
            yield packet[1:size].rstrip(b"\x00").removesuffix(_STOP)
        packet = packet[size:]


def _leb128(data: bytes) -> tuple[int, bytes]:
    length = next((place for place, byte in enumerate(data) if byte < 128), len(data)) + 1  # noqa: PLR2004
    return sum((byte & 127) << 7 * place for place, byte in enumerate(data[:length])), data[length:]
