"""Judges from a packet's headers whether decoding of H.264 or HEVC can start there.

Sources: ITU-T H.264 and H.265 (08/2021), 7.3 and 7.4; ISO/IEC 14496-15 for the length-prefixed form.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, TypeVar

DataT = TypeVar("DataT", bytes, memoryview)

_START_CODE = b"\x00\x00\x00\x01"
_EXP_GOLOMB_ZEROS = 32
"""The most zeros before an Exp-Golomb number, which is at most 2^32 - 2 (H.264 section 7.2)."""


_CONTINUES: Final = 0xFF
"""The value of a byte of an SEI message's type or size after which another byte is added to the same number."""


class RandomAccess(Enum):
    """Whether and how decoding can start at a packet."""

    IDR = "idr"  #: no picture after this one, in coding or presentation order, refers to a picture before it
    CRA = "cra"  #: HEVC clean random access: pictures that follow the CRA but are shown earlier may be undecodable
    BLA = "bla"  #: HEVC broken link: like CRA, but the earlier pictures belong to another stream
    RECOVERY_POINT = "recovery-point"  #: H.264: the encoder promises that pictures shown from here on are correct
    INTRA_ONLY = "intra-only"  #: H.264: coded without references; later pictures may still need earlier ones
    FLAGGED = "flagged"  #: the container flags a keyframe; packets of this codec are not read
    NONE = "none"  #: decoding cannot start here, even if the container flags a keyframe


class BitReader:
    """Reads a raw byte sequence payload, most significant bit first.

    Emulation prevention bytes are removed unless ``is_escaped`` is False (VP9 has none). Reading past the end, or a
    malformed number, raises ``EOFError``. The cost of a read grows with the payload's length.
    """

    def __init__(self, payload: bytes, *, is_escaped: bool = True) -> None:
        data = payload.replace(b"\x00\x00\x03", b"\x00\x00") if is_escaped else payload
        self._bits = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def bits(self, count: int) -> int:
        """Read ``count`` bits as an unsigned number (u(n))."""
        if count > self._left:
            raise EOFError
        self._left -= count
        return (self._bits >> self._left) & ((1 << count) - 1)

    def flag(self) -> bool:
        """Read one bit (u(1))."""
        return self.bits(1) == 1

    def skip(self, count: int) -> None:
        """Skip ``count`` bits."""
        self.bits(count)

    def ue(self) -> int:
        """Read an unsigned Exp-Golomb number (ue(v), H.264 section 9.1)."""
        zeros = self._left - (self._bits & (1 << self._left) - 1).bit_length()
        if zeros > min(_EXP_GOLOMB_ZEROS, self._left - 1):
            raise EOFError
        self._left -= zeros
        return self.bits(zeros + 1) - 1

    def se(self) -> int:
        """Read a signed Exp-Golomb number (se(v))."""
        code = self.ue()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def nal_units(data: bytes, extradata: bytes = b"", *, hevc: bool = False) -> Iterator[bytes]:
    """Yield a packet's NAL units, including a truncated last unit; ``extradata`` says how units are delimited."""
    length_bytes = prefix_bytes(extradata, hevc=hevc)
    return annex_b_units(data) if length_bytes is None else prefixed_units(data, length_bytes)


def nal_kind(unit: bytes | memoryview, *, hevc: bool) -> int:
    """Return the ``nal_unit_type`` of a NAL unit."""
    return unit[0] >> 1 & 0x3F if hevc else unit[0] & 0x1F


def annex_b(units: Iterable[bytes | memoryview]) -> bytes:
    """Return NAL units in Annex B form, each after a start code of four bytes."""
    return _START_CODE.join([b"", *units])


def prefix_bytes(extradata: bytes, *, hevc: bool) -> int | None:
    """Return the number of bytes in each unit's length prefix; None for Annex B.

    Extradata in avcC or hvcC form begins with 1; any other extradata means Annex B.
    """
    if not extradata or extradata[0] != 1:
        return None
    at = 21 if hevc else 4
    return (extradata[at] & 3) + 1 if len(extradata) > at else None


