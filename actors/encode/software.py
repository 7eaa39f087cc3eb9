"""A software encoder session, which returns exactly one packet for each picture.

FFmpeg silently converts pictures, rounds timestamps and copies decoders' picture types, so pictures are checked here.
FFmpeg passes new rates on to x264 (libavcodec/libx264.c, ``reconfig_encoder``). x264 accepts new rates only with a
buffer, and a new average only at a constant rate (encoder/ratecontrol.c, ``x264_ratecontrol_init_reconfigurable``).
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Final, cast

import av
import av.error
from av.codec.context import Flags, ThreadType
from av.video.frame import PictureType, VideoFrame

from ...errors import EncoderFailed, Unsupported
from ..bitstream.parameter_sets import max_reorder_frames
from ..bitstream.sei import with_messages
from ..decode.describe import frame_side_data
from ..media.av_abi import context_address, ffmpeg
from ..media.values import SeiMessage
from .scheduling import ordinary_scheduling
from .session import RETRY_ADVICE, EncodedPacket, EncoderSession, SessionState
from .settings import LEAST_RATE_BPS, Codec, EncoderSettings, RateChange, RateControl

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream
    from av.video.codeccontext import VideoCodecContext


# SVT-AV1 logs to standard error unless this variable is set before its start; errors are returned in any case.
os.environ.setdefault("SVT_LOG", "0")
_SEARCH_CHILDREN: Final = 1  # AV_OPT_SEARCH_CHILDREN: also searches the encoder's own options

_CHROMA_LOCATIONS = ("unspecified", "left", "center", "topleft", "top", "bottomleft", "bottom")
_VPX_TICK_S: Final = Fraction(1, 10_000_000)
"""The tick to which libvpx rounds times: down on input, to the nearest tick on output (vp9/vp9_cx_iface.c)."""
_VPX_LARGEST_TERM: Final = 1_000_000_000
"""The largest numerator or denominator of a time base in libvpx (``g_timebase`` of vp9/vp9_cx_iface.c)."""
_H264_DEEPEST_REORDER = 16
_DOVI_NAL_HEADER = b"\x00\x00\x00\x01\x7c\x01"  # a start code and the header of an HEVC NAL unit of type 62
_CHANGEABLE: Final = ("bitrate", "maxbitrate", "vbvbufsize", "cq")
_BEST, _WORST = 0, 51
_OPEN_WITH: Final = "Open the session with maxrate_bps equal to bitrate_bps and a bufsize_bits (codecfleet.Encoder)."


class SoftwareEncoder(EncoderSession[VideoFrame]):
    """A session of an FFmpeg software encoder; it changes the time, ``pict_type`` and ``duration`` of given frames.

    ``EncoderFailed`` if the encoder does not open with these settings.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self.name = settings.implementation
        self._context: VideoCodecContext | None = _opened(settings)
        self.extradata = bytes(self._context.extradata or b"")
        self.reorder_frames = reorder_depth(settings, self.extradata)
        self._time_base = encoder_time_base(settings.codec, settings.time_base)
        # the pts of each picture, keyed by the pts that the encoder was given
        self._awaited: dict[int, int] = {}
        self._last_encoder_pts: int | None = None
        self._dovi: dict[int, bytes] = {}
        self._messages: dict[int, tuple[SeiMessage, ...]] = {}
        self._rate = settings.rate
        rate = settings.format.frame_rate
        self._nominal_ticks = max(1, round(1 / (rate * self._time_base)))

    def close(self) -> None:
        """Free the encoder's memory and threads now, instead of when the session is garbage-collected."""
        self._state = SessionState.CLOSED
        self._context = None

    def encode(
        self, picture: VideoFrame, *, keyframe: bool = False, sei_messages: Sequence[SeiMessage] = ()
    ) -> list[EncodedPacket]:
        """Encode a picture with the size, pixel format and time base of the settings; VP9 has no SEI messages."""
        if sei_messages and self._settings.codec is Codec.VP9:
            raise Unsupported(f"{self.name} does not write SEI messages", "Omit SEI messages, or use another codec.")
        self._check(picture)
        # Otherwise the encoder would copy the decoder's picture type.
        picture.pict_type = PictureType.I if keyframe else PictureType.NONE
        picture.duration = self._nominal_ticks
        pts = picture.pts or 0
        if self._settings.dolby_vision:
            self._dovi[pts] = frame_side_data(picture).get("DOVI_RPU_BUFFER", b"")
        if sei_messages:
            self._messages[pts] = tuple(sei_messages)
        picture.pts, picture.time_base = self._encoder_pts(pts), self._time_base
        self._awaited[picture.pts] = pts
        return list(self._packets(picture))

    def reconfigure(self, change: RateChange) -> None:
        """Change x264's peak and buffer, and its bitrate or its quality, from about the next picture on."""
        self._require_open()
        wanted = _changed_rate(self._settings.codec, self.name, self._rate, change)
        if self._context is None:
            return
        try:
            for name, value in _rate_options(wanted).items():
                _set_option(self._context, name, value)
        except ValueError as error:
            raise EncoderFailed(f"{self.name} did not take the new rates: {error}", RETRY_ADVICE) from error
        self._rate = wanted

    def _encoder_pts(self, pts: int) -> int:
        """Return the pts for the encoder: the picture's pts, or the smallest pts above the previous pts."""
        if self._time_base == self._settings.time_base:
            return pts
        own = floor(pts * self._settings.time_base / self._time_base)
        last = self._last_encoder_pts
        self._last_encoder_pts = own if last is None else max(own, last + 1)
        return self._last_encoder_pts

    def finish(self) -> list[EncodedPacket]:
        """Return the remaining packets, after checking that no picture is missing."""
        return list(self.remaining())

    def remaining(self) -> Iterator[EncodedPacket]:
        """Yield the packets that the encoder still holds, one by one; the session then ends."""
        self._require_open()
        if self._last_pts_ticks is not None:
            yield from self._packets(None)
        self._end(list(self._awaited.values()), EncoderFailed)

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
        self._last_pts_ticks = self._later_pts(frame.pts)

    def _packets(self, frame: VideoFrame | None) -> Iterator[EncodedPacket]:
        if self._context is None:
            return
        found = self._context.encode_lazy(frame)
        while (packet := self._next(found)) is not None:
            yield self._packet(packet)

    def _next(self, found: "Iterator[Packet[Stream]]") -> "Packet[Stream] | None":
        try:
            return next(found, None)
        except MemoryError:
            raise
        except (av.error.FFmpegError, ValueError) as error:
            raise EncoderFailed(f"{self.name} failed: {getattr(error, 'strerror', error)}", RETRY_ADVICE) from error

    def _packet(self, packet: "Packet[Stream]") -> EncodedPacket:
        pts = None if packet.pts is None else self._awaited.pop(packet.pts, None)
        if pts is None:
            message = f"{self.name} returned an unexpected packet, at {packet.pts}"
            raise EncoderFailed(message, RETRY_ADVICE)
        self._count_packet(EncoderFailed, is_keyframe=packet.is_keyframe)
        # A picture's dynamic metadata is the last NAL unit of its access unit. FFmpeg returns the unit with emulation
        # prevention, so it is written unchanged.
        metadata = self._dovi.pop(pts, b"")
        payload = bytes(packet) + (_DOVI_NAL_HEADER + metadata if metadata else b"")
        if messages := self._messages.pop(pts, ()):
            payload = with_messages(self._settings.codec, payload, messages)
        return EncodedPacket(pts, packet.is_keyframe, payload)


