"""The session behind ``Encoder``, which encodes a caller's pictures into packets, on NVENC or in software."""

from collections import deque
from collections.abc import Callable
from typing import Final, Self

from pydantic import model_validator

from ...actors.bitstream.access_points import annex_b, nal_kind, nal_units
from ...actors.device.interface import WorkerDevice
from ...actors.encode.session import EncodedPacket
from ...actors.encode.settings import Codec, RateChange, RateControl
from ...actors.media.timeline import nominal_ticks, whole_ticks
from ...errors import CodecfleetError, UsageError
from ..encode.clock import FrameClock
from ..encode.inputs import Offered
from ..encode.request import EncodeFrame, PictureRequest, Ratio
from ..encode.session import PictureSession
from ..request.parts import RateLimit
from .packet import Packet

_PARAMETER_SETS: Final = {Codec.H264: (7, 8), Codec.HEVC: (32, 33, 34)}
_WITH_BUFFER: Final = (Codec.H264, Codec.HEVC)


class PacketsRequest(RateLimit, PictureRequest):
    """The options of an ``Encoder``."""

    fps: Ratio  #: the nominal rate; if there is a ``time_base``, pictures have their own times
    repeat_headers: bool = True  #: whether the parameter sets come before each keyframe

    @model_validator(mode="after")
    def _check_peak(self) -> Self:
        if self.maxrate_bps is not None and self.bitrate_bps is None and self.quality is None:
            raise ValueError("`maxrate_bps` limits a `bitrate_bps` or a `quality`: give one of them")
        return self

    @property
    def rate(self) -> RateControl | None:
        """The rate control. For H.264 and HEVC, a bitrate without a peak is constant over a buffer of one second."""
        if self.quality is None and self.bitrate_bps is None:
            return None
        peak, buffer = self.maxrate_bps, self.bufsize_bits
        if peak is None and self.bitrate_bps is not None and (self.codec or Codec.H264) in _WITH_BUFFER:
            peak = buffer = self.bitrate_bps
        return RateControl(quality=self.quality, bitrate_bps=self.bitrate_bps, maxrate_bps=peak, bufsize_bits=buffer)


class EncodingSession:
    """Encodes pictures one by one; the first picture opens the encoder.

    One thread must call all methods but ``force_idr``.
    """

    def __init__(self, request: PacketsRequest, device: Callable[[], WorkerDevice]) -> None:
        self._request = request
        self.codec = request.codec or Codec.H264
        self.pictures = PictureSession(request, self.codec, device=device)
        self.is_open = False
        self._pending: list[RateChange] = []
        self._wants_idr = False
        self._headers = b""
        self._shown: deque[int] = deque()
        self._lead = 0
        self._shown_first = False

    def encode(self, frame: EncodeFrame) -> list[Packet]:
        """Encode a picture, and return the complete packets. Raises the errors of ``PictureSession``."""
        offered = self.pictures.read(frame)
        if not self.is_open:
            self._open(offered)
        pending, self._pending = self._pending, []
        for change in pending:
            self.pictures.session.reconfigure(change)
        packets = self._encoded(offered)
        ticks = self.pictures.clock.last_ticks
        if not self._shown_first:
            # Decoding times precede presentation times by as much as the encoder may reorder.
            self._shown.extend(ticks - number * self._nominal_ticks for number in range(self._lead, 0, -1))
            self._shown_first = True
        self._shown.append(ticks)
        return [self._packet(each) for each in packets]

    def reconfigure(self, change: RateChange) -> None:
        """Change rates from the next picture on, or from the first picture if the encoder is not open yet."""
        if self.is_open:
            self.pictures.session.reconfigure(change)
        else:
            self._pending.append(change)

    def force_idr(self) -> None:
        """Make the next picture an IDR picture."""
        self._wants_idr = True

    def finish(self) -> list[Packet]:
        """Return the remaining packets."""
        return [self._packet(each) for each in self.pictures.session.finish()] if self.is_open else []

    def close(self) -> None:
        """Release the encoder."""
        self.pictures.close()

    def _open(self, first: Offered) -> None:
        request = self._request
        fps = request.fps if request.time_base is None else None
        clock = FrameClock([first], fps=fps, time_base=request.time_base)
        self.pictures.open(first, clock, request.fps)
        self.is_open = True
        self._headers = annex_b(self._parameter_sets(self.pictures.session.extradata))
        self._lead = self.pictures.session.reorder_frames

    @property
    def _nominal_ticks(self) -> int:
        return whole_ticks(nominal_ticks(self._request.fps, self.pictures.clock.time_base))

    def _encoded(self, offered: Offered) -> list[EncodedPacket]:
        """Encode a picture, as an IDR picture if requested.

        If the picture is refused, the request applies to the next picture.
        """
        wants_idr, self._wants_idr = self._wants_idr, False
        try:
            return self.pictures.encode(offered.with_keyframe() if wants_idr else offered)
        except CodecfleetError:
            self._wants_idr |= wants_idr
            raise

    def _packet(self, encoded: EncodedPacket) -> Packet:
        return Packet(
            data=self._with_headers(encoded),
            pts=encoded.pts_ticks,
            dts=self._shown.popleft(),
            duration=self._nominal_ticks,
            time_base=self.pictures.clock.time_base,
            key=encoded.is_keyframe,
        )

    def _with_headers(self, encoded: EncodedPacket) -> bytes:
        """Return a packet's payload, with the current parameter sets before a keyframe."""
        if self.codec not in _PARAMETER_SETS or not self._request.repeat_headers:
            return encoded.payload
        if own := self._parameter_sets(encoded.payload):
            self._headers = annex_b(own)
            return encoded.payload
        return self._headers + encoded.payload if encoded.is_keyframe else encoded.payload

    def _parameter_sets(self, data: bytes) -> list[bytes]:
        kinds, hevc = _PARAMETER_SETS.get(self.codec, ()), self.codec is Codec.HEVC
        return [unit for unit in nal_units(data) if nal_kind(unit, hevc=hevc) in kinds]


def unwrapped(frame: EncodeFrame) -> EncodeFrame:
    """Return the frame, or its picture if that is an ``EncodeFrame``. Raises UsageError: both hold requests."""
    own = frame.picture
    if not isinstance(own, EncodeFrame):
        return frame
    if frame.time_s is not None or frame.keyframe or frame.sei_messages or frame.rates is not None:
        message = "an EncodeFrame already has the requests for its picture"
        raise UsageError(message, "Give only the picture, or only the EncodeFrame.")
    return own
