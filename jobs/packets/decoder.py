"""``codecfleet.Decoder`` decodes packets into frames, in this process."""

from ...actors.decode.nvdec_options import PLAIN, NvdecOptions
from ...actors.device.interface import WorkerDevice
from ...actors.surfaces.frames import Frame
from ...cluster.worker.own_gpu import own_gpu
from ...errors import UsageError
from ..frames.request import Decoder as DecoderChoice
from ..frames.request import Place
from .decoding import DecoderRequest, DecodingSession
from .own_thread import OwnThread

_MOST_PIXELS = (1 << 31) - 1


class Decoder(OwnThread):
    """Decodes the packets of one track as they arrive: on NVDEC if it decodes them exactly, otherwise in software.

        with codecfleet.Decoder("h264") as decoder:
            for packet in received:
                for frame in decoder.decode(packet):
                    show(frame)
            for frame in decoder.flush():
                show(frame)

    In an event loop use ``async with`` and await ``decode_async`` and ``flush_async``. Give packets in decoding order,
    each with one whole picture; those before the first keyframe are skipped. Frames come in presentation order, with
    the times of their packets, and stay valid. Each frame has its own size, colours and HDR values, which a track may
    change at a keyframe. Calls run one after the other in the decoder's own thread. Source: PyNvVideoCodec programming
    guide, section 2.2.

    Args:
        codec: ``"h264"``, ``"hevc"``, ``"av1"``, ``"vp9"``, ``"vp8"``, or, for software, any other codec name of
            FFmpeg.
        extradata: the codec's configuration (avcC, hvcC, av1C, or Annex B parameter sets), if the packets do not hold
            it.
        place: where frames are: on the ``"host"``, on the ``"device"``, or ``"auto"``: on the GPU if it decodes.
        decoder: ``"auto"``, ``"software"`` or ``"nvdec"``. With ``"auto"``, software takes over at a keyframe that
            NVDEC cannot decode; ``fallback`` says why.
        nvdec: latency, SEI messages, decode statistics and the largest size. Software supports only the first two.
        max_pixels: the most pixels of a picture; larger pictures count as damage.
        device: the GPU, by its CUDA ordinal in this process or its UUID; the first by default.
        context: the handle of your CUDA context to work in; by default the device's primary context.
        stream: the handle of the CUDA stream in which you use frames on the device, if their consumers do not state a
            stream.
        gpu: the device to use instead of this process's GPU, for example a fake one in tests.

    Raises:
        UsageError: there is no such decoder, or software lacks one of the options.
    """

    def __init__(
        self,
        codec: str,
        *,
        extradata: bytes = b"",
        place: Place = "host",
        decoder: DecoderChoice = "auto",
        nvdec: NvdecOptions = PLAIN,
        max_pixels: int = _MOST_PIXELS,
        device: int | str | None = None,
        context: int | None = None,
        stream: int | None = None,
        gpu: WorkerDevice | None = None,
    ) -> None:
        _check(place, decoder, nvdec)
        request = DecoderRequest(
            codec=str(codec),
            extradata=bytes(extradata),
            place=place,
            decoder=decoder,
            nvdec=nvdec,
            max_pixels=max_pixels,
            stream=stream,
        )
        self._session = DecodingSession(request, lambda: gpu or own_gpu(device, context))
        super().__init__("decoder", self._session.close)

    @property
    def decoded_by(self) -> str:
        """The current decoder: ``"nvdec"`` or ``"software"``; "" before the first keyframe."""
        return self._session.decoded_by

    @property
    def fallback(self) -> str:
        """Why software decodes; "" if NVDEC decodes."""
        return self._session.fallback

    @property
    def skipped_packets(self) -> int:
        """How many packets were skipped while decoding waited for a keyframe."""
        return self._session.skipped

    @property
    def failed_packets(self) -> int:
        """How many packets software could not decode."""
        return self._session.tally.failed_packets

    @property
    def corrupt_frames(self) -> int:
        """How many frames software decoded with damage."""
        return self._session.tally.corrupt_frames

    def decode(self, packet: object) -> list[Frame]:
        """Decode a ``Packet``, or a packet of PyAV; return the complete frames: none, one or several.

        Raises:
            UsageError: the argument is not a packet, its time base differs from that of earlier packets, or the decoder
                is closed.
            EngineUnfit: NVDEC is required, and cannot decode the packet.
            DeviceError: the device failed, or its frames are doubtful. Frames that were not returned are lost; decoding
                starts again at the next keyframe.
        """
        return self._call(self._session.decode, packet)

    async def decode_async(self, packet: object) -> list[Frame]:
        """Run ``decode`` without blocking the event loop. The frames of a cancelled call are lost."""
        return await self._awaited(self._session.decode, packet)

    def flush(self) -> list[Frame]:
        """Return the remaining frames; decoding starts again at the next keyframe. Raises the errors of ``decode``."""
        return self._call(self._session.flush)

    async def flush_async(self) -> list[Frame]:
        """Run ``flush`` without blocking the event loop."""
        return await self._awaited(self._session.flush)


def _check(place: str, decoder: str, nvdec: NvdecOptions) -> None:
    for name, value, known in (
        ("place", place, ("host", "device", "auto")),
        ("decoder", decoder, ("auto", "software", "nvdec")),
    ):
        if value not in known:
            raise UsageError(f"{name} {value!r} is not one of {', '.join(known)}", f"Give one of them as {name}.")
    if decoder != "nvdec" and (nvdec.statistics or nvdec.largest is not None):
        message = "software decoding has no statistics and no largest size"
        raise UsageError(message, 'Add decoder="nvdec", or leave these options out.')
