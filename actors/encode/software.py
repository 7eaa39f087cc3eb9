"""A software encoder session: pictures in, packets out, exactly one for each.

FFmpeg helps where we must not be helped: it converts pictures of another size or format, rounds timestamps to the
encoder's tick, and lets the decoder's picture types force the encoder's. So everything is checked or reset here, and
an encoder that returns anything but one packet per picture is an error at once, not a short file later.
"""

import os
from collections.abc import Sequence
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Final, cast

import av
import av.error
from av.codec.context import Flags
from av.video.frame import PictureType, VideoFrame

from ...errors import EncoderFailed, Unsupported
from ..bitstream.parameter_sets import max_reorder_frames
from ..decode.describe import frame_side_data
from ..media.values import SeiMessage
from .scheduling import ordinary_scheduling
from .session import EncodedPacket, EncoderSession, SessionState
from .settings import Codec, EncoderSettings

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream
    from av.video.codeccontext import VideoCodecContext

__all__ = ["EncodedPacket", "SoftwareEncoder", "encoder_time_base", "reorder_depth"]

# SVT-AV1 writes to standard error by itself, unless told before it starts; its errors come back as errors anyway.
os.environ.setdefault("SVT_LOG", "0")

_CHROMA_LOCATIONS = ("unspecified", "left", "center", "topleft", "top", "bottomleft", "bottom")
_VPX_TICK_S: Final = Fraction(1, 10_000_000)
"""libvpx counts in these (``TICKS_PER_SEC`` of vp9/vp9_cx_iface.c), rounds to them down, and back to the nearest."""
_VPX_LARGEST_TERM: Final = 1_000_000_000
"""The largest numerator and denominator of a time base that libvpx takes (``g_timebase``, the same file)."""
_RETRY_ADVICE = "Try another --preset or --codec, and please report it with the input."
_H264_DEEPEST_REORDER = 16
_DOVI_NAL_HEADER = b"\x00\x00\x00\x01\x7c\x01"  # a start code and the header of an HEVC NAL unit of type 62


class SoftwareEncoder(EncoderSession[VideoFrame]):
    """One encoder session of FFmpeg's software encoders, for one segment.

    The caller keeps ownership of the frames, but their times, ``pict_type`` and ``duration`` are changed. The encoder's
    own threads are the settings'.

    Raises:
        EncoderFailed: the encoder does not open with these settings.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self.name = settings.implementation
        self._context: VideoCodecContext | None = _opened(settings)
        self._extradata = bytes(self._context.extradata or b"")
        self._last_pts_ticks: int | None = None
        self._time_base = encoder_time_base(settings.codec, settings.time_base)
        # The pts that the encoder was given, and that of the picture.
        self._awaited: dict[int, int] = {}
        self._last_encoder_pts: int | None = None
        self._given = False
        self._dovi: dict[int, bytes] = {}
        rate = settings.format.frame_rate
        self._nominal_ticks = max(1, round(1 / (rate * self._time_base)))

    @property
    def extradata(self) -> bytes:
        """The parameter sets, known before the first picture."""
        return self._extradata

    @property
    def reorder_frames(self) -> int:
        """By how many pictures the encoder may reorder, as its parameter sets state it."""
        return reorder_depth(self._settings, self._extradata)

    def close(self) -> None:
        """Free the encoder's memory and threads now, not when somebody drops the session."""
        self._state = SessionState.CLOSED
        self._context = None

    def encode(
        self, picture: VideoFrame, *, keyframe: bool = False, sei_messages: Sequence[SeiMessage] = ()
    ) -> list[EncodedPacket]:
        """Encode one picture and return the packets that are ready, in decoding order.

        ``picture`` must have the settings' size, pixel format and time base, and a later pts than the one before it.

        Raises:
            Unsupported: messages are to be written, which FFmpeg does for no encoder alike.
            EncoderFailed: the frame does not fit the settings, or the encoder failed.
        """
        if sei_messages:
            message = f"{self.name} writes no SEI messages"
            raise Unsupported(message, 'Leave them out, or use encoder="nvenc".')
        self._check(picture)
        # What the decoder left here would force the encoder's choice.
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        picture.duration = self._nominal_ticks  # of the output, whatever the source's container claimed
        pts = picture.pts or 0
        if self._settings.dolby_vision:
            self._dovi[pts] = frame_side_data(picture).get("DOVI_RPU_BUFFER", b"")
        picture.pts, picture.time_base = self._encoder_pts(pts), self._time_base
        self._awaited[picture.pts] = pts
        return self._packets(picture)

    def _encoder_pts(self, pts: int) -> int:
        """Return the pts that the encoder sees: the picture's own, or the nearest that is later than the last one."""
        if self._time_base == self._settings.time_base:
            return pts
        own = floor(pts * self._settings.time_base / self._time_base)
        last = self._last_encoder_pts
        self._last_encoder_pts = own if last is None else max(own, last + 1)
        return self._last_encoder_pts

    def finish(self) -> list[EncodedPacket]:
        """Return the packets the encoder still held, and check that every picture came out.

        Raises:
            EncoderFailed: the encoder failed, or pictures are missing.
        """
        self._require_open()
        packets = self._packets(None) if self._last_pts_ticks is not None else []
        self._state = SessionState.FINISHED
        if self._awaited:
            first = next(iter(self._awaited.values()))
            message = f"{self.name} swallowed {len(self._awaited)} pictures, the first at {first}"
            raise EncoderFailed(message, _RETRY_ADVICE)
        return packets

    def _check(self, frame: VideoFrame) -> None:
        self._require_open()
        wanted = self._settings.format
        found = (frame.width, frame.height, frame.format.name, frame.time_base)
        if found != (wanted.width, wanted.height, wanted.pix_fmt, self._settings.time_base):
            message = (
                f"{self.name} got a picture of {frame.width}x{frame.height} {frame.format.name} in ticks of "
                f"{frame.time_base}, not {wanted.width}x{wanted.height} {wanted.pix_fmt} in {self._settings.time_base}"
            )
            raise EncoderFailed(message)
        last = self._last_pts_ticks
        if frame.pts is None or (last is not None and frame.pts <= last):
            message = f"{self.name} got a picture at {frame.pts} after one at {last}"
            raise EncoderFailed(message)
        self._last_pts_ticks = frame.pts

    def _packets(self, frame: VideoFrame | None) -> list[EncodedPacket]:
        if self._context is None:
            return []
        try:
            found = self._context.encode(frame)
        except (av.error.FFmpegError, ValueError) as error:
            message = f"{self.name} failed: {getattr(error, 'strerror', error)}"
            raise EncoderFailed(message, _RETRY_ADVICE) from error
        return [self._packet(packet) for packet in found]

    def _packet(self, packet: "Packet[Stream]") -> EncodedPacket:
        pts = None if packet.pts is None else self._awaited.pop(packet.pts, None)
        if pts is None:
            message = f"{self.name} returned a packet at {packet.pts}, where no picture was waiting"
            raise EncoderFailed(message, _RETRY_ADVICE)
        if not self._given and not packet.is_keyframe:
            message = f"{self.name} began with a picture that is no keyframe"
            raise EncoderFailed(message, _RETRY_ADVICE)
        self._given = True
        # A picture's dynamic metadata follows its slices, as the last NAL unit of the access unit; FFmpeg hands it out
        # with the emulation prevention it was read with, so it goes back as it is.
        metadata = self._dovi.pop(pts, b"")
        payload = bytes(packet) + (_DOVI_NAL_HEADER + metadata if metadata else b"")
        return EncodedPacket(pts, packet.is_keyframe, payload)


