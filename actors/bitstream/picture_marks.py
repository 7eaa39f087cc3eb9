"""Fingerprints of access points' headers: equal fingerprints mean that a decoder reports the same format."""

from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from .access_points import annex_b_units, sei_messages
from .packet_headers import open_bitstream_units, unit_kinds, vp8_size
from .picture_sizes import PictureSizes
from .vp9 import vp9_frames

_MESSAGES: Final = frozenset({45, 47, 137, 144, 147})
"""The SEI messages that are compared: frame packing, display orientation, mastering display, content light level and
alternative transfer function.
"""
_HEVC_SEI, _H264_SEI = 39, 6
_AV1_SEQUENCE, _AV1_METADATA = 1, 5
_AV1_LIGHT_AND_MASTERING: Final = (b"\x01", b"\x02")
_MPEG2_SEQUENCE, _MPEG2_EXTENSION, _SEQUENCE_EXTENSIONS = 0xB3, 0xB5, (1, 2)
_MPEG2_SLICE: Final = b"\x00\x00\x01\x01"
_MPEG2_STATED_BYTES: Final = 5
"""How many bytes of a sequence header are compared: start, size, aspect ratio and frame rate, but no bitrate."""
_MPEG4_LAYERS: Final = range(0x20, 0x30)
_VC1_SEQUENCES: Final = (0x0F,)
_PRORES_STATED: Final = slice(16, 26)
"""The bytes of an ``icpf`` frame with size, sampling, interlacing, aspect ratio, frame rate, colours and alpha."""
_JPEG_FRAMES, _JPEG_SCAN = (0xC0, 0xC1, 0xC2, 0xC3), 0xDA


class PictureMarks:
    """Makes the marks of a track's access points, given in demux order; ``codec`` is FFmpeg's name of the codec."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata
        self._messages: dict[int, bytes] = {}

    def mark(self, data: bytes, sizes: PictureSizes, new_extradata: bytes = b"") -> Hashable:
        """Return the mark of an access point's packet.

        ``sizes`` must have read the packet already. ``new_extradata`` is the codec configuration, if it changes at this
        packet.
        """
        self._extradata = new_extradata or self._extradata
        if self._codec in ("h264", "hevc"):
            return sizes.sequence_set, self._stated_messages(sizes.units)
        stated = _STATED.get(self._codec)
        return self._extradata, None if stated is None else stated(data)

    def _stated_messages(self, units: Sequence[bytes]) -> Hashable:
        """Return the messages that apply here; each applies until a message of the same kind replaces it."""
        hevc = self._codec == "hevc"
        for unit, kind in zip(units, unit_kinds(units, hevc=hevc), strict=True):
            if kind == (_HEVC_SEI if hevc else _H264_SEI):
                self._messages |= {kind: load for kind, load in sei_messages(unit, hevc=hevc) if kind in _MESSAGES}
        return tuple(sorted(self._messages.items()))


def _vp8_stated(data: bytes) -> Hashable:
    return vp8_size(data), data[10:11] and data[10] >> 6  # color_space and clamping_type


def _vp9_stated(data: bytes) -> Hashable:
    first = next((frame for frame in vp9_frames(data) if frame.colours is not None), None)
    # the profile, then the depth, colours and sampling after the synchronisation code
    return first, data[:1] and data[0] >> 4, data[4:5] and data[4] >> 4


def _av1_stated(data: bytes) -> Hashable:
    found = set()
    for unit in open_bitstream_units(data):
        is_hdr = unit.kind == _AV1_METADATA and unit.payload[:1] in _AV1_LIGHT_AND_MASTERING
        found |= {unit.payload} if unit.kind == _AV1_SEQUENCE or is_hdr else set()
    return frozenset(found)


def _mpeg2_stated(data: bytes) -> Hashable:
    found = set()
    for unit in annex_b_units(data[: data.find(_MPEG2_SLICE)]):
        if unit[0] == _MPEG2_SEQUENCE:
            found.add(unit[:_MPEG2_STATED_BYTES])
        elif unit[0] == _MPEG2_EXTENSION and len(unit) > 1 and unit[1] >> 4 in _SEQUENCE_EXTENSIONS:
            found.add(unit)
    return frozenset(found)


def _units(kinds: Container[int], data: bytes) -> Hashable:
    return frozenset(unit for unit in annex_b_units(data) if unit[0] in kinds)


def _jpeg_stated(data: bytes) -> Hashable:
    """Return the frame header, which states depth, size and sampling; b"" if there is no header."""
    at = 2
    while at + 4 <= len(data) and data[at + 1] != _JPEG_SCAN:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] in _JPEG_FRAMES:
            return data[at:end]
        at = end
    return b""


_STATED: Final[Mapping[str, Callable[[bytes], Hashable]]] = {
    "vp8": _vp8_stated,
    "vp9": _vp9_stated,
    "av1": _av1_stated,
    "mpeg1video": _mpeg2_stated,
    "mpeg2video": _mpeg2_stated,
    "mpeg4": partial(_units, _MPEG4_LAYERS),
    "vc1": partial(_units, _VC1_SEQUENCES),
    "prores": itemgetter(_PRORES_STATED),
    "mjpeg": _jpeg_stated,
}
"""The reader of marks for each codec, by FFmpeg's canonical name; for other codecs only the configuration counts."""