def prefixed_units(data: DataT, length_bytes: int) -> Iterator[DataT]:
    """Yield the length-prefixed NAL units in ``data``, including a truncated last unit.

    The units are views if ``data`` is a view.
    """
    at, last = 0, len(data) - length_bytes
    while at < last:
        begin = at + length_bytes
        at = begin + int.from_bytes(data[at:begin], "big")
        if at > begin:
            yield data[begin:at]


def annex_b_units(data: bytes) -> Iterator[bytes]:
    """Yield the NAL units of a packet in which a start code precedes each unit."""
    start = data.find(b"\x00\x00\x01")
    while start >= 0:
        end = data.find(b"\x00\x00\x01", start + 3)
        # Zeros before the next start code belong to that start code, and no unit ends in a zero (H.264 section 7.4.1).
        if unit := data[start + 3 : end if end >= 0 else len(data)].rstrip(b"\x00"):
            yield unit
        start = end


def random_access_kind(codec: str, data: bytes, extradata: bytes = b"") -> RandomAccess:
    """Return whether and how decoding can start at a packet, from NAL headers and the first bits of H.264 slices."""
    if codec == "hevc":
        return _hevc_kind(data, extradata)
    if codec == "h264":
        return _h264_kind(data, extradata)
    return RandomAccess.FLAGGED


def _hevc_kind(data: bytes, extradata: bytes) -> RandomAccess:
    for unit in nal_units(data, extradata, hevc=True):
        kind = nal_kind(unit, hevc=True)
        if kind > _HEVC_LAST_SLICE:
            continue
        if kind in _HEVC_BLA:
            return RandomAccess.BLA
        if kind in _HEVC_IDR:
            return RandomAccess.IDR
        return RandomAccess.CRA if kind == _HEVC_CRA else RandomAccess.NONE
    return RandomAccess.NONE


_HEVC_BLA, _HEVC_IDR, _HEVC_CRA, _HEVC_LAST_SLICE = (16, 17, 18), (19, 20), 21, 31
_H264_SLICE, _H264_PARTITION_A, _H264_IDR, _H264_SEI = 1, 2, 5, 6
_H264_I_SLICES = (2, 4, 7, 9)
_SEI_RECOVERY_POINT = 6
_SLICE_HEAD_BYTES = 16


def _h264_kind(data: bytes, extradata: bytes) -> RandomAccess:
    recovery_point = intra = False
    for unit in nal_units(data, extradata):
        kind = nal_kind(unit, hevc=False)
        if kind == _H264_IDR:
            return RandomAccess.IDR
        if kind == _H264_SEI:
            recovery_point = recovery_point or _has_recovery_point(unit)
        elif kind in (_H264_SLICE, _H264_PARTITION_A):
            if not _is_intra_slice(unit):
                # A recovery point may be at a P picture (gradual refresh), but an intra-only access point needs an I
                # picture.
                return RandomAccess.RECOVERY_POINT if recovery_point else RandomAccess.NONE
            intra = True
    if recovery_point:
        return RandomAccess.RECOVERY_POINT
    return RandomAccess.INTRA_ONLY if intra else RandomAccess.NONE


def _has_recovery_point(unit: bytes) -> bool:
    return any(kind == _SEI_RECOVERY_POINT for kind, _ in sei_messages(unit))


def sei_messages(unit: bytes, *, hevc: bool = False) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and payload of each message in an SEI unit (H.264 section 7.3.2.3, H.265 section 7.3.2.4)."""
    data = unit[2 if hevc else 1 :].replace(b"\x00\x00\x03", b"\x00\x00")
    at = 0
    while at + 2 < len(data):
        kind, at = _sei_number(data, at)
        size, at = _sei_number(data, at)
        yield kind, data[at : at + size]
        at += size


def _sei_number(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    while at < len(data) and data[at] == _CONTINUES:
        number, at = number + _CONTINUES, at + 1
    return (number + data[at], at + 1) if at < len(data) else (number, at)


def _is_intra_slice(unit: bytes) -> bool:
    reader = BitReader(unit[1 : 1 + _SLICE_HEAD_BYTES])
    try:
        reader.ue()  # first_mb_in_slice
        return reader.ue() in _H264_I_SLICES
    except EOFError:
        return False
