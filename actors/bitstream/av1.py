"""Reads the size of AV1 key frames from the sequence header and the beginning of the frame header.

Source: AV1 Bitstream & Decoding Process Specification, 5.5, 5.9.2, 5.9.5 to 5.9.8 and 7.18.5.
"""

from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ..media.values import PictureSize
from .access_points import BitReader
from .packet_headers import ObuKind, open_bitstream_units

_HEAD_BYTES: Final = 256
"""How many bytes of a header are read; all needed fields are within them."""
_SELECTED: Final = 2
"""The value of a coding tool's field if each frame header states whether the tool is on."""
_KEY_FRAME: Final = 0
_REFRESHES_ALL: Final = 0xFF
_TIERED_LEVEL: Final = 7
_FRAMES: Final = frozenset({ObuKind.FRAME_HEADER, ObuKind.FRAME})


@dataclass(frozen=True, slots=True, kw_only=True)
class Av1Sequence:
    """The fields of a sequence header that are needed to find a key frame's size.

    Lengths are in bits; 0 means that the field is absent.
    """

    is_still: bool = False
    time_bits: int = 0
    removal_bits: int = 0
    operating_points: tuple[tuple[int, bool], ...] = ()  # (layers, whether frames state removal times)
    side_bits: tuple[int, int] = (0, 0)
    size: tuple[int, int] = (0, 0)
    frame_id_bits: int = 0
    screen_content: int = _SELECTED
    integer_vectors: int = _SELECTED
    order_bits: int = 0
    has_superres: bool = False


def av1_sequence(data: bytes) -> Av1Sequence | None:
    """Return the last complete sequence header in a packet, or in the units of an av1C; None if there is no header."""
    found = None
    for unit in open_bitstream_units(data):
        if unit.kind == ObuKind.SEQUENCE_HEADER:
            with suppress(EOFError):
                found = _sequence(BitReader(unit.payload[:_HEAD_BYTES], is_escaped=False))
    return found


def av1_key_size(data: bytes, sequence: Av1Sequence) -> PictureSize | None:
    """Return the shown size of a key frame's largest spatial layer; None if there is no key frame."""
    size = None
    for unit in open_bitstream_units(data):
        if unit.kind not in _FRAMES:
            continue
        if unit.spatial_layer:
            return PictureSize(*sequence.size)
        with suppress(EOFError):
            size = size or _key_size(BitReader(unit.payload[:_HEAD_BYTES], is_escaped=False), sequence, unit.layers)
    return size


def _sequence(reader: BitReader) -> Av1Sequence:
    reader.skip(3 + 1)  # profile, still_picture
    if is_still := reader.flag():
        reader.skip(5)
        delay_bits = removal_bits = time_bits = 0
        points: tuple[tuple[int, bool], ...] = ()
    else:
        delay_bits, removal_bits, time_bits = _timing(reader)
        points = _operating_points(reader, delay_bits)
    side_bits = reader.bits(4) + 1, reader.bits(4) + 1
    size = reader.bits(side_bits[0]) + 1, reader.bits(side_bits[1]) + 1
    frame_id_bits = reader.bits(4) + 2 + reader.bits(3) + 1 if not is_still and reader.flag() else 0
    reader.skip(3)  # 128x128 superblocks, filter_intra, intra_edge_filter
    tools = (_SELECTED, _SELECTED, 0) if is_still else _tools(reader)
    return Av1Sequence(
        is_still=is_still,
        time_bits=time_bits,
        removal_bits=removal_bits,
        operating_points=points,
        side_bits=side_bits,
        size=size,
        frame_id_bits=frame_id_bits,
        screen_content=tools[0],
        integer_vectors=tools[1],
        order_bits=tools[2],
        has_superres=reader.flag(),
    )


def _timing(reader: BitReader) -> tuple[int, int, int]:
    """Return the lengths, in bits, of three fields: buffer delay, removal time and presentation time of a frame."""
    if not reader.flag():
        return 0, 0, 0
    reader.skip(64)
    is_regular = reader.flag()
    if is_regular:
        reader.ue()
    if not reader.flag():
        return 0, 0, 0
    delay_bits = reader.bits(5) + 1
    reader.skip(32)
    removal_bits, time_bits = reader.bits(5) + 1, reader.bits(5) + 1
    return delay_bits, removal_bits, 0 if is_regular else time_bits


def _operating_points(reader: BitReader, delay_bits: int) -> tuple[tuple[int, bool], ...]:
    has_delays = reader.flag()
    points = []
    for _ in range(reader.bits(5) + 1):
        layers = reader.bits(12)
        if reader.bits(5) > _TIERED_LEVEL:
            reader.skip(1)
        is_modelled = bool(delay_bits) and reader.flag()
        if is_modelled:
            reader.skip(2 * delay_bits + 1)
        if has_delays and reader.flag():
            reader.skip(4)
        points.append((layers, is_modelled))
    return tuple(points)


def _tools(reader: BitReader) -> tuple[int, int, int]:
    """Return the fields ``screen_content``, ``integer_vectors`` and ``order_bits``."""
    reader.skip(4)  # inter-intra, masks, warps, dual filters
    has_order = reader.flag()
    if has_order:
        reader.skip(2)
    screen_content = _SELECTED if reader.flag() else reader.bits(1)
    integer_vectors = _SELECTED
    if screen_content and not reader.flag():
        integer_vectors = reader.bits(1)
    return screen_content, integer_vectors, reader.bits(3) + 1 if has_order else 0


def _key_size(reader: BitReader, sequence: Av1Sequence, layers: int) -> PictureSize | None:
    is_shown = True
    if not sequence.is_still:
        if reader.flag() or reader.bits(2) != _KEY_FRAME:  # show_existing_frame, frame_type
            return None
        is_shown = reader.flag()
        # A shown frame states a presentation time; any other frame states showable_frame and error_resilient_mode.
        reader.skip(sequence.time_bits if is_shown else 2)
    reader.skip(1)  # disable_cdf_update
    if sequence.screen_content and (sequence.screen_content != _SELECTED or reader.flag()):
        reader.skip(int(sequence.integer_vectors == _SELECTED))
    reader.skip(sequence.frame_id_bits)
    overrides = not sequence.is_still and reader.flag()
    reader.skip(sequence.order_bits)
    if sequence.removal_bits and reader.flag():
        timed = (wanted for wanted, is_timed in sequence.operating_points if is_timed)
        reader.skip(sequence.removal_bits * sum(not wanted or wanted & layers == layers for wanted in timed))
    if not is_shown and reader.bits(8) != _REFRESHES_ALL:  # if a reference frame is kept, order hints follow
        return None
    width, height = (reader.bits(bits) + 1 for bits in sequence.side_bits) if overrides else sequence.size
    if sequence.has_superres and reader.flag():
        reader.skip(3)  # the frame is coded narrower than it is shown
    return PictureSize(width, height, _sample_shape(reader, width, height))


def _sample_shape(reader: BitReader, width: int, height: int) -> Fraction | None:
    """Return the sample aspect ratio that follows from the render size; None if no render size is stated."""
    if not reader.flag():
        return None
    across, down = reader.bits(16) + 1, reader.bits(16) + 1
    return Fraction(across * height, down * width)
