"""Reads HDR10+ metadata (SMPTE ST 2094-40) from a track's packets, as the messages that encoded packets carry.

Sources: ITU-T T.35; CTA-861-H, annex S; AOM's "HDR10+ AV1 Metadata Handling Specification"; Matroska's
``BlockAddIDType`` 4.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from ..media.av_abi import hdr10_plus_payload, is_hdr10_plus
from ..media.values import SeiMessage
from .access_points import RandomAccess, random_access_kind
from .sei import messages_of

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

Hdr10Plus: TypeAlias = tuple[SeiMessage, ...]
"""The HDR10+ messages of one picture, usually one; empty for a picture without HDR10+ metadata."""
HDR10_PLUS_HEAD: Final = b"\xb5\x00\x3c\x00\x01\x04"
"""T.35's codes of country and provider, then the provider's own code and the application identifier."""
_T35: Final = 4
"""The type of registered messages, which is the same in SEI and in AV1's metadata."""
_NEW_SEQUENCES: Final = (RandomAccess.IDR, RandomAccess.BLA)


class Hdr10PlusReader:
    """Reads the HDR10+ messages of one track's packets, given in decoding order.

    In HEVC, messages hold until the next ones or the next sequence (x265's ``dhdr10-opt`` writes only changes).
    ``codec`` is FFmpeg's canonical name of the codec; ``extradata`` says how units are delimited. ``held`` are the
    messages before the first packet.
    """

    def __init__(self, codec: str, extradata: bytes, held: Hdr10Plus = ()) -> None:
        self._codec = codec
        self._extradata = extradata
        self.held = held

    def messages(self, packet: "Packet[VideoStream]") -> Hdr10Plus:
        """Return the messages that hold for the packet's picture; decoders ignore malformed ones, and so does this."""
        beside = {each.data_type: each for each in packet.iter_sidedata()}
        if "new_extradata" in beside:
            self._extradata = bytes(beside["new_extradata"])
        data = bytes(packet)
        found = tuple(
            message
            for message in messages_of(self._codec, data, self._extradata)
            if message.kind == _T35 and _is_valid(message.payload)
        )
        if not found and "dynamic_hdr10_plus" in beside:  # WebM has them beside VP9's packets
            found = (SeiMessage(_T35, HDR10_PLUS_HEAD + hdr10_plus_payload(bytes(beside["dynamic_hdr10_plus"]))),)
        if self._codec != "hevc":
            return found
        if found or (self.held and random_access_kind(self._codec, data, self._extradata) in _NEW_SEQUENCES):
            self.held = found
        return self.held


def _is_valid(payload: bytes) -> bool:
    """Return whether a registered message is valid HDR10+; FFmpeg's AV1 decoder refuses packets with other HDR10+."""
    return payload.startswith(HDR10_PLUS_HEAD) and is_hdr10_plus(payload[len(HDR10_PLUS_HEAD) :])
