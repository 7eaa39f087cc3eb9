"""Reading the little of H.264 and HEVC bitstreams that cutting and joining need.

Two questions are answered here, from headers alone. Can decoding start at this packet, and what comes with it
(``random_access_kind``)? And by how many frames does a stream reorder its pictures, as its parameter sets state it
(``max_reorder_frames``)? Sources: ITU-T H.264 (08/2021) sections 7.3, 7.4.1.2 and annexes A and E; ITU-T H.265
(08/2021) sections 7.3 and 7.4.2.2; ISO/IEC 14496-15 for the length-prefixed form.
"""

from collections.abc import Iterator
from enum import Enum

__all__ = ["BitReader", "RandomAccess", "max_reorder_frames", "nal_units", "random_access_kind"]


class RandomAccess(Enum):
    """What a packet offers a decoder that starts at it."""

    IDR = "idr"
    """Nothing after it, in either order, refers to anything before it."""
    CRA = "cra"
    """HEVC clean random access: pictures that follow it but are shown before it may be undecodable."""
    BLA = "bla"
    """HEVC broken link: as CRA, and the pictures before it belong to something else."""
    RECOVERY_POINT = "recovery-point"
    """H.264: the pictures are right from here on in presentation order, by the encoder's word."""
    INTRA_ONLY = "intra-only"
    """H.264: coded without reference to others, but nothing is promised about what follows."""
    FLAGGED = "flagged"
    """The codec's packets are not read here: the container's keyframe flag is all there is."""
    NONE = "none"
    """Decoding cannot start here, whatever a container's flag says."""


class BitReader:
    """Reads an H.264 or HEVC raw byte sequence payload, most significant bit first.

    Emulation prevention bytes are removed on the way in. Reading past the end raises ``EOFError``.
    """

    def __init__(self, payload: bytes) -> None:
        data = payload.replace(b"\x00\x00\x03", b"\x00\x00")
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
        """Pass over ``count`` bits."""
        self.bits(count)

    def ue(self) -> int:
        """Read an unsigned Exp-Golomb number (ue(v), H.264 section 9.1)."""
        zeros = 0
        while not self.flag():
            zeros += 1
        return (1 << zeros) - 1 + self.bits(zeros)

    def se(self) -> int:
        """Read a signed Exp-Golomb number (se(v))."""
        code = self.ue()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def nal_units(data: bytes, extradata: bytes = b"", *, hevc: bool = False) -> Iterator[bytes]:
    """Yield the NAL units of a packet, in the form its extradata announces: length-prefixed, else Annex B.

    A truncated last unit is yielded as far as it goes.
    """
    length_bytes = _length_size(extradata, hevc=hevc)
    if length_bytes is None:
        yield from _annex_b(data)
        return
    at = 0
    while at + length_bytes < len(data):
        size = int.from_bytes(data[at : at + length_bytes], "big")
        at += length_bytes
        if size:
            yield data[at : at + size]
        at += size


def _length_size(extradata: bytes, *, hevc: bool) -> int | None:
    """Return how many bytes a unit's length takes; None is Annex B (avcC and hvcC begin with 1, start codes with 0)."""
    if not extradata or extradata[0] != 1:
        return None
    at = 21 if hevc else 4
    return (extradata[at] & 3) + 1 if len(extradata) > at else None


def _annex_b(data: bytes) -> Iterator[bytes]:
    start = data.find(b"\x00\x00\x01")
    while start >= 0:
        end = data.find(b"\x00\x00\x01", start + 3)
        unit = data[start + 3 : end if end >= 0 else len(data)]
        # Zeros before the next start code belong to it, and a unit never ends in one (H.264 section 7.4.1).
        unit = unit.rstrip(b"\x00")
        if unit:
            yield unit
        start = end


def random_access_kind(codec: str, data: bytes, extradata: bytes = b"") -> RandomAccess:
    """Tell what the packet ``data`` offers a decoder that starts at it; ``codec`` is FFmpeg's canonical name.

    Only NAL headers are read, and for H.264 the first bits of slices. ``extradata`` tells how units are delimited.
    """
    if codec == "hevc":
        return _hevc_kind(data, extradata)
    if codec == "h264":
        return _h264_kind(data, extradata)
    return RandomAccess.FLAGGED


def _hevc_kind(data: bytes, extradata: bytes) -> RandomAccess:
    for unit in nal_units(data, extradata, hevc=True):
        kind = unit[0] >> 1 & 0x3F
        if kind > _HEVC_LAST_SLICE:
            continue
        if kind in _HEVC_BLA:
            return RandomAccess.BLA
        if kind in _HEVC_IDR:
            return RandomAccess.IDR
        return RandomAccess.CRA if kind == _HEVC_CRA else RandomAccess.NONE
    return RandomAccess.NONE


