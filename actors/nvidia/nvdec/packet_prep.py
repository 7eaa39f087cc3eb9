"""Turns a container's packets into input for NVDEC: Annex B units, parameter sets, and the pictures to expect.

Measured on an H200 (docs/nvdec.md): parameter sets must precede a range; RASL pictures after a CRA or BLA that begins a
range are left out; VP9's timestamps are one picture late, so pictures of VP8, VP9 and AV1, which come in packet order,
are identified by counting. Source: ITU-T H.265 (08/2021) sections 7.4.2.2 and 8.1.3.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...bitstream.access_points import annex_b, annex_b_units, prefix_bytes, prefixed_units
from ...bitstream.packet_headers import (
    CodedSequence,
    PacketHeaders,
    av1_headers,
    base_sequence_sets,
    unit_headers,
    unit_kinds,
    vp8_headers,
    vp9_headers,
)
from ...bitstream.parameter_sets import annex_b_headers, sequence_sets

_RASL: Final = (8, 9)
_BROKEN_LINKS, _CLEAN_RANDOM_ACCESS, _LAST_IRAP = (16, 17, 18), 21, 23
_FIRST_IRAP = 16
_SLICES: Final = 32
_AVCC_OR_HVCC: Final = b"\x01"
_AV1C: Final = b"\x81"
_AV1C_HEAD_BYTES: Final = 4
_ENDS: Final = frozenset({36, 37})
"""The NAL units that end a coded video sequence and a bitstream."""


class Chunk(NamedTuple):
    """A packet in NVDEC's form. ``number`` is in demux order; ``is_new`` means that it states new parameters."""

    number: int
    payload: bytes
    is_new: bool
    headers: PacketHeaders


class Feeder:
    """Prepares the packets of one range. Used once.

    ``extradata`` is the track's codec configuration, which says how units are delimited. Set ``size``, the pictures'
    (width, height), again when it changes. ``sequence`` holds the pictures' parameters if ``extradata`` does not.
    """

    def __init__(
        self, codec: str, extradata: bytes, size: tuple[int, int] = (0, 0), sequence: CodedSequence | None = None
    ) -> None:
        self._codec = codec
        self._extradata = extradata
        self.size = size
        self.sequence = sequence or _stated(codec, extradata)
        """The parameter sets of the following pictures; if there are several, each picture chooses one."""
        self._is_hevc = codec == "hevc"
        self._has_units = codec in ("h264", "hevc")
        self._prefix_bytes = prefix_bytes(extradata, hevc=self._is_hevc) if self._has_units else None
        self._is_annex_b = extradata[:1] != _AVCC_OR_HVCC
        self._begun = False
        self._drops_leading = False
        self._starts_sequence = True

    @property
    def counts_pictures(self) -> bool:
        """Whether pictures come in the order of the packets, so that counting identifies the pictures."""
        return self._codec in ("vp8", "vp9", "av1")

    def chunk(self, number: int, packet: "bytes | memoryview") -> Chunk | None:
        """Return the chunk to feed for a packet; None if NVDEC must not see it. Keeps no reference to ``packet``."""
        if self._prefix_bytes is not None:
            view = memoryview(packet)
            return self._unit_chunk(number, view, list(prefixed_units(view, self._prefix_bytes)))
        data = bytes(packet)
        if self._has_units:
            return self._unit_chunk(number, data, list(annex_b_units(data)))
        headers = self._headers(data)
        return Chunk(number, data, self._is_new(headers.sequence), headers)

    def _headers(self, data: bytes) -> PacketHeaders:
        if self._codec == "vp8":
            return vp8_headers(data)
        if self._codec == "vp9":
            return vp9_headers(data, self.size)
        return av1_headers(data) if self._codec == "av1" else PacketHeaders()

    def _unit_chunk(
        self, number: int, data: "bytes | memoryview", units: "Sequence[bytes | memoryview]"
    ) -> Chunk | None:
        kinds = unit_kinds(units, hevc=self._is_hevc)
        if self._is_hevc and self._is_undecodable(kinds):
            return None
        headers = unit_headers(units, kinds, hevc=self._is_hevc)
        is_new = self._is_new(headers.sequence)
        payload = bytes(data) if self._is_annex_b else annex_b(units)
        # A new sequence may be decoded by another session, which has no parameters yet.
        if not self._begun or (is_new and headers.begins):
            payload = annex_b_headers(self._extradata, hevc=self._is_hevc) + payload
        self._begun = True
        return Chunk(number, payload, is_new, headers)

    def _is_new(self, stated: CodedSequence | None) -> bool:
        if stated is None or stated <= self.sequence:
            return False
        self.sequence = stated
        return True

    def _is_undecodable(self, kinds: Sequence[int]) -> bool:
        """Return whether a picture refers to pictures before a point where decoding restarts (H.265 section 8.1.3)."""
        first = next((place for place, kind in enumerate(kinds) if kind < _SLICES), len(kinds))
        self._starts_sequence = self._starts_sequence or not _ENDS.isdisjoint(kinds[:first])
        if first == len(kinds):
            return False
        kind = kinds[first]
        if _FIRST_IRAP <= kind <= _LAST_IRAP:
            self._drops_leading = kind in _BROKEN_LINKS or (kind == _CLEAN_RANDOM_ACCESS and self._starts_sequence)
        self._starts_sequence = not _ENDS.isdisjoint(kinds[first:])
        return self._drops_leading and kind in _RASL


def _stated(codec: str, extradata: bytes) -> CodedSequence:
    if codec in ("h264", "hevc"):
        hevc = codec == "hevc"
        return base_sequence_sets(sequence_sets(extradata, hevc=hevc), hevc=hevc)
    if codec == "av1" and extradata[:1] == _AV1C:
        return av1_headers(extradata[_AV1C_HEAD_BYTES:]).sequence or frozenset()
    return frozenset()
