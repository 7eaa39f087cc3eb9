"""Encodes a caller's pictures into packets: settings, one encoder session, and the transfer of pictures to it."""

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.device.interface import PictureMover, PicturePacker, WorkerDevice
from ...actors.encode.pix_fmt import choose_pix_fmt
from ...actors.encode.session import EncodedPacket, EncoderSession
from ...actors.encode.settings import Codec, EncoderSettings, usable_cores, with_threads
from ...actors.encode.software import SoftwareEncoder
from ...actors.media.values import VideoFormat
from ...actors.settle.nvenc import nvenc_request
from ...actors.settle.request import settle
from ...actors.settle.software import software_request
from ...actors.surfaces.device_frame import DevicePicture, TimedPicture
from ...actors.surfaces.device_tensor import DEFAULT_STREAM, DeviceTensor
from ...actors.surfaces.strided import StridedPicture
from ...errors import CodecfleetError, DeviceMemory, EngineUnfit, SessionLimit, Unsupported, UsageError
from .clock import FrameClock
from .device_inputs import DeviceInput, host_array
from .inputs import HostConverter, InputReader, Offered
from .request import EncodeFrame, PictureRequest

_USUAL_RATE: Final = Fraction(25)
_RGB_BECOMES: Final = "yuv420p"  #: The format that nearly every player can show
_FULL_RANGE: Final = 2
_NOTHING_ASKED: Final = EncodeFrame(None)


