"""``codecfleet.Encoder`` encodes pictures into packets, in this process."""

from collections.abc import Iterable
from fractions import Fraction
from typing import Unpack

from ...actors.device.interface import WorkerDevice
from ...actors.encode.settings import Codec, RateChange
from ...actors.media.values import SeiMessage
from ...cluster.worker.own_gpu import own_gpu
from ..encode.request import EncodeFrame, PictureOptions
from ..request.options import build
from .encoding import EncodingSession, PacketsRequest, unwrapped
from .own_thread import OwnThread
from .packet import Packet


class EncoderOptions(PictureOptions, total=False):
    """The options of ``Encoder``, before ``PacketsRequest`` checks them."""

    maxrate_bps: int | str | None
    bufsize_bits: int | str | None
    repeat_headers: bool


class Encoder(OwnThread):
    """Encodes pictures as they arrive into packets to send, on NVENC or in software.

        with codecfleet.Encoder("h264", fps=25, bitrate_bps=2_000_000) as encoder:
            for picture in camera:
                for packet in encoder.encode(picture):
                    send(packet.data)
            for packet in encoder.finish():
                send(packet.data)

    In an event loop use ``async with`` and await ``encode_async``, ``reconfigure_async`` and ``finish_async``. Pictures
    are of the kinds that ``codecfleet.encode`` accepts, all of one size and format; the first picture opens the
    encoder. Packets come in decoding order, H.264 and HEVC in Annex B; an encoder may hold back a few pictures. Calls
    run one after the other in the encoder's own thread. Source: PyNvVideoCodec programming guide, section 2.3.

    Args:
        codec: h264, hevc, av1 or vp9.
        fps: the nominal rate; picture n is shown at n / ``fps``, unless a ``time_base`` is given.
        gpu: the device to use instead of this process's GPU, for example a fake one in tests.
        **options: the options of ``codecfleet.encode`` except ``output`` and ``overwrite``, and the following.

            - ``time_base``: the tick of the pictures' own times.
            - ``maxrate_bps``, ``bufsize_bits``: the peak rate, and the buffer over which it is measured. For H.264
              and HEVC, a ``bitrate_bps`` without ``maxrate_bps`` is constant over a buffer of one second.
            - ``repeat_headers``: write the parameter sets before each keyframe (default), so that a receiver can begin
              at any keyframe; if False, only ``extradata`` has the parameter sets.

    Raises:
        UsageError: the options are invalid.
    """

    def __init__(
        self,
        codec: Codec | str = Codec.H264,
        *,
        fps: Fraction | int,
        gpu: WorkerDevice | None = None,
        **options: Unpack[EncoderOptions],
    ) -> None:
        fields = {"codec": codec, "fps": fps, **options}
        request = build(PacketsRequest, fields, str, "docs/api.md lists the options.")
        self._session = EncodingSession(request, lambda: gpu or own_gpu(request.device, request.context))
        super().__init__("encoder", self._session.close)

    @property
    def name(self) -> str:
        """FFmpeg's name of the encoder, such as ``h264_nvenc``; "" before the first picture."""
        return self._session.pictures.settings.implementation if self._session.is_open else ""

    @property
    def extradata(self) -> bytes:
        """The initial parameter sets; b"" before the first picture, and for VP9."""
        return self._session.pictures.session.extradata if self._session.is_open else b""

    @property
    def reorder_frames(self) -> int:
        """The largest number of pictures by which decoding order differs from presentation order.

        It is 0 before the first picture.
        """
        return self._session.pictures.session.reorder_frames if self._session.is_open else 0

    @property
    def fallback(self) -> str:
        """Why software encodes pictures that are on a GPU; "" if a GPU encodes them."""
        return self._session.pictures.fallback if self._session.is_open else ""

    def encode(
        self,
        picture: object,
        *,
        time_s: Fraction | None = None,
        keyframe: bool = False,
        sei_messages: Iterable[SeiMessage] = (),
        rates: RateChange | None = None,
    ) -> list[Packet]:
        """Encode a picture or an ``EncodeFrame``, and return the complete packets: none, one or several.

        ``time_s`` is the picture's time in seconds, if there is a ``time_base``; the other options are as in
        ``EncodeFrame``.

        Raises:
            UsageError: the argument is not a picture, does not fit earlier pictures, or has no time; or the encoder is
                closed.
            Unsupported: the encoder does not support the picture, the messages or the rates.
            EncoderFailed: the encoder failed, or was finished.
            DeviceError: the device failed, or NVENC is required and cannot encode the picture.
        """
        frame = unwrapped(
            EncodeFrame(picture, time_s=time_s, keyframe=keyframe, sei_messages=tuple(sei_messages), rates=rates)
        )
        return self._call(self._session.encode, frame)

    async def encode_async(
        self,
        picture: object,
        *,
        time_s: Fraction | None = None,
        keyframe: bool = False,
        sei_messages: Iterable[SeiMessage] = (),
        rates: RateChange | None = None,
    ) -> list[Packet]:
        """Run ``encode`` without blocking the event loop. The packets of a cancelled call are lost."""
        frame = unwrapped(
            EncodeFrame(picture, time_s=time_s, keyframe=keyframe, sei_messages=tuple(sei_messages), rates=rates)
        )
        return await self._awaited(self._session.encode, frame)

    def reconfigure(self, change: RateChange) -> None:
        """Change the rate control from the next picture on.

        Raises:
            Unsupported: the encoder cannot change these values, or they contradict each other. The old values stay.
            DeviceError: the driver refuses the new values.
        """
        self._call(self._session.reconfigure, change)

    async def reconfigure_async(self, change: RateChange) -> None:
        """Run ``reconfigure`` without blocking the event loop."""
        await self._awaited(self._session.reconfigure, change)

    def force_idr(self) -> None:
        """Make the next picture an IDR picture, for a receiver that lost a packet or has just joined."""
        self._session.force_idr()

    def finish(self) -> list[Packet]:
        """Return the remaining packets; the encoder takes no more pictures. Raises the errors of ``encode``."""
        return self._call(self._session.finish)

    async def finish_async(self) -> list[Packet]:
        """Run ``finish`` without blocking the event loop."""
        return await self._awaited(self._session.finish)
