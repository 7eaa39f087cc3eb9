"""Reads how many pictures a packet shows, and the *sequence* that it begins: size, sampling, depth and colours."""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .parameter_sets import hevc_layer, is_sequence_set
from .vp9 import Vp9Colours, vp9_frames

if TYPE_CHECKING:
    from av.packet import Packet

CodedSequence: TypeAlias = frozenset[object]
"""The raw parameter sets, or the fields of a key frame; used only to compare sequences."""

_H264_SEI, _HEVC_SEI = frozenset({6}), frozenset({39, 40})
_H264_READ, _HEVC_READ = _H264_SEI | {7}, _HEVC_SEI | {33}
"""The units that are read: SEI messages and sequence parameter sets."""
_CAPTIONS: Final = b"\xb5\x00\x31GA94\x03"
"""The beginning of a caption message: the codes of country, provider (ATSC) and type (A/53 part 4, 6.2.3)."""
_H264_IDR: Final = 5
_HEVC_IDR: Final = (19, 20)
_SLICES: Final = 32
_VP8_KEY_BYTES: Final = 10
_VP8_START: Final = b"\x9d\x01\x2a"


class ObuKind(IntEnum):
    """The types of AV1's open bitstream units (OBUs) that are read (AV1 specification section 6.2.2)."""

    SEQUENCE_HEADER = 1
    FRAME_HEADER = 3
    FRAME = 6


class OpenBitstreamUnit(NamedTuple):
    """An OBU of AV1.

    ``layers`` has the OBU's layers as bits of an operating point's mask; 0 if the OBU has no layers.
    """

    kind: int
    payload: bytes
    spatial_layer: int = 0
    layers: int = 0


class PacketHeaders(NamedTuple):
    """Facts from the headers of one packet; damaged headers are not detected."""

    shown: int = 1  # how many pictures the packet shows
    sequence: CodedSequence | None = None  # the sequence that begins at the packet; None if the packet states none
    begins: bool = False  # whether all later pictures can be decoded without the pictures before the packet
    resizes: bool = False  # whether the picture size changes within a sequence; decoders differ in how they handle that
    has_captions: bool = False


_NOTHING_STATED: Final = {begins: PacketHeaders(begins=begins) for begins in (False, True)}
"""The facts of almost all packets of H.264 and HEVC."""


def changes_configuration(packet: "Packet[Any]") -> bool:
    """Return whether the container states another codec configuration from this packet on."""
    # Called up to twice a packet: ``Packet.has_sidedata`` and ``any`` take several times as long.
    for each in packet.iter_sidedata():  # noqa: SIM110
        if each.data_type == "new_extradata":
            return True
    return False


def unit_kinds(units: "Sequence[bytes | memoryview]", *, hevc: bool) -> list[int]:
    """Return the ``nal_unit_type`` of each NAL unit of H.264 or HEVC."""
    return [unit[0] >> 1 & 0x3F for unit in units] if hevc else [unit[0] & 0x1F for unit in units]


def unit_headers(units: "Sequence[bytes | memoryview]", kinds: Sequence[int], *, hevc: bool) -> PacketHeaders:
    """Read an H.264 or HEVC packet, given as NAL units and their kinds; only units that are parsed are copied."""
    if hevc:
        begins = next((kind for kind in kinds if kind < _SLICES), None) in _HEVC_IDR
        messages, read = _HEVC_SEI, _HEVC_READ
    else:
        begins = _H264_IDR in kinds
        messages, read = _H264_SEI, _H264_READ
    if read.isdisjoint(kinds):
        return _NOTHING_STATED[begins]
    found = [(kind, bytes(unit)) for kind, unit in zip(kinds, units, strict=True) if kind in read]
    sets = base_sequence_sets((unit for _, unit in found), hevc=hevc)
    captions = any(kind in messages and _CAPTIONS in unit for kind, unit in found)
    return PacketHeaders(sequence=sets or None, begins=begins, has_captions=captions)


def base_sequence_sets(units: Iterable[bytes], *, hevc: bool) -> CodedSequence:
    """Return the sequence parameter sets among NAL units; for HEVC, only the base layer's sets."""
    sets = (unit for unit in units if is_sequence_set(unit, hevc=hevc))
    return frozenset(unit for unit in sets if not hevc or not hevc_layer(unit))


def vp8_headers(data: bytes) -> PacketHeaders:
    """Read a VP8 packet's header: whether the frame is shown and, for a key frame, its size."""
    shown = data[0] >> 4 & 1 if data else 0
    size = vp8_size(data)
    return PacketHeaders(shown=shown, sequence=None if size is None else frozenset({size}), begins=size is not None)


def vp8_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a key frame of VP8; None for any other frame."""
    if len(data) < _VP8_KEY_BYTES or data[0] & 1 or data[3:6] != _VP8_START:
        return None
    width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (6, 8))
    return (width, height) if width and height else None


def vp9_headers(data: bytes, size: tuple[int, int]) -> PacketHeaders:
    """Read a VP9 packet's headers; ``size`` is the (width, height) of the preceding frames."""
    frames = list(vp9_frames(data))
    shown = sum(frame.is_shown for frame in frames)
    first = frames[0]
    begins = first.colours is not None and first.size is not None
    if begins and first.size is not None:
        size = first.size
    return PacketHeaders(
        shown=shown,
        sequence=vp9_sequence(size, first.colours) if begins else None,
        begins=begins,
        resizes=any(frame.size not in (None, size) for frame in frames),
    )


def vp9_sequence(size: tuple[int, int], colours: Vp9Colours | None) -> CodedSequence:
    """Return the sequence that begins with a key frame of this size and these colours."""
    return frozenset({(*size, colours)})


def av1_headers(data: bytes) -> PacketHeaders:
    """Read a packet of AV1, a temporal unit that shows one picture; frame size overrides are ignored."""
    units = open_bitstream_units(data)
    sets = frozenset(unit.payload for unit in units if unit.kind == ObuKind.SEQUENCE_HEADER)
    return PacketHeaders(sequence=sets or None, begins=bool(sets))


def open_bitstream_units(data: bytes) -> Iterator[OpenBitstreamUnit]:
    """Yield each OBU; an OBU without a size is the last (AV1 specification sections 5.3 and 6.2.3)."""
    at = 0
    while at < len(data):
        header, spatial, layers = data[at], 0, 0
        at += 1
        if header >> 2 & 1:
            extension = data[at] if at < len(data) else 0
            spatial, at = extension >> 3 & 3, at + 1
            layers = 1 << (extension >> 5) | 1 << (spatial + 8)
        size_bytes = len(data) - at
        if header >> 1 & 1:
            size_bytes, at = leb128(data, at)
        yield OpenBitstreamUnit(header >> 3 & 0xF, data[at : at + size_bytes], spatial, layers)
        at += size_bytes


def leb128(data: bytes, at: int) -> tuple[int, int]:
    """Read a number in leb128 form (AV1 specification 4.10.5); return the number and the position after it."""
    value = 0
    for place, byte in enumerate(data[at : at + 8]):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value, at + place + 1
    return value, at + 8
