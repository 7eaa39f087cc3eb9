"""Reads HDR10+ metadata (SMPTE ST 2094-40) from a track's packets, as the messages that encoded packets carry.

Sources: ITU-T T.35; CTA-861-H, annex S; AOM's "HDR10+ AV1 Metadata Handling Specification"; Matroska's
``BlockAddIDType`` 4.
"""

from typing import TYPE_CHECKING, Final

from ..media.av_abi import hdr10_plus_payload
from ..media.values import SeiMessage
from .sei import messages_of

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.stream import VideoStream

HDR10_PLUS_HEAD: Final = b"\xb5\x00\x3c\x00\x01\x04"
"""T.35's codes of country and provider, then the provider's own code and the application identifier."""
_T35: Final = 4
"""The type of registered messages, which is the same in SEI and in AV1's metadata."""


class Hdr10PlusReader:
    """Reads the HDR10+ messages of one track's packets.

    ``codec`` is FFmpeg's canonical name of the codec; ``extradata`` says how units are delimited.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata

    def messages(self, packet: "Packet[VideoStream]") -> tuple[SeiMessage, ...]:
        """Return the messages of the packet's picture, in order. WebM has them beside VP9's packets."""
        beside = {each.data_type: each for each in packet.iter_sidedata()}
        if "new_extradata" in beside:
            self._extradata = bytes(beside["new_extradata"])
        found = tuple(
            message
            for message in messages_of(self._codec, bytes(packet), self._extradata)
            if message.kind == _T35 and message.payload.startswith(HDR10_PLUS_HEAD)
        )
        if found or "dynamic_hdr10_plus" not in beside:
            return found
        return (SeiMessage(_T35, HDR10_PLUS_HEAD + hdr10_plus_payload(bytes(beside["dynamic_hdr10_plus"]))),)
