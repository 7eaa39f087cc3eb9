"""NVDEC as a picture decoder: the same pictures as software's, or a reason why not."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext

from ....errors import EngineFailed, EngineUnfit
from ...bitstream.access_points import annex_b
from ...bitstream.packet_headers import CodedSequence, vp9_sequence
from ...bitstream.parameter_sets import crops_left_or_top, max_reorder_frames
from ...bitstream.vp9 import Vp9Colours
from ...decode.decoding import DecodeTally, OpenTrack, PictureDecoder, PictureT
from ...decode.nvdec_options import PLAIN, NvdecOptions
from ...decode.nvdec_support import CodedTrack, track_facts, unsupported_reason
from ...surfaces.formats import surface_format
from .packet_prep import Feeder
from .pool import NvdecPool, SessionRequest
from .range import Fed, FedRange, RangePicture
from .session import MakeReader, SessionKey

if TYPE_CHECKING:
    from ...decode.decoding import VideoPacket


_ADVICE: Final = "Software decodes it instead."
_UNSTATED: Final = (0, 2, 2, 2)
"""FFmpeg's range, matrix, primaries and transfer where they are unspecified."""


class NvdecDecoder(PictureDecoder[PictureT]):
    """Decodes on the one device that this process sees, on warm sessions.

    Args:
        pool: the sessions.
        make_reader: makes what takes pictures out of a session's surfaces.
        cannot: returns why the device does not decode a track, "" where it does.
        wrong_pictures: returns how many pictures this process's decoders reported wrong so far.
        request: of a caller with a fallback; None waits for a session as long as it takes.
        options: how sessions are opened; each picture's ``opaque`` has the ``PictureNotes`` that they ask for.
    """

    name = "nvdec"

    def __init__(
        self,
        pool: NvdecPool,
        make_reader: MakeReader[PictureT],
        cannot: Callable[[SessionKey], str],
        wrong_pictures: Callable[[], int],
        *,
        request: SessionRequest | None = None,
        options: NvdecOptions = PLAIN,
    ) -> None:
        self.pool = pool
        self._make_reader = make_reader
        self._cannot = cannot
        self._wrong_pictures = wrong_pictures
        self._request = request
        self._options = options

    def non_blocking(self, request: SessionRequest) -> "NvdecDecoder[PictureT]":
        """Return the same decoder for a caller with a fallback, which does not wait long for a session."""
        return NvdecDecoder(self.pool, self._make_reader, self._cannot, self._wrong_pictures, request=request)

    def asking(self, options: NvdecOptions) -> "NvdecDecoder[PictureT]":
        """Return the same decoder on sessions that were opened with ``options``."""
        return NvdecDecoder(self.pool, self._make_reader, self._cannot, self._wrong_pictures, options=options)

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the pictures of a range.

        Raises:
            EngineUnfit: NVDEC may not, or cannot, decode this track exactly.
            EngineBusy: it would take long before a session is there.
            EngineFailed: what it gave is not beyond doubt.
            DeviceError: the device failed otherwise.
        """
        facts = track_facts(track.stream)
        self._key(facts, frozenset())
        feeder = Feeder(
            facts.codec, facts.extradata, (facts.width, facts.height), _known_sequence(facts, track.context)
        )
        _refuse_ambiguity(feeder)
        counts = feeder.counts_pictures or self._options.latency == "zero"
        at_once = self._options.keeps_coding_order
        range_: FedRange[PictureT] = FedRange(
            facts.codec, feeder, packets, tally, counts_pictures=counts, at_once=at_once
        )
        range_.advance()
        wrong_before = self._wrong_pictures()
        for found in self._pictures(range_, feeder, facts, track.context):
            yield found.number, found.picture
        if self._wrong_pictures() != wrong_before:
            raise EngineFailed("NVDEC could not decode every picture, of this source or of one beside it", _ADVICE)

    def _pictures(
        self, range_: FedRange[PictureT], feeder: Feeder, facts: CodedTrack, context: VideoCodecContext
    ) -> Iterator[RangePicture[PictureT]]:
        """Yield a range's pictures, stretch by stretch, each on a session of its size."""
        request = self._request
        key = self._next_key(range_.next, feeder, facts, context)
        colours = _colours(context)
        while (fed := range_.next) is not None and key is not None:
            with self.pool.acquire(key, fed.chunk.payload, request) as session:
                while key is not None and session.serves(key):
                    session.turn_to(key)
                    reader = session.reader(self._make_reader)
                    for found in range_.stretch(session, reader):
                        reader.apply_colour(found.picture, context)
                        yield found
                    key = self._next_key(range_.next, feeder, facts, context)
                    if not feeder.counts_pictures:
                        _refuse_blurred(colours, colours := _colours(context))
            request = None  # from here on it waits: what was decoded so far would be lost

    def _next_key(
        self, fed: Fed | None, feeder: Feeder, facts: CodedTrack, context: VideoCodecContext
    ) -> SessionKey | None:
        """Return what the next stretch wants; None at the end."""
        if fed is None:
            return None
        if fed.chunk.is_new:
            facts = _looked_at(fed, facts, context)
            feeder.resize((facts.width, facts.height))
        return self._key(facts, feeder.sequence)

    def _key(self, facts: CodedTrack, sequence: CodedSequence) -> SessionKey:
        surface = surface_format(facts.pix_fmt)
        if (reason := unsupported_reason(facts)) or surface is None or facts.pix_fmt is None:
            raise EngineUnfit(reason, _ADVICE)
        if crops_left_or_top(facts.codec, facts.extradata):
            raise EngineUnfit("pictures are cropped on the left or at the top, which PyNvVideoCodec ignores", _ADVICE)
        reorders = facts.codec in ("h264", "hevc") and max_reorder_frames(facts.codec, facts.extradata) != 0
        if self._options.keeps_coding_order and reorders:
            message = f"latency {self._options.latency} is for pictures that are shown as they are coded"
            raise EngineUnfit(message, "Use the latency native.")
        key = SessionKey(facts.codec, facts.pix_fmt, surface, facts.width, facts.height, self._options, sequence)
        if reason := self._cannot(key):
            raise EngineUnfit(reason, _ADVICE)
        return key


