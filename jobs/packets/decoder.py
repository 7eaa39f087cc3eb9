"""``codecfleet.Decoder``: packets in, frames out, in this process."""

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
    """Decodes the packets of one track as they come: on NVDEC where it decodes them exactly, else in software.

        with codecfleet.Decoder("h264") as decoder:
            for packet in received:
                for frame in decoder.decode(packet):
                    show(frame)
            for frame in decoder.flush():
                show(frame)

    In an event loop use ``async with`` and await ``decode_async`` and ``flush_async``. Packets come in decoding order,
    one whole picture each; those before the first keyframe give nothing. Frames come in the order in which they are
    shown, with the times of their packets, and stay valid. Each has its own size, colours and HDR values: a track may
    change them with a keyframe. Calls run one after the other in a thread of the decoder's own. Source:
    PyNvVideoCodec programming guide, section 2.2.

    Args:
        codec: ``"h264"``, ``"hevc"``, ``"av1"``, ``"vp9"``, ``"vp8"``, or another name of FFmpeg's, for software.
        extradata: the codec's configuration (avcC, hvcC, av1C, or Annex B parameter sets), if it does not come with
            the packets.
        place: where frames shall lie: on the ``"host"``, on the ``"device"``, or ``"auto"``: on the GPU if it decodes.
        decoder: ``"auto"``, ``"software"`` or ``"nvdec"``. With ``"auto"`` software decodes from the keyframe on that
            NVDEC does not take; ``fallback`` says why.
        nvdec: latency, SEI messages, decode statistics and the largest size. Software has the first two.
        max_pixels: larger pictures count as damage.
        device: the GPU, by its CUDA ordinal in this process or its UUID; the first by default.
        context: the handle of a CUDA context of yours to work in; else the device's primary one.
        stream: the handle of the CUDA stream in which you use frames on the device, where their consumers do not say
            it.
        gpu: the device to use instead of this process's own GPU, such as a fake one in tests.

    Raises:
        UsageError: there is no such decoder, or software has none of the options.
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
        """What decodes now: ``"nvdec"`` or ``"software"``; "" before the first keyframe."""
        return self._session.decoded_by

    @property
    def fallback(self) -> str:
        """Why software decodes; "" where it does not."""
        return self._session.fallback

    @property
    def skipped_packets(self) -> int:
        """How many packets came where decoding cannot begin."""
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
        """Decode a ``Packet``, or one of PyAV's; return the frames that are complete: none, or several.

        Raises:
            UsageError: the argument is not a packet, or has another time base than those before it; or the decoder is
                closed.
            EngineUnfit: NVDEC is required, and does not decode this.
            DeviceError: the device failed, or its frames are in doubt. Frames that were not handed out are lost; the
                next keyframe begins again.
        """
        return self._call(self._session.decode, packet)

    async def decode_async(self, packet: object) -> list[Frame]:
        """Do as ``decode``, awaited. The frames of a call that is cancelled are lost."""
        return await self._awaited(self._session.decode, packet)

    def flush(self) -> list[Frame]:
        """Return the frames that are left, and begin again with the next keyframe; raises as ``decode``."""
        return self._call(self._session.flush)

    async def flush_async(self) -> list[Frame]:
        """Do as ``flush``, awaited."""
        return await self._awaited(self._session.flush)


def _check(place: str, decoder: str, nvdec: NvdecOptions) -> None:
    for name, value, known in (
        ("place", place, ("host", "device", "auto")),
        ("decoder", decoder, ("auto", "software", "nvdec")),
    ):
        if value not in known:
            raise UsageError(f"{name} {value!r} is not one of {', '.join(known)}", f"Give one of them as {name}.")
    if decoder != "nvdec" and (nvdec.statistics or nvdec.largest is not None):
        message = "software has no decode statistics and no largest size"
        raise UsageError(message, 'Give decoder="nvdec" with them.')