_HEVC_BLA, _HEVC_IDR, _HEVC_CRA, _HEVC_LAST_SLICE = (16, 17, 18), (19, 20), 21, 31
_HEVC_SPS = 33
_H264_SLICE, _H264_PARTITION_A, _H264_IDR, _H264_SEI, _H264_SPS = 1, 2, 5, 6, 7
_H264_I_SLICES = (2, 4, 7, 9)
_SEI_RECOVERY_POINT = 6
_SLICE_HEAD_BYTES = 16


def _h264_kind(data: bytes, extradata: bytes) -> RandomAccess:
    recovery_point = False
    intra = False
    for unit in nal_units(data, extradata):
        kind = unit[0] & 0x1F
        if kind == _H264_IDR:
            return RandomAccess.IDR
        if kind == _H264_SEI:
            recovery_point = recovery_point or _has_recovery_point(unit)
        elif kind in (_H264_SLICE, _H264_PARTITION_A):
            if not _is_intra_slice(unit):
                # A recovery point may stand at a P picture (gradual refresh); an "intra only" one may not.
                return RandomAccess.RECOVERY_POINT if recovery_point else RandomAccess.NONE
            intra = True
    if recovery_point:
        return RandomAccess.RECOVERY_POINT
    return RandomAccess.INTRA_ONLY if intra else RandomAccess.NONE


def _has_recovery_point(unit: bytes) -> bool:
    """Walk the SEI messages of a unit (H.264 section 7.3.2.3)."""
    data = unit[1:].replace(b"\x00\x00\x03", b"\x00\x00")
    at = 0
    while at + 2 < len(data):
        kind, at = _sei_number(data, at)
        size, at = _sei_number(data, at)
        if kind == _SEI_RECOVERY_POINT:
            return True
        at += size
    return False