def _looked_at(fed: Fed, facts: CodedTrack, context: VideoCodecContext) -> CodedTrack:
    """Have software decode a packet: its picture shows what new parameters mean, and gives ``context`` its colours."""
    try:
        pictures = context.decode(fed.packet)
        if not pictures:
            pictures = context.decode(None)
            context.flush_buffers()
    except FFmpegError:
        pictures = []
    if not pictures:
        raise EngineUnfit(f"software makes nothing of the parameters that packet {fed.chunk.number} states", _ADVICE)
    picture = pictures[-1]
    found = replace(facts, pix_fmt=picture.format.name, width=picture.width, height=picture.height)
    sets = [each for each in fed.chunk.headers.sequence or () if isinstance(each, bytes)]
    return replace(found, extradata=annex_b(sets)) if sets and facts.codec in ("h264", "hevc") else found


def _colours(context: VideoCodecContext) -> tuple[int, int, int, int]:
    """Return the colour description as far as software knows it by now."""
    return int(context.color_range), int(context.colorspace), int(context.color_primaries), int(context.color_trc)


def _refuse_blurred(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Refuse colours where none were stated before: software gives them to the pictures that it still held, too."""
    if any(old == unstated != new for old, new, unstated in zip(before, after, _UNSTATED, strict=True)):
        raise EngineUnfit("the pictures' colours are stated from some packet on, and not before", _ADVICE)


def _known_sequence(facts: CodedTrack, context: VideoCodecContext) -> CodedSequence | None:
    """Return what is known of the pictures where the codec's configuration does not say it."""
    if facts.codec != "vp9":
        return None
    colours = Vp9Colours(int(context.colorspace), int(context.color_range))
    return vp9_sequence((facts.width, facts.height), colours)


def _refuse_ambiguity(feeder: Feeder) -> None:
    if feeder.sequences > 1:
        message = (
            f"the codec's configuration has {feeder.sequences} sequence parameter sets, for pictures to choose from"
        )
        raise EngineUnfit(message, _ADVICE)
