"""Decodes one series of packets on NVDEC in stretches, between changes of parameters, each in a session that fits."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Protocol

from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ....errors import EngineFailed, EngineUnfit
from ...bitstream.access_points import annex_b
from ...bitstream.packet_headers import CodedSequence, vp9_sequence
from ...bitstream.vp9 import Vp9Colours
from ...decode.decoding import DecodeTally, PictureT
from ...decode.describe import stated_picture
from ...decode.nvdec_options import NvdecOptions
from ...decode.nvdec_support import CodedTrack
from ...decode.packet_decoder import KeyframeHdr
from ...decode.wanted import WantedPictures
from ...media.values import StatedPicture
from .packet_prep import Feeder
from .pool import NvdecPool, SessionRequest
from .range import Fed, FedRange
from .session import MakeReader, NvdecSession, SessionKey, SurfaceReader

if TYPE_CHECKING:
    from ...decode.decoding import VideoPacket

ADVICE: Final = "Software decodes it instead."
_UNSTATED: Final = (0, 2, 2, 2)
"""FFmpeg's numbers for an unspecified range, matrix, primaries and transfer."""


class DecodesOn(Protocol[PictureT]):
    """The part of a decoder that a series of packets uses."""

    @property
    def pool(self) -> NvdecPool:
        """The device's pool of warm sessions."""

    @property
    def make_reader(self) -> MakeReader[PictureT]:
        """Makes a reader of a session's surfaces."""

    @property
    def request(self) -> SessionRequest | None:
        """The request of a caller that can fall back to software; None waits for a session."""

    @property
    def options(self) -> NvdecOptions:
        """The options with which sessions are opened."""

    def wrong_pictures(self) -> int:
        """Return how many wrong pictures this process's decoders have reported so far."""

    def key(self, facts: CodedTrack, sequence: CodedSequence) -> SessionKey:
        """Return the key of the session for these pictures; ``EngineUnfit`` if no session can decode them."""


