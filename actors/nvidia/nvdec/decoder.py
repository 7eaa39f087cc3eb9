"""NVDEC as a picture decoder: the same pictures as software's, or a reason why not."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from av.error import FFmpegError
from av.video.codeccontext import VideoCodecContext

from ....errors import EngineFailed, EngineUnfit
from ...bitstream.access_points import annex_b
from ...bitstream.packet_headers import CodedSequence, vp9_sequence
from ...bitstream.parameter_sets import crops_left_or_top, max_reorder_frames
from ...bitstream.vp9 import Vp9Colours
from ...decode.decoding import DecodeTally, OpenTrack, PictureDecoder, PictureT
from ...decode.nvdec_options import PLAIN, NvdecOptions
from ...decode.nvdec_support import CODECS, CodedTrack, track_facts, unsupported_reason
from ...surfaces.formats import surface_format
from ..cuda.context import Cuda
from .packet_prep import Feeder
from .pool import NvdecPool, SessionRequest
from .range import Fed, FedRange
from .session import MakeReader, SessionKey, mapped

if TYPE_CHECKING:
    from ...decode.decoding import VideoPacket


_ADVICE: Final = "Software decodes it instead."
_UNSTATED: Final = (0, 2, 2, 2)
"""FFmpeg's range, matrix, primaries and transfer where they are unspecified."""
_CHROMA: Final = {"4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
"""By the numbers of ``cudaVideoChromaFormat``."""


class NvdecCapabilities:
    """What the device's NVDEC can: asked once for each codec, sampling and depth, since asking makes a context."""

    def __init__(self, module: Any, cuda: Cuda) -> None:
        self._module = module
        self._cuda = cuda
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, int], dict[str, int]] = {}

    def unsupported_reason(self, key: SessionKey) -> str:
        """Return why the device does not decode such a track; "" where it does."""
        chroma, bits = key.surface.chroma, key.surface.bits
        with self._lock:
            if (key.codec, chroma, bits) not in self._known:
                self._known[key.codec, chroma, bits] = self._asked(key.codec, chroma, bits)
            caps = self._known[key.codec, chroma, bits]
        if not caps.get("supported"):
            return f"this GPU's NVDEC decodes no {key.codec} {chroma} with {bits} bits"
        sides = ((key.width, "width"), (key.height, "height"))
        if all(caps[f"{name}_min"] <= side <= caps[f"{name}_max"] for side, name in sides):
            return ""
        least, most = (f"{caps[f'width_{end}']}x{caps[f'height_{end}']}" for end in ("min", "max"))
        return f"this GPU's NVDEC decodes {key.codec} from {least} to {most}, not {key.width}x{key.height}"

    def _asked(self, codec: str, chroma: str, bits: int) -> dict[str, int]:
        try:
            with self._cuda.entered:
                caps: dict[str, int] = self._module.GetDecoderCaps(
                    gpuid=self._cuda.ordinal,
                    codec=self._module.cudaVideoCodec(CODECS[codec]),
                    chromaformat=self._module.cudaVideoChromaFormat(_CHROMA[chroma]),
                    bitdepth=bits,
                )
        except Exception as error:  # the package states no errors
            raise mapped(error, "NVDEC does not say what it can") from error
        return caps