def _opened(settings: EncoderSettings) -> "VideoCodecContext":
    picture = settings.format
    colour = picture.colour
    try:
        context = cast("VideoCodecContext", av.CodecContext.create(settings.implementation, "w"))
        context.width, context.height, context.pix_fmt = picture.width, picture.height, picture.pix_fmt
        context.time_base = encoder_time_base(settings.codec, settings.time_base)
        context.framerate = picture.frame_rate
        context.sample_aspect_ratio = picture.sample_aspect_ratio
        context.color_range, context.color_primaries = colour.range, colour.primaries
        context.color_trc, context.colorspace = colour.transfer, colour.matrix
        context.thread_count = settings.threads
        context.flags |= int(Flags.global_header) | int(Flags.frame_duration) | int(Flags.closed_gop)
        location = _CHROMA_LOCATIONS[colour.chroma_location]
        context.options = dict(settings.options) | {"chroma_sample_location": location}
        with ordinary_scheduling():
            context.open()
    except (av.error.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        size = f"{picture.width}x{picture.height} {picture.pix_fmt}"
        message = f"{settings.implementation} does not open for {size} with its options: {reason}"
        raise EncoderFailed(message) from error
    if context.options:
        message = f"{settings.implementation} has no option {', '.join(sorted(context.options))}"
        raise EncoderFailed(message)
    return context


def encoder_time_base(codec: Codec, time_base: Fraction) -> Fraction:
    """Return the tick in which an encoder is told when pictures are shown: the pictures' own where it keeps it exactly.

    Only libvpx does not keep every tick. Where it would round or refuse one it is given its own, in which two pictures
    still differ by one at least. It steers rate control; what is written has the pictures' own times.
    """
    exact = time_base % _VPX_TICK_S == 0 or time_base > 2 * _VPX_TICK_S
    taken = max(time_base.numerator, time_base.denominator) <= _VPX_LARGEST_TERM
    return time_base if codec is not Codec.VP9 or (exact and taken) else _VPX_TICK_S


def reorder_depth(settings: EncoderSettings, extradata: bytes) -> int:
    """Return by how many frames the encoder may reorder, as its parameter sets state it.

    AV1's and VP9's packets come in presentation order: pictures that are not shown travel inside those that are. An
    H.264 stream whose parameter sets are silent may reorder by 16 (H.264 annex E.2.1).
    """
    if settings.codec in (Codec.AV1, Codec.VP9):
        return 0
    stated = max_reorder_frames(settings.codec, extradata)
    return _H264_DEEPEST_REORDER if stated is None else stated