class NvdecDecoding(Generic[PictureT]):
    """Decodes a series of packets, passed to ``push`` one at a time; ``close`` returns the session to the pool.

    With ``at_once``, each picture is read as soon as it is decoded, instead of a few at a time. Only ``wanted``
    pictures are copied and returned; if it is None, all pictures are.
    """

    def __init__(
        self,
        decoder: DecodesOn[PictureT],
        facts: CodedTrack,
        context: VideoCodecContext,
        tally: DecodeTally,
        wanted: WantedPictures | None,
        *,
        at_once: bool,
    ) -> None:
        self._decoder = decoder
        self._facts = facts
        self._context = context
        self._at_once = at_once
        size = (facts.width, facts.height)
        self._feeder = Feeder(facts.codec, facts.extradata, size, _known_sequence(facts, context))
        if (count := len(self._feeder.sequence)) > 1:
            message = f"the codec's configuration has {count} sequence parameter sets, for pictures to choose from"
            raise EngineUnfit(message, ADVICE)
        options = decoder.options
        self._range: FedRange[PictureT] = FedRange(
            self._feeder,
            tally,
            wanted,
            counts_pictures=self._feeder.counts_pictures or options.latency == "zero",
            in_order=options.keeps_coding_order,
            at_once=at_once,
        )
        self._request = decoder.request
        self._wrong_before = decoder.wrong_pictures()
        self._held = ExitStack()
        self._session: NvdecSession | None = None
        self._reader: SurfaceReader[PictureT] | None = None
        self._looked: StatedPicture | None = None
        self._hdr = KeyframeHdr(facts.codec, facts.extradata)

    def push(self, number: int, packet: "VideoPacket") -> Iterator[tuple[int, PictureT]]:
        """Decode one packet, and yield (packet number, picture) for each complete picture."""
        fed = self._range.prepared(number, packet)
        if fed is None:
            return
        if self._session is None or fed.chunk.is_new:
            yield from self._drained()
            self._turn(fed)
        if self._at_once and packet.is_keyframe:
            self._hdr.note(number, fed.chunk.payload, extradata=b"")
        if self._session is None or self._reader is None:
            return
        if pictures := self._range.feed(fed, self._session, self._reader):
            yield from self._coloured(pictures)

    def flush(self) -> Iterator[tuple[int, PictureT]]:
        """Give the session back, then yield the remaining pictures; ``EngineFailed`` if NVDEC reported wrong ones."""
        pictures = list(self._drained())
        self.close()  # before the caller works on the pictures, because other callers wait for the session
        if self._decoder.wrong_pictures() != self._wrong_before:
            raise EngineFailed(
                "NVDEC reported wrong pictures of this source, or of another source decoded meanwhile", ADVICE
            )
        yield from pictures

    def close(self) -> None:
        """Give the session back to the pool."""
        self._session = self._reader = None
        self._held.close()

    def stated(self, number: int | None, picture: PictureT) -> StatedPicture:
        """Return the description of this stretch's pictures, with the HDR values of packet ``number``'s keyframe."""
        del picture
        if self._looked is None:
            raise EngineFailed("NVDEC returned a picture before the first packet was examined", ADVICE)
        return replace(self._looked, hdr=self._hdr.at(number))

    def _drained(self) -> Iterator[tuple[int, PictureT]]:
        if self._session is not None and self._reader is not None:
            yield from self._coloured(self._range.drain(self._session, self._reader))

    def _coloured(self, pictures: Iterable[tuple[int, PictureT]]) -> Iterator[tuple[int, PictureT]]:
        reader = self._reader
        for number, picture in pictures:
            if reader is not None:
                reader.apply_colour(picture, self._context)
            yield number, picture

    def _turn(self, fed: Fed) -> None:
        """Take a session for the stretch that a packet begins: the current session, if it fits."""
        before = _colours(self._context)
        if fed.chunk.is_new or self._facts.pix_fmt is None:
            self._look_at(fed)
        key = self._decoder.key(self._facts, self._feeder.sequence)
        if self._session is not None and not (self._feeder.counts_pictures or self._at_once):
            _refuse_late_colours(before, _colours(self._context))
        if self._session is None or not self._session.serves(key):
            self.close()
            acquired = self._decoder.pool.acquire(key, fed.chunk.payload, self._request)
            self._session = self._held.enter_context(acquired)
        self._request = None  # later stretches wait: a refusal would lose the pictures decoded so far
        self._session.turn_to(key)
        self._reader = self._session.reader(self._decoder.make_reader)

    def _look_at(self, fed: Fed) -> None:
        """Decode a packet in software: the picture shows the format, size and colours that new parameters give."""
        picture = _software_picture(fed, self._context)
        found = replace(self._facts, pix_fmt=picture.format.name, width=picture.width, height=picture.height)
        sets = [each for each in fed.chunk.headers.sequence or () if isinstance(each, bytes)]
        if sets and found.codec in ("h264", "hevc"):
            found = replace(found, extradata=annex_b(sets))
        self._facts = found
        self._feeder.size = (found.width, found.height)
        self._looked = stated_picture(self._context, picture)


def _software_picture(fed: Fed, context: VideoCodecContext) -> VideoFrame:
    try:
        pictures = context.decode(fed.packet)
        if not pictures:
            pictures = context.decode(None)
            context.flush_buffers()
    except FFmpegError:
        pictures = []
    if not pictures:
        raise EngineUnfit(f"software cannot decode packet {fed.chunk.number}, which has new parameters", ADVICE)
    return pictures[-1]


def _colours(context: VideoCodecContext) -> tuple[int, int, int, int]:
    return int(context.color_range), int(context.colorspace), int(context.color_primaries), int(context.color_trc)


def _refuse_late_colours(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Refuse colours that begin after the first pictures: software would also apply them to pictures it still holds."""
    if any(old == unstated != new for old, new, unstated in zip(before, after, _UNSTATED, strict=True)):
        raise EngineUnfit("the first pictures state no colours, and later ones do", ADVICE)


def _known_sequence(facts: CodedTrack, context: VideoCodecContext) -> CodedSequence | None:
    if facts.codec != "vp9" or facts.pix_fmt is None:
        return None
    colours = Vp9Colours(int(context.colorspace), int(context.color_range))
    return vp9_sequence((facts.width, facts.height), colours)
