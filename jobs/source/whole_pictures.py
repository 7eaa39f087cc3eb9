"""Finds out whether each packet of a track provably shows one whole picture.

Sources: RFC 6386 9.1 for VP8; VP9 Bitstream & Decoding Process Specification annex B; AV1 Bitstream & Decoding Process
Specification 7.5; SMPTE RDD 36 for ProRes; RFC 9043 4.4 for FFV1; for H.264 and HEVC see
``actors/bitstream/parameter_sets.py``.
"""

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from ...actors.bitstream.packet_headers import vp8_headers
from ...actors.bitstream.parameter_sets import has_whole_frames_only, packet_sequence_sets
from ...actors.bitstream.vp9 import vp9_frames

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream


_BY_DEFINITION: Final = frozenset({"av1", "prores", "ffv1"})
_WITH_HIDDEN_FRAMES: Final = frozenset({"vp8", "vp9"})
_WITH_PROMISES: Final = frozenset({"h264", "hevc"})


class WholePictures:
    """Takes packets in demux order; ``are_proven`` covers all packets so far.

    Only keyframes are searched for parameter sets, since sequences start there (H.264 section 7.4.1.2.1, H.265 section
    7.4.2.4.2).
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata
        self._hevc = codec == "hevc"
        if codec in _WITH_PROMISES:
            self.are_proven = has_whole_frames_only(extradata, hevc=self._hevc) is True
        else:
            self.are_proven = codec in _BY_DEFINITION | _WITH_HIDDEN_FRAMES
        #: Whether ``see`` needs every packet; otherwise keyframes and packets with side data are enough
        self.reads_all = codec in _WITH_HIDDEN_FRAMES

    def see(self, packet: "Packet[VideoStream]", beside: Container[str] = ()) -> None:
        """Take the next packet; ``beside`` has the names of the packet's side data."""
        if not self.are_proven or self._codec in _BY_DEFINITION:
            return
        if self._codec == "vp8":
            self.are_proven = vp8_headers(bytes(packet)).shown == 1
        elif self._codec == "vp9":
            self.are_proven = sum(frame.is_shown for frame in vp9_frames(bytes(packet))) == 1
        elif "new_extradata" in beside:
            self.are_proven = False  # after this packet, the next packets may be delimited differently
        elif packet.is_keyframe:
            sets = packet_sequence_sets(bytes(packet), self._extradata, hevc=self._hevc)
            # Damaged parameter sets prove nothing, and decoders may still read them.
            self.are_proven = not sets or has_whole_frames_only(sets, hevc=self._hevc) is True
