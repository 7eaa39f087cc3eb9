"""Reads messages about single pictures from packets: HDR10+ (SMPTE ST 2094-40) and AFD (SMPTE ST 2016-1).

Sources: ITU-T T.35; CTA-861-H, annex S; AOM's "HDR10+ AV1 Metadata Handling Specification"; Matroska's
``BlockAddIDType`` 4; ATSC A/53-4, 6.2.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from ..media.av_abi import hdr10_plus_payload, is_hdr10_plus
from ..media.values import SeiMessage
from .access_points import RandomAccess, random_access_kind
from .riders import AFD, HDR10_PLUS
from .sei import messages_of

if TYPE_CHECKING:
    from av.packet import Packet, PacketSideData
    from av.video.stream import VideoStream

Messages: TypeAlias = tuple[SeiMessage, ...]
PictureMessages: TypeAlias = Mapping[str, Messages]
"""One picture's messages by kind; a kind without messages is absent."""
MESSAGE_KINDS: Final = frozenset({HDR10_PLUS, AFD})
"""The kinds of messages that ``PictureMessageReader`` reads."""
HDR10_PLUS_HEAD: Final = b"\xb5\x00\x3c\x00\x01\x04"
"""T.35's codes of country and provider, then the provider's own code and the application identifier."""
_AFD_HEAD: Final = b"\xb5\x00\x31DTG1"
_AFD_BYTES: Final = len(_AFD_HEAD) + 2
_IS_ACTIVE: Final = 0x40
_USER_DATA: Final = re.compile(rb"\x00\x00\x01\xb2DTG1(..)", re.DOTALL)
_MPEG: Final = ("mpeg1video", "mpeg2video")
_FIRST_SLICE: Final = b"\x00\x00\x01\x01"
_T35: Final = 4
"""The type of registered messages, which is the same in SEI and in AV1's metadata."""
_NEW_SEQUENCES: Final = (RandomAccess.IDR, RandomAccess.BLA)


class PictureMessageReader:
    """Reads the messages of one track's packets, given in decoding order.

    In HEVC, HDR10+ messages hold until the next ones or the next sequence (x265's ``dhdr10-opt`` writes only changes).
    ``codec`` is FFmpeg's canonical name of the codec; ``extradata`` says how units are delimited. ``held`` are the
    HDR10+ messages that hold before the first packet.
    """

    def __init__(self, codec: str, extradata: bytes, held: Messages = ()) -> None:
        self._codec = codec
        self._extradata = extradata
        self.held = held

    def messages(self, packet: "Packet[VideoStream]") -> PictureMessages:
        """Return the messages that hold for the packet's picture, without malformed ones."""
        beside = {each.data_type: each for each in packet.iter_sidedata()}
        if "new_extradata" in beside:
            self._extradata = bytes(beside["new_extradata"])
        data = bytes(packet)
        found: dict[str, Messages] = {}
        for payload in (*self._registered(data), *_beside(beside)):
            if (kind := _kind(payload)) is not None:
                found[kind] = (*found.get(kind, ()), SeiMessage(_T35, payload))
        if self._codec == "hevc":
            own = found.pop(HDR10_PLUS, ())
            if own or (self.held and self._begins_sequence(data)):
                self.held = own
            found |= {HDR10_PLUS: self.held} if self.held else {}
        return found

    def _registered(self, data: bytes) -> Iterator[bytes]:
        if self._codec in _MPEG:
            end = data.find(_FIRST_SLICE)
            for match in _USER_DATA.finditer(data, 0, end if end >= 0 else len(data)):
                yield _AFD_HEAD + match[1]
            return
        yield from (each.payload for each in messages_of(self._codec, data, self._extradata) if each.kind == _T35)

    def _begins_sequence(self, data: bytes) -> bool:
        return random_access_kind(self._codec, data, self._extradata) in _NEW_SEQUENCES


def _beside(side_data: "Mapping[str, PacketSideData]") -> Iterator[bytes]:
    """Yield the messages in a packet's side data: WebM, for example, has HDR10+ beside VP9's packets."""
    if "dynamic_hdr10_plus" in side_data:
        yield HDR10_PLUS_HEAD + hdr10_plus_payload(bytes(side_data["dynamic_hdr10_plus"]))
    if "afd" in side_data:
        yield _AFD_HEAD + bytes((_IS_ACTIVE | 1, 0xF0 | bytes(side_data["afd"])[0]))


def _kind(payload: bytes) -> str | None:
    """Return the kind of a registered message; None if it is malformed, or of another kind.

    Malformed HDR10+ must not reach an output, because FFmpeg's AV1 decoder refuses packets with it.
    """
    if payload.startswith(HDR10_PLUS_HEAD):
        return HDR10_PLUS if is_hdr10_plus(payload[len(HDR10_PLUS_HEAD) :]) else None
    has_afd = payload.startswith(_AFD_HEAD) and len(payload) >= _AFD_BYTES and payload[len(_AFD_HEAD)] & _IS_ACTIVE
    return AFD if has_afd else None
