"""The session behind ``Decoder``, which decodes one track's packets into frames, on NVDEC or in software."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final

import av
import av.error
from av.codec.context import CodecContext, Flags
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ...actors.bitstream.sei import messages_of
from ...actors.decode.decoding import DecodeTally, configure_exact
from ...actors.decode.nvdec_options import PLAIN, NvdecOptions
from ...actors.decode.nvdec_support import CodedTrack
from ...actors.decode.packet_decoder import PacketDecoding, SoftwareDecoding
from ...actors.device.interface import PictureMover, WorkerDevice
from ...actors.media.av_stream import FieldOrder
from ...actors.media.values import SeiMessage, StatedPicture, VideoFormat
from ...actors.surfaces.device_frame import DevicePicture, PictureNotes
from ...actors.surfaces.frames import Frame
from ...errors import DeviceError, EngineUnfit, UsageError
from ..frames.making import picture_to_host
from ..frames.request import Decoder as DecoderChoice
from ..frames.request import Place
from .packet import DISCONTINUITY, END_OF_STREAM, USUAL_TIME_BASE, Packet

_USUAL_RATE: Final = Fraction(25)
_DECODERS: Final = {"av1": "libdav1d"}  #: FFmpeg's decoder named "av1" needs hardware
_USUAL: Final = "Use h264, hevc, av1, vp9, vp8 or another codec that FFmpeg decodes."
_MOST_HELD: Final = 64  #: No decoder holds back the pictures of more packets than this
_ALIASES: Final = {"h265": "hevc", "avc": "h264", "mpeg2": "mpeg2video"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRequest:
    """The options of a ``Decoder``."""

    codec: str  #: FFmpeg's name
    extradata: bytes  #: the codec's configuration
    place: Place
    decoder: DecoderChoice
    nvdec: NvdecOptions
    max_pixels: int  #: larger pictures count as damage
    #: the CUDA stream in which frames on the device are used; None if their consumers state a stream
    stream: int | None


class DecodingSession:
    """Decodes packets one by one; after an error, decoding goes on at the next keyframe.

    One thread must call all methods.
    """

    def __init__(self, request: DecoderRequest, device: Callable[[], WorkerDevice]) -> None:
        self._request = request
        self._codec = _ALIASES.get(request.codec, request.codec)
        self._device = device
        self._decoding: PacketDecoding[Any] | None = None
        self._on_device = False
        self._mover: PictureMover | None = None
        self._number = 0
        self._frames = 0
        self._first: int | None = None
        self._last: int | None = None
        self._messages: dict[int, tuple[SeiMessage, ...]] = {}
        self._time_base: Fraction | None = None
        self.tally = DecodeTally()
        self.skipped = 0
        self.decoded_by = ""
        self.fallback = "software was requested" if request.decoder == "software" else ""
        _context(self._codec, request)

    def decode(self, item: object) -> list[Frame]:
        """Decode a packet, and return the complete frames.

        Raises UsageError: the argument is not a packet, or its time base differs from that of earlier packets;
        DeviceError.
        """
        packet = Packet.of(item)
        if self._time_base not in (None, packet.time_base):
            message = f"a packet has the time base {packet.time_base} s, but earlier ones have {self._time_base} s"
            raise UsageError(message, "Use one time base for all packets, or another Decoder.")
        self._time_base = packet.time_base
        frames: list[Frame] = []
        if packet.discontinuity or packet.decode_flag & DISCONTINUITY:
            frames += self.flush()
        is_entry = packet.is_entry(self._codec, self._request.extradata)
        if self._decoding is None and not is_entry:
            self.skipped += 1
            return frames
        native = item if isinstance(item, av.Packet) else packet.to_av()
        native.is_keyframe = is_entry
        self._push(native, frames, is_entry=is_entry)
        return frames + self.flush() if packet.decode_flag & END_OF_STREAM else frames

    def flush(self) -> list[Frame]:
        """Return the remaining frames; decoding starts again at the next keyframe."""
        decoding, self._decoding = self._decoding, None
        frames: list[Frame] = []
        if decoding is not None:
            with closing(decoding):
                frames += self._framed(decoding, decoding.flush())
        return frames

    def close(self) -> None:
        """Release everything. Frames that were handed out stay valid."""
        mover, self._mover = self._mover, None
        try:
            self._drop()
        finally:
            if mover is not None:
                mover.close()

    def _push(self, packet: "av.Packet[Any]", frames: list[Frame], *, is_entry: bool) -> None:
        number, self._number = self._number, self._number + 1
        if self._request.nvdec.sei_messages:
            self._note_messages(number, bytes(packet))
        is_first = self._decoding is None
        try:
            self._take(number, packet, frames)
        except DeviceError as error:
            unfit = is_entry and isinstance(error, EngineUnfit)
            if self._request.decoder != "auto" or self.fallback or not (is_first or unfit):
                self._drop()
                raise
            if is_first:
                self._drop()  # software decodes this picture
            else:  # NVDEC refused the packet before decoding, and still holds frames of earlier packets
                frames += self.flush()
            self.fallback = error.message
            self._take(number, packet, frames)
        except BaseException:  # after any error, the session's state is unknown
            self._drop()
            raise

    def _note_messages(self, number: int, payload: bytes) -> None:
        """Keep the messages of the newest packets until software has decoded their pictures.

        NVDEC keeps messages itself.
        """
        self._messages[number] = tuple(messages_of(self._codec, payload, self._request.extradata))
        self._messages.pop(number - _MOST_HELD, None)

    def _drop(self) -> None:
        decoding, self._decoding = self._decoding, None
        if decoding is not None:
            decoding.close()

    def _take(self, number: int, packet: "av.Packet[Any]", frames: list[Frame]) -> None:
        if self._decoding is None:
            self._decoding = self._begin()
        frames.extend(self._framed(self._decoding, self._decoding.push(number, packet)))

    def _begin(self) -> PacketDecoding[Any]:
        request, context = self._request, _context(self._codec, self._request)
        if self.fallback:
            self.decoded_by, self._on_device = "software", False
            return SoftwareDecoding(self._codec, request.extradata, context, self.tally)
        coded = CodedTrack(
            codec=self._codec,
            pix_fmt=None,
            width=0,
            height=0,
            field_order=FieldOrder.UNKNOWN,
            extradata=request.extradata,
        )
        self.decoded_by, self._on_device = "nvdec", request.place != "host"
        decoder = self._device().packet_decoder(request.nvdec, on_device=self._on_device)
        return decoder.begin(coded, context, self.tally, at_once=True)

    def _framed(self, decoding: PacketDecoding[Any], pictures: Iterator[tuple[int | None, Any]]) -> Iterator[Frame]:
        for number, picture in pictures:
            messages = () if number is None else self._messages.pop(number, ())
            if self.decoded_by == "software" and self._request.nvdec.sei_messages:
                picture.opaque = PictureNotes(messages)
            yield self._frame(decoding.stated(number, picture), picture)

    def _frame(self, stated: StatedPicture, picture: VideoFrame | DevicePicture) -> Frame:
        if isinstance(picture, VideoFrame):
            width, height, pix_fmt = picture.width, picture.height, picture.format.name
        else:
            width, height, pix_fmt = picture.width, picture.height, picture.pix_fmt
        rate = stated.frame_rate or _USUAL_RATE
        format_ = VideoFormat(
            width=width,
            height=height,
            pix_fmt=pix_fmt,
            frame_rate=rate,
            sample_aspect_ratio=stated.sample_aspect_ratio or Fraction(1),
            colour=stated.colour,
            hdr=stated.hdr,
            interlaced=stated.interlaced,
        )
        time_base = self._time_base or USUAL_TIME_BASE
        ticks = self._ticks(picture.pts, max(1, round(1 / (rate * time_base))))
        notes = picture.opaque if isinstance(picture.opaque, PictureNotes) else None
        if isinstance(picture, VideoFrame) and self._request.place == "device":
            picture = self._uploaded(picture)
        index, self._frames = self._frames, self._frames + 1
        frame = Frame(
            index=index,
            ticks=ticks,
            time_base=time_base,
            start_ticks=self._first or 0,
            format=format_,
            notes=notes,
            _picture=picture,
            _to_host=partial(picture_to_host, self._device()) if isinstance(picture, DevicePicture) else None,
        )
        if self._request.stream is not None and frame.on_device:
            frame.record_stream(self._request.stream)
        return frame

    def _ticks(self, pts: int | None, nominal: int) -> int:
        """Return a frame's time: ``pts``, else ``nominal`` ticks after the previous frame, else 0."""
        if pts is None:
            pts = 0 if self._last is None else self._last + nominal
        self._first = pts if self._first is None else self._first
        self._last = pts
        return pts

    def _uploaded(self, picture: VideoFrame) -> DevicePicture:
        if self._mover is None:
            self._mover = self._device().open_mover()
        return self._mover.to_device(picture)


def _context(codec: str, request: DecoderRequest) -> VideoCodecContext:
    """Return a new FFmpeg decoder. Raises UsageError: FFmpeg has no decoder for the codec."""
    try:
        context = CodecContext.create(_DECODERS.get(codec, codec), "r")
    except (av.error.FFmpegError, ValueError) as error:
        raise UsageError(f"FFmpeg has no decoder {codec}: {error}", _USUAL) from None
    if not isinstance(context, VideoCodecContext):
        raise UsageError(f"{codec} is not video", _USUAL)
    context.extradata = request.extradata or None
    if request.nvdec != PLAIN and request.nvdec.keeps_coding_order:
        context.flags |= int(Flags.low_delay)
    configure_exact(context, request.max_pixels)
    return context
