"""Reads facts about a whole track from the parameter sets of H.264 and HEVC in extradata.

Sources: ITU-T H.264 (08/2021) 7.3.2.1.1, annexes A and E; ITU-T H.265 (08/2021) 7.3.2.2, 7.3.3; ISO/IEC 14496-15.
"""

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile

from ..media.values import PictureSize
from .access_points import BitReader, annex_b, nal_kind, nal_units

_H264_SPS, _HEVC_SPS = 7, 33
_H264_SLICES, _HEVC_SLICES = range(1, 6), range(32)
_HVCC_HEAD_BYTES = 23
_KEPT = 16
"""How many recent codec configurations are cached."""
_READ_BYTES = 4096
"""The most bytes of a sequence parameter set that are read: a damaged set may span megabytes."""


@dataclass(frozen=True, slots=True)
class _SequenceSet:
    number: int
    size: PictureSize
    whole_frames_only: bool  # every picture is coded as a frame, without fields or macroblock pairs
    is_cropped: bool  # whether pictures are cropped at the left or the top
    reorder_frames: int | None  # None if not stated
    fields: "H264Fields | None" = None  # None for HEVC


@dataclass(frozen=True, slots=True, kw_only=True)
class H264Fields:
    """What an H.264 sequence parameter set states for reading field orders from slices and picture timing messages."""

    frame_num_bits: int
    has_plane_numbers: bool  # each slice names its colour plane (``separate_colour_plane_flag``)
    adapts_by_pair: bool  # macroblock pairs are coded as frame or fields (``mb_adaptive_frame_field_flag``)
    delay_bits: int = 0  # bits before ``pic_struct`` in a picture timing message
    states_structure: bool = False  # picture timing messages have a ``pic_struct``


def max_reorder_frames(codec: str, extradata: bytes) -> int | None:
    """Return the largest difference between coding order and presentation order, in frames; None if not stated."""
    stated = (found.reorder_frames for found in _codec_sequences(codec, extradata))
    return next((value for value in stated if value is not None), None)


def has_whole_frames_only(extradata: bytes, *, hevc: bool = False) -> bool | None:
    """Return whether a stream promises to code every picture as a frame, without fields or macroblock pairs.

    The promise is read from ``frame_mbs_only_flag`` of H.264 (section 7.4.2.1.1) and the optional
    ``general_frame_only_constraint_flag`` of HEVC (section 7.4.4). Return None if there is no sequence parameter set.
    """
    found = _sequences(extradata, hevc=hevc)
    return all(sequence.whole_frames_only for sequence in found) if found else None


def crops_left_or_top(codec: str, extradata: bytes) -> bool:
    """Return whether pictures are cropped at the left or the top (H.264 section 7.4.2.1.1, H.265 section 7.4.3.2.1)."""
    return any(sequence.is_cropped for sequence in _codec_sequences(codec, extradata))


@lru_cache(_KEPT)
def annex_b_headers(extradata: bytes, *, hevc: bool) -> bytes:
    """Return the parameter sets of ``extradata`` in Annex B form; a decoder needs them before the first picture."""
    return annex_b(configuration_units(extradata, hevc=hevc))


def sequence_sets(extradata: bytes, *, hevc: bool) -> Iterator[bytes]:
    """Yield the sequence parameter sets of an encoder's or a container's extradata, as NAL units."""
    return (unit for unit in configuration_units(extradata, hevc=hevc) if is_sequence_set(unit, hevc=hevc))


def is_sequence_set(unit: bytes, *, hevc: bool) -> bool:
    """Return whether a NAL unit is a sequence parameter set."""
    return nal_kind(unit, hevc=hevc) == (_HEVC_SPS if hevc else _H264_SPS)


def packet_sequence_sets(packet: bytes, extradata: bytes, *, hevc: bool) -> bytes:
    """Return the sequence parameter sets before a packet's picture, in Annex B form; b"" if there are none."""
    slices = _HEVC_SLICES if hevc else _H264_SLICES
    units = nal_units(packet, extradata, hevc=hevc)
    ahead = takewhile(lambda unit: nal_kind(unit, hevc=hevc) not in slices, units)
    return annex_b(unit for unit in ahead if is_sequence_set(unit, hevc=hevc))


def hevc_layer(unit: bytes) -> int:
    """Return ``nuh_layer_id`` of an HEVC NAL unit (H.265 section 7.3.1.2)."""
    return (unit[0] & 1) << 5 | unit[1] >> 3 if len(unit) > 1 else 0


def configuration_units(extradata: bytes, *, hevc: bool) -> Iterator[bytes]:
    """Yield the NAL units of extradata from an encoder or a container, in Annex B, avcC or hvcC form."""
    if not extradata:
        return
    units = nal_units(extradata)
    if extradata[0] == 1:
        units = _hvcc_units(extradata) if hevc else _avcc_units(extradata)
    yield from filter(None, units)