@dataclass(frozen=True, slots=True, eq=False)
class NvdecDecoder(PictureDecoder[PictureT]):
    """Decodes on the one device that this process sees, on warm sessions.

    ``cannot`` returns why the device does not decode a track, "" where it does; ``wrong_pictures`` how many pictures
    this process's decoders reported wrong so far. ``request`` is of a caller with a fallback; None waits for a session
    as long as it takes. Each picture's ``opaque`` has the ``PictureNotes`` that ``options`` request.
    """

    name = "nvdec"
    pool: NvdecPool
    make_reader: MakeReader[PictureT]
    cannot: Callable[[SessionKey], str]
    wrong_pictures: Callable[[], int]
    request: SessionRequest | None = None
    options: NvdecOptions = PLAIN

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield the pictures of a range.

        Raises:
            EngineUnfit: NVDEC may not, or cannot, decode this track exactly.
            EngineBusy: a session would not be ready soon.
            EngineFailed: its pictures are in doubt.
            DeviceError: the device failed otherwise.
        """
        facts = track_facts(track.stream)
        self._key(facts, frozenset())
        size = (facts.width, facts.height)
        feeder = Feeder(facts.codec, facts.extradata, size, _known_sequence(facts, track.context))
        if (count := len(feeder.sequence)) > 1:
            message = f"the codec's configuration has {count} sequence parameter sets, for pictures to choose from"
            raise EngineUnfit(message, _ADVICE)
        range_: FedRange[PictureT] = FedRange(
            feeder,
            packets,
            tally,
            counts_pictures=feeder.counts_pictures or self.options.latency == "zero",
            at_once=self.options.keeps_coding_order,
        )
        range_.advance()
        wrong_before = self.wrong_pictures()
        yield from self._pictures(range_, feeder, facts, track.context)
        if self.wrong_pictures() != wrong_before:
            raise EngineFailed("NVDEC could not decode every picture, of this source or of one beside it", _ADVICE)

    def _pictures(
        self, range_: FedRange[PictureT], feeder: Feeder, facts: CodedTrack, context: VideoCodecContext
    ) -> Iterator[tuple[int, PictureT]]:
        """Yield a range's pictures with their packets' numbers, stretch by stretch, each on a session of its size."""
        request = self.request
        key = self._next_key(range_.next, feeder, facts, context)
        colours = _colours(context)
        while (fed := range_.next) is not None and key is not None:
            with self.pool.acquire(key, fed.chunk.payload, request) as session:
                while key is not None and session.serves(key):
                    session.turn_to(key)
                    reader = session.reader(self.make_reader)
                    for number, picture in range_.stretch(session, reader):
                        reader.apply_colour(picture, context)
                        yield number, picture
                    key = self._next_key(range_.next, feeder, facts, context)
                    if not feeder.counts_pictures:
                        _refuse_late_colours(colours, colours := _colours(context))
            request = None  # from here on it waits: what was decoded so far would be lost

    def _next_key(
        self, fed: Fed | None, feeder: Feeder, facts: CodedTrack, context: VideoCodecContext
    ) -> SessionKey | None:
        """Return the key of the next stretch; None at the end."""
        if fed is None:
            return None
        if fed.chunk.is_new:
            facts = _looked_at(fed, facts, context)
            feeder.size = (facts.width, facts.height)
        return self._key(facts, feeder.sequence)

    def _key(self, facts: CodedTrack, sequence: CodedSequence) -> SessionKey:
        surface = surface_format(facts.pix_fmt)
        if (reason := unsupported_reason(facts)) or surface is None or facts.pix_fmt is None:
            raise EngineUnfit(reason, _ADVICE)
        if crops_left_or_top(facts.codec, facts.extradata):
            raise EngineUnfit("pictures are cropped on the left or at the top, which PyNvVideoCodec ignores", _ADVICE)
        reorders = facts.codec in ("h264", "hevc") and max_reorder_frames(facts.codec, facts.extradata) != 0
        if self.options.keeps_coding_order and reorders:
            message = f"latency {self.options.latency} is for pictures that are shown as they are coded"
            raise EngineUnfit(message, "Use the latency native.")
        key = SessionKey(facts.codec, facts.pix_fmt, surface, facts.width, facts.height, self.options, sequence)
        if reason := self.cannot(key):
            raise EngineUnfit(reason, _ADVICE)
        return key


def _looked_at(fed: Fed, facts: CodedTrack, context: VideoCodecContext) -> CodedTrack:
    """Decode a packet in software: its picture shows what new parameters mean, and gives ``context`` its colours."""
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
    """Return the colour description that software knows by now."""
    return int(context.color_range), int(context.colorspace), int(context.color_primaries), int(context.color_trc)


def _refuse_late_colours(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Refuse colours where none were stated before: software gives them to the pictures that it still held, too."""
    if any(old == unstated != new for old, new, unstated in zip(before, after, _UNSTATED, strict=True)):
        raise EngineUnfit("the pictures' colours are stated from some packet on, and not before", _ADVICE)


def _known_sequence(facts: CodedTrack, context: VideoCodecContext) -> CodedSequence | None:
    if facts.codec != "vp9":
        return None
    colours = Vp9Colours(int(context.colorspace), int(context.color_range))
    return vp9_sequence((facts.width, facts.height), colours)
