"""Decoders that take packets one by one, for decoding ranges and for the sessions of callers."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Protocol

from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ..bitstream.access_points import RandomAccess, annex_b, random_access_kind
from ..bitstream.parameter_sets import configuration_units
from ..bitstream.sei import hdr_of, messages_of
from ..media.values import HdrStatic, StatedPicture
from .decoding import DecodeTally, OpenTrack, PictureDecoder, PictureT, decode_packet
from .describe import stated_picture
from .nvdec_support import CodedTrack, track_facts
from .wanted import WantedPictures

if TYPE_CHECKING:
    from .decoding import VideoPacket

STATES_HDR: Final = ("h264", "hevc", "av1")
"""Codecs whose packets have messages with HDR values."""
_NEW_SEQUENCES: Final = (RandomAccess.IDR, RandomAccess.BLA, RandomAccess.FLAGGED)
_KEPT_KEYFRAMES: Final = 32
"""How many keyframes are remembered: more than any decoder holds back."""


class PacketDecoding(Protocol[PictureT]):
    """Decodes one series of packets, which begins with a random access point. Used by one thread."""

    def push(self, number: int, packet: "VideoPacket", /) -> Iterator[tuple[int | None, PictureT]]:
        """Decode one packet, and yield the pictures that are complete; raises as ``PictureDecoder.decode`` does."""

    def flush(self) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the remaining pictures; push nothing afterwards."""

    def close(self) -> None:
        """Release the decoder, whatever its state. Idempotent."""

    def stated(self, number: int | None, picture: PictureT, /) -> StatedPicture:
        """Return the properties of packet ``number``'s picture. Call this before the next picture is taken."""


class PacketDecoder(PictureDecoder[PictureT], Generic[PictureT]):
    """A picture decoder that also takes packets one by one."""

    @abstractmethod
    def begin(
        self,
        coded: CodedTrack,
        context: VideoCodecContext,
        tally: DecodeTally,
        wanted: WantedPictures | None = None,
        *,
        at_once: bool = False,
    ) -> PacketDecoding[PictureT]:
        """Begin a series of packets; ``at_once`` returns each picture as soon as it is decoded.

        Only ``wanted`` pictures are returned (None: all); other pictures take no memory. A pixel format that ``coded``
        lacks is read from the first packet. ``context`` must be an unused decoder of FFmpeg. ``DeviceError`` if the
        device does not decode such a track.
        """

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the pictures of a range, or only the wanted pictures.

        The last picture is yielded only after flushing and all checks, so that a caller may stop there.
        """
        coded, wanted = track_facts(track.stream), track.wanted
        if wanted is not None:
            packets = wanted.needed(coded.codec, coded.extradata, packets)
        with closing(self.begin(coded, track.context, tally, wanted)) as decoding:
            pictures = _pictures(decoding, packets)
            yield from pictures if wanted is None else _last_after_end(pictures)


def _pictures(
    decoding: PacketDecoding[PictureT], packets: "Iterator[tuple[int, VideoPacket]]"
) -> Iterator[tuple[int | None, PictureT]]:
    for number, packet in packets:
        yield from decoding.push(number, packet)
    yield from decoding.flush()


def _last_after_end(pictures: Iterator[tuple[int | None, PictureT]]) -> Iterator[tuple[int | None, PictureT]]:
    """Yield the pictures, but the last picture only after ``pictures`` has ended."""
    held = next(pictures, None)
    for following in pictures:
        if held is not None:
            yield held
        held = following
    if held is not None:
        yield held


class KeyframeHdr:
    """The static HDR values of each picture: those last stated, until a keyframe begins a sequence without values.

    libavcodec keeps the values for one more sequence (libavcodec/hevc/sei.c). ``extradata`` may state values for all
    pictures.
    """

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._extradata = extradata
        hevc = codec == "hevc"
        stated = annex_b(configuration_units(extradata, hevc=hevc)) if codec in ("h264", "hevc") else b""
        self._usual = hdr_of(codec, messages_of(codec, stated))
        self._found = [(-1, self._usual)]

    def note(self, number: int, payload: bytes, *, extradata: bytes | None = None) -> None:
        """Read a keyframe; ``extradata`` says how its units are delimited (None: as in the rest of the track)."""
        layout = self._extradata if extradata is None else extradata
        hdr = hdr_of(self._codec, messages_of(self._codec, payload, layout))
        kind = random_access_kind(self._codec, payload, layout)
        if hdr == HdrStatic():
            if kind not in _NEW_SEQUENCES:
                return
            hdr = self._usual
        self._found = [*self._found[-_KEPT_KEYFRAMES:], (number, hdr)]

    def at(self, number: int | None) -> HdrStatic:
        """Return the HDR values of the picture of packet ``number``; None means the last packet."""
        if number is None:
            return self._found[-1][1]
        return self._found[max(0, bisect_right(self._found, number, key=lambda each: each[0]) - 1)][1]


class SoftwareDecoding:
    """A ``PacketDecoding`` with a context of libavcodec; packets that do not decode are counted in ``tally``."""

    def __init__(self, codec: str, extradata: bytes, context: VideoCodecContext, tally: DecodeTally) -> None:
        self._hdr = KeyframeHdr(codec, extradata) if codec in STATES_HDR else None
        self._context = context
        self._tally = tally
        self._number = 0

    def push(self, number: int, packet: "VideoPacket") -> Iterator[tuple[int | None, VideoFrame]]:
        """Decode one packet, and yield the pictures that are complete."""
        packet.opaque = [number]
        self._number = number
        if self._hdr is not None and packet.is_keyframe:
            self._hdr.note(number, bytes(packet))
        yield from decode_packet(self._context, number, packet, self._tally)

    def flush(self) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the remaining pictures."""
        yield from decode_packet(self._context, self._number, None, self._tally)

    def close(self) -> None:
        """Do nothing: the context is freed when the last reference to it is dropped."""

    def stated(self, number: int | None, picture: VideoFrame) -> StatedPicture:
        """Return the picture's properties as the decoder states them."""
        found = stated_picture(self._context, picture)
        return found if self._hdr is None else replace(found, hdr=self._hdr.at(number))