def _avcc_units(data: bytes) -> Iterator[bytes]:
    at = 5
    for mask in (0x1F, 0xFF):  # the counts of sequence parameter sets and of picture parameter sets
        count = data[at] & mask if len(data) > at else 0
        at = yield from _sized_units(data, at + 1, count)


def _hvcc_units(data: bytes) -> Iterator[bytes]:
    arrays, at = (data[_HVCC_HEAD_BYTES - 1], _HVCC_HEAD_BYTES) if len(data) > _HVCC_HEAD_BYTES else (0, 0)
    for _ in range(arrays):
        count = int.from_bytes(data[at + 1 : at + 3], "big")
        at = yield from _sized_units(data, at + 3, count)


def _sized_units(data: bytes, at: int, count: int) -> Generator[bytes, None, int]:
    """Yield the units, each of which follows its length in two bytes; return the position after the last unit."""
    for _ in range(count):
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin], "big")
        yield data[begin:at]
    return at


@lru_cache(_KEPT)  # cached because all segments share a few configurations
def _sequences(extradata: bytes, *, hevc: bool) -> tuple[_SequenceSet, ...]:
    found = []
    for unit in sequence_sets(extradata, hevc=hevc):
        with suppress(EOFError):
            # The sets of HEVC's other layers, which are not decoded, have another syntax (annex F).
            if not hevc or not hevc_layer(unit):
                found.append(_read_set(unit, hevc=hevc))
    return tuple(found)


def _codec_sequences(codec: str, extradata: bytes) -> tuple[_SequenceSet, ...]:
    return _sequences(extradata, hevc=codec == "hevc") if codec in ("h264", "hevc") else ()


def _read_set(unit: bytes, *, hevc: bool) -> _SequenceSet:
    return _hevc_sps(BitReader(unit[2:_READ_BYTES])) if hevc else _h264_sps(BitReader(unit[1:_READ_BYTES]))


_H264_WITH_CHROMA = frozenset({100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135})
_YUV400, _YUV420, _YUV422, _YUV444 = range(4)
_CHROMA_SAMPLES = {_YUV420: (2, 2), _YUV422: (2, 1)}
"""The luma columns and rows per chroma sample, the units of cropping; (1, 1) for other formats (H.264 table 6-1)."""
_EXTENDED_SAR = 255
_SAMPLE_SHAPES = (
    *((1, 1), (12, 11), (10, 11), (16, 11), (40, 33), (24, 11), (20, 11), (32, 11), (80, 33), (18, 11), (15, 11)),
    *((64, 33), (160, 99), (4, 3), (3, 2), (2, 1)),
)
"""The numbered sample aspect ratios, from 1 on (H.264 table E-1)."""


def sequence_set_size(unit: bytes, *, hevc: bool) -> tuple[int, PictureSize] | None:
    """Return a sequence parameter set's id and the cropped size of its pictures; None if the set is truncated."""
    try:
        found = _read_set(unit, hevc=hevc)
    except EOFError:
        return None
    return (found.number, found.size) if min(found.size.width, found.size.height) > 0 else None


@lru_cache(_KEPT)
def h264_fields(unit: bytes) -> H264Fields | None:
    """Return how a sequence parameter set of H.264 codes fields; None if every picture is a whole frame."""
    with suppress(EOFError):
        found = _read_set(unit, hevc=False)
        return None if found.whole_frames_only else found.fields
    return None


def _h264_sps(reader: BitReader) -> _SequenceSet:
    """Read a sequence parameter set (H.264 section 7.3.2.1.1) with its VUI."""
    profile = reader.bits(8)
    reader.skip(16)  # constraints and level
    number = reader.ue()
    chroma, has_plane_numbers = _h264_chroma(reader) if profile in _H264_WITH_CHROMA else (_YUV420, False)
    frame_num_bits = reader.ue() + 4
    _skip_h264_order_count(reader)
    reader.ue()  # max_num_ref_frames
    reader.skip(1)
    columns, rows = reader.ue() + 1, reader.ue() + 1  # the size in macroblocks, or in pairs of macroblocks
    whole_frames_only = reader.flag()
    adapts_by_pair = not whole_frames_only and reader.flag()
    reader.skip(1)
    lines = 1 if whole_frames_only else 2
    window = _window(reader, chroma, lines)
    vui = _h264_vui(reader) if reader.flag() else _H264Vui()
    size = window.shown(columns * 16, rows * 16 * lines, vui.shape)
    fields = H264Fields(
        frame_num_bits=frame_num_bits,
        has_plane_numbers=has_plane_numbers,
        adapts_by_pair=adapts_by_pair,
        delay_bits=vui.delay_bits,
        states_structure=vui.states_structure,
    )
    return _SequenceSet(number, size, whole_frames_only, window.is_cropped, vui.reorder_frames, fields)


