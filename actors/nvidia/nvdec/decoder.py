"""NVDEC as a picture decoder: it returns the same pictures as software, or says why it cannot."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from av.video.codeccontext import VideoCodecContext

from ....errors import EngineUnfit
from ...bitstream.packet_headers import CodedSequence
from ...bitstream.parameter_sets import crops_left_or_top, max_reorder_frames
from ...decode.decoding import DecodeTally, PictureT
from ...decode.nvdec_options import PLAIN, NvdecOptions
from ...decode.nvdec_support import CODECS, CodedTrack, unsupported_reason
from ...decode.packet_decoder import PacketDecoder
from ...decode.wanted import WantedPictures
from ...surfaces.formats import surface_format
from ..cuda.context import Cuda
from .pool import NvdecPool, SessionRequest
from .session import MakeReader, SessionKey, mapped
from .stretches import ADVICE, NvdecDecoding

_CHROMA: Final = {"4:2:0": 1, "4:2:2": 2, "4:4:4": 3}
"""The number in ``cudaVideoChromaFormat`` for each chroma sampling."""


class NvdecCapabilities:
    """The device's NVDEC capabilities, queried once per codec, sampling and depth, since each query makes a context."""

    def __init__(self, module: Any, cuda: Cuda) -> None:
        self._module = module
        self._cuda = cuda
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, int], dict[str, int]] = {}

    def unsupported_reason(self, key: SessionKey) -> str:
        """Return why the device does not decode tracks with this key; "" if it does."""
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
        except Exception as error:  # the package documents no errors
            raise mapped(error, "NVDEC does not report its capabilities") from error
        return caps


@dataclass(frozen=True, slots=True, eq=False)
class NvdecDecoder(PacketDecoder[PictureT]):
    """Decodes with warm sessions of one device. A picture's ``opaque`` holds its ``PictureNotes``."""

    name = "nvdec"
    pool: NvdecPool
    make_reader: MakeReader[PictureT]
    cannot: Callable[[SessionKey], str]  # why the device does not decode a track, "" if it does
    wrong_pictures: Callable[[], int]  # how many wrong pictures this process's decoders have reported so far
    request: SessionRequest | None = None  # given if the caller can fall back to software; None waits for a session
    options: NvdecOptions = PLAIN

    def begin(
        self,
        coded: CodedTrack,
        context: VideoCodecContext,
        tally: DecodeTally,
        wanted: WantedPictures | None = None,
        *,
        at_once: bool = False,
    ) -> NvdecDecoding[PictureT]:
        """Begin a series of packets; all calls on the series may raise the same errors.

        Raises:
            EngineUnfit: NVDEC may not, or cannot, decode this track exactly.
            EngineBusy: a session would not be ready soon.
            EngineFailed: the pictures may be wrong.
            DeviceError: the device failed in another way.
        """
        if coded.pix_fmt is not None:
            self.key(coded, frozenset())
        return NvdecDecoding(self, coded, context, tally, wanted, at_once=at_once)

    def key(self, facts: CodedTrack, sequence: CodedSequence) -> SessionKey:
        """Return the key of a session for these pictures; ``EngineUnfit`` if no session can decode them."""
        surface = surface_format(facts.pix_fmt)
        if (reason := unsupported_reason(facts)) or surface is None or facts.pix_fmt is None:
            raise EngineUnfit(reason, ADVICE)
        if crops_left_or_top(facts.codec, facts.extradata):
            raise EngineUnfit("pictures are cropped on the left or at the top, which PyNvVideoCodec ignores", ADVICE)
        reorders = facts.codec in ("h264", "hevc") and max_reorder_frames(facts.codec, facts.extradata) != 0
        if self.options.keeps_coding_order and reorders:
            message = f"latency={self.options.latency} needs pictures that are coded in the order they are shown"
            raise EngineUnfit(message, "Use latency=native.")
        key = SessionKey(facts.codec, facts.pix_fmt, surface, facts.width, facts.height, self.options, sequence)
        if reason := self.cannot(key):
            raise EngineUnfit(reason, ADVICE)
        return key
