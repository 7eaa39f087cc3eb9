"""Finds the packets that a decoder may leave out, because no other picture refers to their pictures.

Sources: ITU-T H.264 (08/2021) 7.4.1 for ``nal_ref_idc``; ITU-T H.265 (08/2021) 7.4.2.2 for sub-layer non-reference
pictures, which only pictures of higher temporal sub-layers may refer to.
"""

from typing import TYPE_CHECKING, Final

from .access_points import annex_b_units, prefix_bytes, prefixed_units
from .packet_headers import changes_configuration
from .parameter_sets import configuration_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.stream import VideoStream

_H264_SLICES: Final = range(1, 5)
_H264_BESIDE: Final = frozenset({6, 9, 12})
"""The units that may be left out together with an unreferenced slice: SEI messages, delimiters and filler data."""
_HEVC_LAST_SLICE: Final = 31
_HEVC_NON_REFERENCE: Final = frozenset(range(0, 15, 2))
_HEVC_SEQUENCE_SET: Final = 33
_HEVC_BESIDE: Final = frozenset({35, 38, 39, 40})
_HEVC_HEADER_BYTES: Final = 2


class UnreferencedPackets:
    """Finds a track's unreferenced packets; for codecs other than H.264 and HEVC, every packet counts as referenced.

    Packets are given in demux order, each to ``holds`` or ``pass_over``, and each must show exactly one whole picture.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._hevc = codec == "hevc"
        self._is_known = codec in ("h264", "hevc")
        self._length_bytes = prefix_bytes(extradata, hevc=self._hevc)
        self._sub_layers = 1
        if self._hevc:
            self._sub_layers = max(map(_sub_layers, configuration_units(extradata, hevc=True)), default=1)

    def pass_over(self, packet: "Packet[VideoStream]") -> None:
        """Read only what later packets depend on: parameter sets of HEVC. This costs nothing for other codecs."""
        if self._hevc:
            self.holds(packet)

    def holds(self, packet: "Packet[VideoStream]") -> bool:
        """Return whether no other picture refers to the packet's picture."""
        if not self._is_known or changes_configuration(packet):
            return False
        verdicts = {self._hevc_unit(unit) if self._hevc else _h264_unit(unit) for unit in self._units(packet)}
        return True in verdicts and False not in verdicts

    def _units(self, packet: "Packet[VideoStream]") -> "Iterator[bytes | memoryview]":
        if self._length_bytes is None:
            return annex_b_units(bytes(packet))
        return prefixed_units(memoryview(packet), self._length_bytes)

    def _hevc_unit(self, unit: bytes | memoryview) -> bool | None:
        if len(unit) < _HEVC_HEADER_BYTES:
            return False
        kind, layer, sub_layer = unit[0] >> 1 & 0x3F, (unit[0] & 1) << 5 | unit[1] >> 3, unit[1] & 7
        if kind == _HEVC_SEQUENCE_SET:
            self._sub_layers = max(self._sub_layers, _sub_layers(bytes(unit)))
        if layer:
            return False
        if kind <= _HEVC_LAST_SLICE:
            return kind in _HEVC_NON_REFERENCE and sub_layer >= self._sub_layers
        return None if kind in _HEVC_BESIDE else False


def _h264_unit(unit: bytes | memoryview) -> bool | None:
    """Return True for a slice that no picture refers to, None for a unit that may go with it, False for others."""
    kind, is_referred_to = unit[0] & 0x1F, bool(unit[0] & 0x60)
    if kind in _H264_SLICES:
        return not is_referred_to
    return None if kind in _H264_BESIDE else False


def _sub_layers(unit: bytes) -> int:
    """Return how many temporal sub-layers a sequence parameter set allows; 1 for any other unit."""
    is_set = len(unit) > _HEVC_HEADER_BYTES and unit[0] >> 1 & 0x3F == _HEVC_SEQUENCE_SET
    return (unit[_HEVC_HEADER_BYTES] >> 1 & 7) + 1 if is_set else 1