class PictureSession:
    """One encoder for pictures of one size and format. Call ``read``, ``open`` and ``encode`` in one thread."""

    settings: EncoderSettings  #: this and all fields below are set by ``open``
    session: EncoderSession[Any]
    clock: FrameClock
    from_device: bool  #: whether the encoder reads pictures from GPU memory
    fallback: str  #: why software encodes pictures that are on a GPU; "" if a GPU encodes

    def __init__(self, request: PictureRequest, codec: Codec, *, device: Callable[[], WorkerDevice]) -> None:
        self._request = request
        self._codec = codec
        self._device = device
        self._mover: PictureMover | None = None
        self._packer: PicturePacker | None = None
        self._lacks_kernels = False
        self._reader = InputReader(
            pix_fmt=request.input_pix_fmt,
            size=request.size,
            frame_rate=request.fps or _USUAL_RATE,
            fetch=self._fetched,
            pack=self._packed,
            rgb=request.colour_of_rgb if request.pix_fmt in (None, _RGB_BECOMES) else None,
        )
        self._stack = ExitStack()
        self._shape: tuple[int, int, str, bool] | None = None
        self._ordinal: int | None = None
        self._converter: HostConverter
        self._read = 0
        self.taken = 0
        self.substitute = ""  #: why the file's pixel format is not that of the pictures; "" if the formats are the same

    def read(self, item: object) -> Offered:
        """Read a picture.

        Raises UsageError: ``item`` is not a picture, or differs from the first picture in size, format or place.
        """
        offered = self._reader.read(item)
        self._check_device(offered.device)
        if self._shape is None:
            self._shape = offered.shape
        if offered.shape != self._shape:
            here, first = (
                f"{width}x{height} {pix_fmt} on the {'device' if on_device else 'host'}"
                for width, height, pix_fmt, on_device in (offered.shape, self._shape)
            )
            message = f"frame {self._read} is {here}, but the first is {first}"
            raise UsageError(message, "All frames of a file need the same size and format: convert them first.")
        self._read += 1
        return offered

    def open(self, first: Offered, clock: FrameClock, rate: Fraction) -> None:
        """Open the encoder for pictures like the first picture. Raises CodecfleetError: no encoder fits."""
        source = replace(first.format, frame_rate=rate, interlaced=False)
        on_device = isinstance(first.pixels, DevicePicture)
        choice = self._request.encoder
        hard = choice == "nvenc" or (choice == "auto" and first.from_gpu)
        settings, session, fallback = self._session(source, clock.time_base, hard=hard, on_device=on_device)
        self._stack.enter_context(session)
        self.settings, self.session, self.fallback, self.clock = settings, session, fallback, clock
        self.from_device = on_device and settings.on_device
        self._converter = HostConverter(source, settings.format, clock.time_base)

    def encode(self, offered: Offered) -> list[EncodedPacket]:
        """Encode a picture with the requests that came with it, and return the packets that are complete."""
        ticks = self.clock.ticks(offered)
        self.taken += 1
        asked = offered.asked or _NOTHING_ASKED
        if asked.rates is not None:
            self.session.reconfigure(asked.rates)
        if offered.streams and self.from_device:
            self._open_mover().wait_for(offered.streams)
        picture = self._fit(offered, ticks)
        packets = self.session.encode(picture, keyframe=asked.keyframe, sei_messages=asked.sei_messages)
        if offered.streams is not None and self.from_device:
            # The encoder's package copies the picture asynchronously, and the owner may overwrite it once this function
            # returns.
            self._open_mover().wait_for((self._request.stream or DEFAULT_STREAM,))
        return packets

    def _check_device(self, device: int | None) -> None:
        if device is None:
            return
        if self._ordinal is None:
            self._ordinal = self._device().ordinal
        if device != self._ordinal:
            message = f"a frame is on GPU {device} of this process, but frames are encoded on GPU {self._ordinal}"
            raise UsageError(message, f"Give device={device}.")

    def close(self) -> None:
        """Release the encoder. Idempotent."""
        self._stack.close()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending() and (stack := getattr(self, "_stack", None)) is not None:
            with suppress(CodecfleetError):
                stack.close()

    def _fit(self, offered: Offered, ticks: int) -> VideoFrame | TimedPicture:
        pixels = offered.pixels
        if isinstance(pixels, VideoFrame):
            return self._converter.converted(pixels, ticks)
        if self.from_device:
            return TimedPicture(pixels.frame, ticks)
        return self._converter.converted(self._wait_for(offered.device, offered.streams or ()).to_host(pixels), ticks)

    def _open_mover(self) -> PictureMover:
        if self._mover is None:
            self._mover = self._stack.enter_context(closing(self._device().open_mover()))
        return self._mover

    def _wait_for(self, device: int | None, streams: Iterable[int]) -> PictureMover:
        """Wait for the streams that write a caller's memory on the encoder's GPU; return the copier for that memory."""
        self._check_device(device)
        mover, stream = self._open_mover(), self._request.stream
        mover.wait_for(streams if stream is None else {*streams, stream})
        return mover

    def _fetched(self, tensor: DeviceTensor) -> NDArray[Any]:
        return host_array(tensor, self._wait_for(tensor.device, tensor.streams).fetch)

    def _packed(self, picture: StridedPicture, found: DeviceInput) -> DevicePicture | None:
        """Return a copy without padding on the device; None if the device has no kernels, or software encodes."""
        if self._request.encoder == "software" or self._lacks_kernels:
            return None
        if self._packer is None:
            try:
                self._packer = self._stack.enter_context(closing(self._device().open_packer()))
            except EngineUnfit:
                self._lacks_kernels = True
                return None
        self._wait_for(found.device, found.streams)
        return self._packer.pack(picture)

    def _session(
        self, source: VideoFormat, time_base: Fraction, *, hard: bool, on_device: bool
    ) -> tuple[EncoderSettings, EncoderSession[Any], str]:
        """Return the settings, an open session, and the reason if the session is not on the frames' GPU."""
        request, fallback = self._request, ""
        if hard:
            try:
                return *self._on_nvenc(source, time_base, on_device=on_device), ""
            except (EngineUnfit, SessionLimit, DeviceMemory, Unsupported) as error:
                if request.encoder == "nvenc":
                    raise
                fallback = error.message
        asked = software_request(
            self._codec,
            rate=request.rate,
            preset=request.preset,
            options=request.encoder_options,
            without_nvenc=fallback,
        )
        settings = settle(replace(asked, segments=1), self._target(source), time_base)
        return settings, SoftwareEncoder(with_threads(settings, usable_cores())), fallback

    def _on_nvenc(
        self, source: VideoFormat, time_base: Fraction, *, on_device: bool
    ) -> tuple[EncoderSettings, EncoderSession[Any]]:
        request = self._request
        if on_device and request.pix_fmt not in (None, source.pix_fmt):
            message = f"frames of {source.pix_fmt} on the device are encoded as they are, not as {request.pix_fmt}"
            raise Unsupported(message, 'Convert them first, or use encoder="software".')
        target = self._shaped(source, source.pix_fmt) if on_device else self._target(source)
        asked = nvenc_request(
            self._codec, rate=request.rate, preset=request.preset, options=request.encoder_options, single_session=True
        )
        device = self._device()
        settings = settle(asked, target, time_base, device.encoder_capabilities(self._codec))
        return settings, device.open_encoder(settings, from_host=not on_device, stream=request.stream)

    def _target(self, source: VideoFormat) -> VideoFormat:
        """Return the format for pictures on the host: the requested one, else their own if the encoder supports it."""
        asked = self._request.pix_fmt
        wanted = asked or (_RGB_BECOMES if _is_rgb(source.pix_fmt) else source.pix_fmt)
        pix_fmt, reason = choose_pix_fmt(
            self._codec, wanted, width=source.width, height=source.height, asked=asked is not None
        )
        self.substitute = reason or ""
        return self._shaped(source, pix_fmt)

    def _shaped(self, source: VideoFormat, pix_fmt: str) -> VideoFormat:
        colour = source.colour
        if _is_rgb(source.pix_fmt) and not _is_rgb(pix_fmt):
            colour = self._request.colour_of_rgb
        elif source.pix_fmt.startswith("yuvj"):
            # The names of these old formats state full range.
            colour = replace(colour, range=_FULL_RANGE)
        shape = self._request.sample_aspect_ratio or source.sample_aspect_ratio
        return replace(source, pix_fmt=pix_fmt, colour=colour, sample_aspect_ratio=shape)


def _is_rgb(pix_fmt: str) -> bool:
    return PixelFormat(pix_fmt).is_rgb