@dataclass(frozen=True, slots=True)
class _Window:
    """The cropped columns (left and right) and rows (top and bottom)."""

    columns: int = 0
    rows: int = 0
    is_cropped: bool = False  # whether pictures are cropped at the left or the top

    def shown(self, width: int, height: int, shape: Fraction | None) -> PictureSize:
        return PictureSize(width - self.columns, height - self.rows, shape)


def _window(reader: BitReader, chroma: int, lines: int = 1) -> _Window:
    if not reader.flag():
        return _Window()
    left, right, top, bottom = (reader.ue() for _ in range(4))
    across, down = _CHROMA_SAMPLES.get(chroma, (1, 1))
    return _Window((left + right) * across, (top + bottom) * down * lines, left > 0 or top > 0)


def _h264_chroma(reader: BitReader) -> tuple[int, bool]:
    """Read the chroma format (4:0:0 for separate planes) and whether planes are separate; skip other fields."""
    chroma = reader.ue()
    separate = chroma == _YUV444 and reader.flag()
    reader.ue()
    reader.ue()  # bit depths
    reader.skip(1)
    if reader.flag():
        for size in [16] * 6 + [64] * (6 if chroma == _YUV444 else 2):
            if reader.flag():
                _skip_scaling_list(reader, size)
    return _YUV400 if separate else chroma, separate


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


@dataclass(frozen=True, slots=True)
class _H264Vui:
    shape: Fraction | None = None
    delay_bits: int = 0
    states_structure: bool = False
    reorder_frames: int | None = None


def _h264_vui(reader: BitReader) -> _H264Vui:
    """Read the video usability information (H.264 annex E.1.1)."""
    shape = _sample_shape(reader) if reader.flag() else None
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
    delays = [_h264_delay_bits(reader) for _ in range(2)]  # HRD parameters: first for NAL units, then for pictures
    if any(delays):
        reader.skip(1)
    states_structure = reader.flag()
    if not reader.flag():
        return _H264Vui(shape, max(delays), states_structure)
    reader.skip(1)
    for _ in range(4):
        reader.ue()
    return _H264Vui(shape, max(delays), states_structure, reader.ue())


def _sample_shape(reader: BitReader) -> Fraction | None:
    number = reader.bits(8)
    if number == _EXTENDED_SAR:
        across, down = reader.bits(16), reader.bits(16)
        return Fraction(across, down) if across and down else None
    return Fraction(*_SAMPLE_SHAPES[number - 1]) if 0 < number <= len(_SAMPLE_SHAPES) else None


def _h264_delay_bits(reader: BitReader) -> int:
    """Read the HRD parameters (annex E.1.2); return how many bits a picture's two delays take, 0 if absent."""
    if not reader.flag():
        return 0
    count = reader.ue() + 1
    reader.skip(8)
    for _ in range(count):
        reader.ue()
        reader.ue()
        reader.skip(1)
    reader.skip(5)  # the length of a buffering period's delay
    delay_bits = reader.bits(5) + 1 + reader.bits(5) + 1
    reader.skip(5)
    return delay_bits


def _hevc_sps(reader: BitReader) -> _SequenceSet:
    """Read a sequence parameter set (H.265 section 7.3.2.2.1) up to the highest sub-layer's reorder limit."""
    reader.skip(4)
    sub_layers = reader.bits(3)  # minus 1
    reader.skip(1)
    whole_frames_only = _frame_only_constraint(reader, sub_layers)
    number = reader.ue()
    chroma = reader.ue()
    if chroma == _YUV444 and reader.flag():
        chroma = _YUV400
    width, height = reader.ue(), reader.ue()
    window = _window(reader, chroma)
    reader.ue()
    reader.ue()  # bit depths
    reader.ue()  # log2_max_pic_order_cnt
    all_sub_layers = reader.flag()
    reorder = 0
    for _ in range(sub_layers + 1 if all_sub_layers else 1):
        reader.ue()  # max_dec_pic_buffering
        reorder = reader.ue()
        reader.ue()  # max_latency_increase
    return _SequenceSet(number, window.shown(width, height, None), whole_frames_only, window.is_cropped, reorder)


def _frame_only_constraint(reader: BitReader, sub_layers: int) -> bool:
    """Read H.265 section 7.3.3 (profile, tier and level), and return its ``general_frame_only_constraint_flag``."""
    reader.skip(43)
    frame_only = reader.flag()
    reader.skip(52)
    present = [(reader.flag(), reader.flag()) for _ in range(sub_layers)]
    if sub_layers:
        reader.skip(2 * (8 - sub_layers))
    for profile, level in present:
        reader.skip(88 * profile + 8 * level)
    return frame_only
