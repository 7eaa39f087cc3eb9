"""Finds the field order of MPEG-2 and H.264 pictures as FFmpeg's decoders do.

Sources: ITU-T H.262 (02/2012) section 6.3.10; ITU-T H.264 (08/2021) sections 7.3.3 and D.1.3.
"""

from functools import lru_cache
from typing import Final

from ..media.av_stream import FieldOrder
from .access_points import BitReader, nal_units, sei_messages
from .parameter_sets import H264Fields, h264_fields

_HEAD_BYTES: Final = 4096
"""How many bytes of a packet are read; the picture's first slice begins within them."""
_CODING_EXTENSION: Final = b"\x00\x00\x01\xb5"
_CODING_EXTENSION_ID: Final = 8
_EXTENSION_BYTES: Final = 10
_BOTTOM_FIELD, _WHOLE_FRAME = 2, 3
_H264_SLICES, _H264_SEI, _PICTURE_TIMING = (1, 2, 5), 6, 1
_SLICE_HEAD_BYTES: Final = 32
_FRAME, _FIELDS, _PAIRS = 0, (1, 2), (3, 4)
_TOP_FIRST: Final = frozenset({3, 5})
_BOTTOM_FIRST: Final = frozenset({4, 6})
_CLOCKS: Final = (1, 1, 1, 2, 2, 3, 3, 2, 3)
"""The number of clock timestamps for each ``pic_struct`` (H.264 table D-1)."""
_INTERLACED_SCAN, _UNKNOWN_SCAN = 1, 2
_KEPT: Final = 256
"""How many picture timing units are cached."""
_FIRST: Final = {False: FieldOrder.TOP_FIRST, True: FieldOrder.BOTTOM_FIRST}


class FieldOrders:
    """Finds the field orders of a track's packets, given in demux order; ``codec`` is FFmpeg's name of the codec."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        self.is_read = codec in ("mpeg2video", "h264")
        self._is_h264 = codec == "h264"
        self._extradata = extradata
        self._fields: H264Fields | None = None
        self._last = FieldOrder.PROGRESSIVE
        self._first_field: tuple[int, bool] | None = None

    def begin(self, sequence_set: bytes, new_extradata: bytes = b"") -> None:
        """Read the parameter sets of an H.264 access point; call it before ``order`` for the packet."""
        self._extradata = new_extradata or self._extradata
        self._fields = h264_fields(sequence_set)

    @property
    def needs_packets(self) -> bool:
        """Whether packets must be read to find the field order.

        If not, reading would add nothing: either every picture is progressive, or no field order can be determined.
        """
        return self.is_read and (not self._is_h264 or self._fields is not None)

    def order(self, packet: memoryview) -> FieldOrder | None:
        """Return a packet's field order; UNKNOWN if the packet states only that it is interlaced.

        Return None if the packet states nothing, or has the second field of a picture.
        """
        data = bytes(packet[:_HEAD_BYTES])
        if not self._is_h264:
            return _mpeg2_order(data)
        if self._fields is None:
            return FieldOrder.PROGRESSIVE
        try:
            found = self._h264_order(data, self._fields)
        except EOFError:
            return None
        self._last = found or self._last
        return found

    def _h264_order(self, data: bytes, fields: H264Fields) -> FieldOrder | None:
        timing = None
        for unit in nal_units(data, self._extradata):
            kind = unit[0] & 0x1F
            if kind == _H264_SEI and fields.states_structure:
                timing = _timing(unit, fields) or timing
            elif kind in _H264_SLICES:
                return self._of_slice(BitReader(unit[1:_SLICE_HEAD_BYTES]), fields, timing)
        return None

    def _of_slice(self, reader: BitReader, fields: H264Fields, timing: tuple[int, int] | None) -> FieldOrder | None:
        for _ in range(3):  # first_mb_in_slice, slice_type, pic_parameter_set_id
            reader.ue()
        reader.skip(2 * fields.has_plane_numbers)
        number = reader.bits(fields.frame_num_bits)
        if reader.flag():  # field_pic_flag
            is_bottom = reader.flag()
            if self._first_field == (number, not is_bottom):
                self._first_field = None  # this packet has the second field of a picture
                return None
            self._first_field = number, is_bottom
            return _FIRST[is_bottom]
        self._first_field = None
        return self._of_frame(fields, timing)

    def _of_frame(self, fields: H264Fields, timing: tuple[int, int] | None) -> FieldOrder:
        """Return a frame's field order as FFmpeg does: from the timing message, otherwise from the frame's coding."""
        structure, scan = timing if timing is not None else (_FRAME, _UNKNOWN_SCAN)
        interlaced = fields.adapts_by_pair
        if timing is not None and not (structure in _PAIRS and fields.adapts_by_pair):
            interlaced = structure in _FIELDS or (structure in _PAIRS and self._last is not FieldOrder.PROGRESSIVE)
        if scan != _UNKNOWN_SCAN and structure <= max(_PAIRS):
            interlaced = scan == _INTERLACED_SCAN
        if not interlaced:
            return FieldOrder.PROGRESSIVE
        if structure in _TOP_FIRST | _BOTTOM_FIRST:
            return _FIRST[structure in _BOTTOM_FIRST]
        return FieldOrder.UNKNOWN


@lru_cache(_KEPT)
def _timing(unit: bytes, fields: H264Fields) -> tuple[int, int] | None:
    """Return the picture timing in an SEI unit; None if absent. Cached because sequences repeat the same units."""
    loads = [load for number, load in sei_messages(unit, hevc=False) if number == _PICTURE_TIMING]
    return _picture_timing(BitReader(loads[0], is_escaped=False), fields) if loads else None


def _picture_timing(reader: BitReader, fields: H264Fields) -> tuple[int, int]:
    """Read a picture timing message: its ``pic_struct``, and the scan type of its first timestamp."""
    reader.skip(fields.delay_bits)
    structure = reader.bits(4)
    for _ in range(_CLOCKS[structure] if structure < len(_CLOCKS) else 0):
        if reader.flag():
            return structure, {0: 0, 1: _INTERLACED_SCAN}.get(reader.bits(2), _UNKNOWN_SCAN)
    return structure, _UNKNOWN_SCAN


def _mpeg2_order(data: bytes) -> FieldOrder | None:
    at = data.find(_CODING_EXTENSION)
    while at >= 0:
        head = data[at + 4 : at + _EXTENSION_BYTES]
        if len(head) == _EXTENSION_BYTES - 4 and head[0] >> 4 == _CODING_EXTENSION_ID:
            structure = head[2] & 3
            if structure != _WHOLE_FRAME:
                return _FIRST[structure == _BOTTOM_FIELD]
            return FieldOrder.PROGRESSIVE if head[4] >> 7 else _FIRST[not head[3] >> 7]
        at = data.find(_CODING_EXTENSION, at + 4)
    return None