def _set_option(context: "VideoCodecContext", name: str, value: str) -> None:
    """Set an option of an open encoder, with FFmpeg's AVOption interface; ``ValueError`` if the encoder rejects it."""
    code = ffmpeg().av_opt_set(context_address(context), name.encode(), value.encode(), _SEARCH_CHILDREN)
    if code < 0:
        raise ValueError(f"FFmpeg does not set {name}={value} (error {code})")


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
        # With slice threads, PyAV's default, x264's threads race in interlaced pictures and with 10 bits.
        context.thread_type = ThreadType.FRAME if settings.codec is Codec.H264 else context.thread_type
        context.flags |= int(Flags.global_header) | int(Flags.frame_duration) | int(Flags.closed_gop)
        location = _CHROMA_LOCATIONS[colour.chroma_location]
        context.options = dict(settings.options) | {"chroma_sample_location": location}
        with ordinary_scheduling():
            context.open()
    except (av.error.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        size = f"{picture.width}x{picture.height} {picture.pix_fmt}"
        raise EncoderFailed(f"{settings.implementation} does not open for {size} with its options: {reason}") from error
    if context.options:
        raise EncoderFailed(f"{settings.implementation} has no option {', '.join(sorted(context.options))}")
    return context


def encoder_time_base(codec: Codec, time_base: Fraction) -> Fraction:
    """Return the tick of an encoder's times: the pictures' tick, unless libvpx would round or refuse that tick.

    In that case libvpx gets another tick, in which two pictures still differ by at least 1. This affects only rate
    control, because packets keep the times of the pictures.
    """
    exact = time_base % _VPX_TICK_S == 0 or time_base > 2 * _VPX_TICK_S
    taken = max(time_base.numerator, time_base.denominator) <= _VPX_LARGEST_TERM
    return time_base if codec is not Codec.VP9 or (exact and taken) else _VPX_TICK_S


def reorder_depth(settings: EncoderSettings, extradata: bytes, unstated: int = _H264_DEEPEST_REORDER) -> int:
    """Return the reorder depth that the encoder's parameter sets state (H.264 and H.265, E.2.1), or ``unstated``.

    Packets of AV1 and VP9 come in presentation order, since each packet includes any pictures that are not shown.
    """
    if settings.codec in (Codec.AV1, Codec.VP9):
        return 0
    stated = max_reorder_frames(settings.codec, extradata)
    return unstated if stated is None else stated


def _changed_rate(codec: Codec, name: str, rate: RateControl, change: RateChange) -> RateControl:
    """Return the rate control after a change; ``Unsupported`` if the encoder ``name`` cannot make this change."""
    given = {each.name: value for each in fields(change) if (value := getattr(change, each.name)) is not None}
    if codec is not Codec.H264:
        message = f"{name} cannot change its rates while it encodes"
        raise Unsupported(message, 'Use codec="h264" or encoder="nvenc", or open another session with the new rates.')
    if wrong := [key for key in given if key not in _CHANGEABLE]:
        message = f"{name} cannot change {', '.join(wrong)} while it encodes"
        raise Unsupported(message, f'Change only {", ".join(_CHANGEABLE)}, or use encoder="nvenc".')
    for key, value in given.items():
        least, most = (_BEST, _WORST) if key == "cq" else (LEAST_RATE_BPS, (1 << 31) - 1)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Unsupported(f"{name} cannot use {key}={value!r}", f"Give a whole number from {least} to {most}.")
    return _of_quality(name, rate, change) if rate.quality is not None else _of_bitrate(name, rate, change)


def _of_quality(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if change.bitrate is not None:
        raise Unsupported(f"{name} encodes at a constant quality, and has no bitrate to change", "Give cq instead.")
    return replace(_limited(name, rate, change), quality=rate.quality if change.cq is None else change.cq)


def _of_bitrate(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if change.cq is not None:
        raise Unsupported(f"{name} encodes at a bitrate, and has no quality to change", "Give bitrate instead.")
    is_constant = rate.maxrate_bps == rate.bitrate_bps
    if change.bitrate is not None and not is_constant:
        raise Unsupported(f"{name} can change its bitrate only if the bitrate is constant", _OPEN_WITH)
    bitrate = change.bitrate or rate.bitrate_bps
    limited = _limited(name, rate, change)
    if is_constant and change.maxbitrate not in (None, bitrate):
        raise Unsupported(f"{name} encodes at a constant bitrate, which has no peak", "Leave maxbitrate out.")
    limited = replace(limited, bitrate_bps=bitrate, maxrate_bps=bitrate if is_constant else limited.maxrate_bps)
    if (limited.maxrate_bps or 0) < (bitrate or 0):
        message = f"the peak of {limited.maxrate_bps} bit/s is below {name}'s average of {bitrate}"
        raise Unsupported(message, "Raise maxbitrate.")
    return limited


def _limited(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if rate.maxrate_bps is None and (change.bitrate or change.maxbitrate or change.vbvbufsize):
        raise Unsupported(f"{name} can change its bitrate and buffer only if it opened with a buffer", _OPEN_WITH)
    return replace(
        rate,
        maxrate_bps=change.maxbitrate or rate.maxrate_bps,
        bufsize_bits=change.vbvbufsize or rate.bufsize_bits,
    )


def _rate_options(rate: RateControl) -> dict[str, str]:
    """Return the options of FFmpeg's libx264 that set a rate."""
    values = {"b": rate.bitrate_bps, "crf": rate.quality, "maxrate": rate.maxrate_bps, "bufsize": rate.bufsize_bits}
    return {name: str(value) for name, value in values.items() if value is not None}