def _sei_number(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    while at < len(data) and data[at] == 0xFF:  # noqa: PLR2004 - each 0xFF adds 255 and continues
        number, at = number + 255, at + 1
    return (number + data[at], at + 1) if at < len(data) else (number, at)


def _is_intra_slice(unit: bytes) -> bool:
    reader = BitReader(unit[1 : 1 + _SLICE_HEAD_BYTES])
    try:
        reader.ue()  # first_mb_in_slice
        return reader.ue() in _H264_I_SLICES
    except EOFError:
        return False


def max_reorder_frames(codec: str, extradata: bytes) -> int | None:
    """Return by how many frames at most the stream's coding order differs from its presentation order.

    ``extradata`` is Annex B or avcC / hvcC. None where no parameter set states it (the VUI of H.264 is optional).
    """
    if codec == "hevc":
        return _first(_hevc_sps_reorder(unit) for unit in _parameter_sets(extradata, hevc=True))
    if codec == "h264":
        return _first(_h264_sps_reorder(unit) for unit in _parameter_sets(extradata, hevc=False))
    return None


def _first(values: Iterator[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


def _parameter_sets(extradata: bytes, *, hevc: bool) -> Iterator[bytes]:
    """Yield the sequence parameter sets of an encoder's or a container's extradata."""
    if not extradata:
        return
    units = _annex_b(extradata)
    if extradata[0] == 1:
        units = _hvcc_units(extradata) if hevc else _avcc_units(extradata)
    for unit in filter(None, units):
        if (unit[0] >> 1 & 0x3F) == _HEVC_SPS if hevc else (unit[0] & 0x1F) == _H264_SPS:
            yield unit


def _avcc_units(data: bytes) -> Iterator[bytes]:
    count, at = (data[5] & 0x1F, 6) if len(data) > 6 else (0, 0)  # noqa: PLR2004 - the fixed head of avcC
    for _ in range(count):
        size = int.from_bytes(data[at : at + 2], "big")
        yield data[at + 2 : at + 2 + size]
        at += 2 + size


def _hvcc_units(data: bytes) -> Iterator[bytes]:
    arrays, at = (data[22], 23) if len(data) > 23 else (0, 0)  # noqa: PLR2004 - the fixed head of hvcC
    for _ in range(arrays):
        count = int.from_bytes(data[at + 1 : at + 3], "big")
        at += 3
        for _ in range(count):
            size = int.from_bytes(data[at : at + 2], "big")
            yield data[at + 2 : at + 2 + size]
            at += 2 + size


def _h264_sps_reorder(unit: bytes) -> int | None:
    try:
        return _h264_sps(BitReader(unit[1:]))
    except EOFError:
        return None


_H264_WITH_CHROMA = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_YUV444 = 3


def _h264_sps(reader: BitReader) -> int | None:
    """Read a sequence parameter set (H.264 section 7.3.2.1.1) up to its VUI."""
    profile = reader.bits(8)
    reader.skip(16)  # constraints and level
    reader.ue()  # its id
    if profile in _H264_WITH_CHROMA:
        _skip_h264_chroma(reader)
    reader.ue()  # log2_max_frame_num
    _skip_h264_order_count(reader)
    reader.ue()  # max_num_ref_frames
    reader.skip(1)
    reader.ue()
    reader.ue()  # width and height
    if not reader.flag():  # frame_mbs_only
        reader.skip(1)
    reader.skip(1)
    if reader.flag():
        for _ in range(4):
            reader.ue()  # cropping
    return _h264_vui(reader) if reader.flag() else None


def _skip_h264_chroma(reader: BitReader) -> None:
    chroma = reader.ue()
    if chroma == _YUV444:
        reader.skip(1)
    reader.ue()
    reader.ue()  # bit depths
    reader.skip(1)
    if reader.flag():
        for index in range(12 if chroma == _YUV444 else 8):
            if reader.flag():
                _skip_scaling_list(reader, 16 if index < 6 else 64)  # noqa: PLR2004 - six 4x4 lists come first


def _skip_scaling_list(reader: BitReader, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + reader.se()) % 256
        last = following or last


def _skip_h264_order_count(reader: BitReader) -> None:
    kind = reader.ue()
    if kind == 0:
        reader.ue()
    elif kind == 1:
        reader.skip(1)
        reader.se()
        reader.se()
        for _ in range(reader.ue()):
            reader.se()


def _h264_vui(reader: BitReader) -> int | None:
    """Read the video usability information (H.264 annex E.1.1) up to its bitstream restrictions."""
    if reader.flag() and reader.bits(8) == 255:  # noqa: PLR2004 - Extended_SAR
        reader.skip(32)
    if reader.flag():  # overscan
        reader.skip(1)
    if reader.flag():  # video signal type
        reader.skip(4)
        if reader.flag():
            reader.skip(24)
    if reader.flag():  # chroma location
        reader.ue()
        reader.ue()
    if reader.flag():  # timing
        reader.skip(65)
    nal, vcl = _skip_h264_hrd(reader), _skip_h264_hrd(reader)
    if nal or vcl:
        reader.skip(1)
    reader.skip(1)  # pic_struct_present
    if not reader.flag():
        return None
    reader.skip(1)
    for _ in range(4):
        reader.ue()
    return reader.ue()


def _skip_h264_hrd(reader: BitReader) -> bool:
    if not reader.flag():
        return False
    count = reader.ue() + 1
    reader.skip(8)
    for _ in range(count):
        reader.ue()
        reader.ue()
        reader.skip(1)
    reader.skip(20)
    return True


def _hevc_sps_reorder(unit: bytes) -> int | None:
    try:
        return _hevc_sps(BitReader(unit[2:]))
    except EOFError:
        return None


def _hevc_sps(reader: BitReader) -> int:
    """Read a sequence parameter set (H.265 section 7.3.2.2.1) up to the reorder limits of its highest sub-layer."""
    reader.skip(4)
    sub_layers = reader.bits(3)  # minus 1
    reader.skip(1)
    _skip_profile_tier_level(reader, sub_layers)
    reader.ue()  # its id
    if reader.ue() == _YUV444:
        reader.skip(1)
    reader.ue()
    reader.ue()  # width and height
    if reader.flag():
        for _ in range(4):
            reader.ue()  # conformance window
    reader.ue()
    reader.ue()  # bit depths
    reader.ue()  # log2_max_pic_order_cnt
    all_sub_layers = reader.flag()
    reorder = 0
    for _ in range(sub_layers + 1 if all_sub_layers else 1):
        reader.ue()  # max_dec_pic_buffering
        reorder = reader.ue()
        reader.ue()  # max_latency_increase
    return reorder


def _skip_profile_tier_level(reader: BitReader, sub_layers: int) -> None:
    """Pass over H.265 section 7.3.3."""
    reader.skip(96)
    present = [(reader.flag(), reader.flag()) for _ in range(sub_layers)]
    if sub_layers:
        reader.skip(2 * (8 - sub_layers))
    for profile, level in present:
        reader.skip(88 * profile + 8 * level)
