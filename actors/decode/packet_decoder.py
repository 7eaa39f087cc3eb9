"""Decoders that take packets one by one: what a range's decoding and a caller's session have in common."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Generic, Protocol

from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ..media.values import StatedPicture
from .decoding import DecodeTally, OpenTrack, PictureDecoder, PictureT, decode_packet
from .describe import stated_picture
from .nvdec_support import CodedTrack, track_facts

if TYPE_CHECKING:
    from .decoding import VideoPacket


class Decoding(Protocol[PictureT]):
    """One series of packets on its way through a decoder, the first one a random access point. For one thread."""

    def push(self, number: int, packet: "VideoPacket", /) -> Iterator[tuple[int | None, PictureT]]:
        """Decode one packet, and yield the pictures that are complete; raises as ``PictureDecoder.decode``."""

    def flush(self) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the pictures that are left; push nothing afterwards."""

    def close(self) -> None:
        """Release the decoder, in any state. Idempotent."""

    def stated(self, number: int | None, picture: PictureT, /) -> StatedPicture:
        """Return what a picture is, which packet ``number`` gave; asked before the next one is."""


class PacketDecoder(PictureDecoder[PictureT], Generic[PictureT]):
    """A picture decoder that also takes packets one by one."""

    @abstractmethod
    def begin(
        self, coded: CodedTrack, context: VideoCodecContext, tally: DecodeTally, *, at_once: bool = False
    ) -> Decoding[PictureT]:
        """Begin a series of packets; ``at_once`` hands each picture out as soon as it is there.

        ``coded`` is what is known of the track; a missing pixel format is found in the first packet. ``context`` is an
        unused decoder of FFmpeg's for it.

        Raises:
            DeviceError: the device does not decode such a track.
        """

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the pictures of a range."""
        with closing(self.begin(track_facts(track.stream), track.context, tally)) as decoding:
            for number, packet in packets:
                yield from decoding.push(number, packet)
            yield from decoding.flush()


class SoftwareDecoding:
    """A context of libavcodec as a ``Decoding``: packets that do not decode are counted in ``tally``."""

    def __init__(self, context: VideoCodecContext, tally: DecodeTally) -> None:
        self._context = context
        self._tally = tally
        self._number = 0

    def push(self, number: int, packet: "VideoPacket") -> Iterator[tuple[int | None, VideoFrame]]:
        """Decode one packet, and yield the pictures that are complete."""
        packet.opaque = [number]
        self._number = number
        yield from decode_packet(self._context, number, packet, self._tally)

    def flush(self) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the pictures that are left."""
        yield from decode_packet(self._context, self._number, None, self._tally)

    def close(self) -> None:
        """Do nothing: the context goes with its last reference."""

    def stated(self, number: int | None, picture: VideoFrame) -> StatedPicture:
        """Return what the decoder says of the picture."""
        del number
        return stated_picture(self._context, picture)
