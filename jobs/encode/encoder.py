"""From frames that a user has to one file: an encoder, a clock and a muxer, all in one thread."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.device.interface import PictureMover, WorkerDevice
from ...actors.encode.pix_fmt import choose_pix_fmt
from ...actors.encode.session import EncodedPacket, EncoderSession
from ...actors.encode.settings import Codec, EncoderSettings
from ...actors.encode.software import SoftwareEncoder
from ...actors.encode.threads import usable_cores, with_threads
from ...actors.media.values import VideoFormat
from ...actors.settle.nvenc import nvenc_request
from ...actors.settle.request import settle
from ...actors.settle.software import software_request
from ...actors.surfaces.device_frame import DevicePicture, TimedPicture
from ...actors.surfaces.device_tensor import DEFAULT_STREAM, DeviceTensor
from ...errors import DeviceMemory, EngineUnfit, ProofFailed, SessionLimit, Unsupported, UsageError
from ..carry.containers import Container
from ..join.proof import file_sha256, shown_frames
from .clock import FrameClock, measured_rate
from .file import FrameFile
from .inputs import HostConverter, InputReader, Offered
from .request import EncodeFrame, EncodeReport, EncodeRequest

PEEK_FRAMES: Final = 2
"""Frames with times of their own that are looked at before the encoder opens: between them lies the frame rate."""
_USUAL_RATE: Final = Fraction(25)
_RGB_BECOMES: Final = "yuv420p"
"""What nearly every player takes."""
_FULL_RANGE: Final = 2
_NOTHING_ASKED: Final = EncodeFrame(None)


@dataclass(slots=True, eq=False)
class _Opened:
    """What is open while frames are encoded. ``mover`` is a way to the device, opened when it is asked for first.

    ``stream`` is the CUDA stream in which pictures on the device are read, None the default one.
    """

    settings: EncoderSettings
    session: EncoderSession[Any]
    file: FrameFile
    clock: FrameClock
    converter: HostConverter
    mover: Callable[[], PictureMover]
    from_device: bool
    fallback: str
    stream: int | None
    taken: int = 0

    def encode(self, offered: Offered) -> None:
        """Encode a frame, and write what is ready."""
        ticks = self.clock.ticks(offered)
        self.taken += 1
        asked = offered.asked or _NOTHING_ASKED
        if asked.rates is not None:
            self.session.reconfigure(asked.rates)
        if offered.streams:
            self.mover().wait_for(offered.streams)
        picture = self._fit(offered.pixels, ticks)
        packets = self.session.encode(picture, keyframe=asked.keyframe, sei_messages=asked.sei_messages)
        if offered.streams is not None and self.from_device:
            # The package copies it in a stream and waits for no copy; its owner may write to it again.
            self.mover().wait_for((self.stream or DEFAULT_STREAM,))
        self.write(packets)

    def write(self, packets: list[EncodedPacket]) -> None:
        """Write packets."""
        for packet in packets:
            self.file.write(packet)

    def _fit(self, pixels: VideoFrame | DevicePicture, ticks: int) -> VideoFrame | TimedPicture:
        if isinstance(pixels, VideoFrame):
            return self.converter.converted(pixels, ticks)
        if self.from_device:
            return TimedPicture(pixels.frame, ticks)
        return self.converter.converted(self.mover().to_host(pixels), ticks)


class FrameEncoder:
    """Encodes frames into a file. One thread calls all of it but ``cancel`` and ``report``.

    Args:
        request: how.
        codec: to what.
        container: of the file.
        path: of the file.
        device: the GPU of this process, if it turns out to be one.
    """

    def __init__(
        self,
        request: EncodeRequest,
        codec: Codec,
        container: Container,
        path: Path,
        *,
        device: Callable[[], WorkerDevice],
    ) -> None:
        self._request = request
        self._codec = codec
        self._container = container
        self._path = path
        self._device = device
        self._mover: PictureMover | None = None
        self._reader = InputReader(
            pix_fmt=request.input_pix_fmt, size=request.size, frame_rate=request.fps or _USUAL_RATE, fetch=self._fetched
        )
        self._stack = ExitStack()
        self._peeked: list[Offered] = []
        self._shape: tuple[int, int, str, bool] | None = None
        self._opened: _Opened | None = None
        self._cancelled = False
        self._ordinal: int | None = None
        self._substitute = ""

    def add(self, item: object) -> None:
        """Take the next frame.

        Raises:
            UsageError: it is none, does not fit those before it, or has no time.
            CodecfleetError: it cannot be encoded or written.
        """
        offered = self._reader.read(item)
        self._check_like_first(offered)
        if self._opened is not None:
            self._opened.encode(offered)
            return
        self._peeked.append(offered)
        if self._request.fps is not None or len(self._peeked) == PEEK_FRAMES:
            self._begin()

    def add_all(self, items: Iterable[object]) -> None:
        """Take all frames there are, until cancelled."""
        for item in items:
            if self._cancelled:
                return
            self.add(item)

    def finish(self) -> None:
        """Write what the encoder still holds, and close the file.

        Raises:
            UsageError: there was no frame.
            CodecfleetError: the rest cannot be encoded or written.
        """
        opened = self._opened or self._begin()
        opened.write(opened.session.finish())
        opened.file.finish()
        self._stack.close()

    def cancel(self) -> None:
        """Take no more frames; callable from any thread."""
        self._cancelled = True

    def abandon(self) -> None:
        """Give up whatever is open; the caller deletes the file."""
        self._peeked = []
        if self._opened is not None:
            self._opened.file.abandon()
        self._stack.close()

    def report(self, began: float) -> EncodeReport:
        """Read the file back and say what is in it; ``began`` is when, by ``time.monotonic``, it all began.

        Raises:
            ProofFailed: it does not show every frame at its time.
        """
        opened = self._opened
        if opened is None:
            raise ProofFailed("nothing was encoded", "Give at least one frame.")
        picture = opened.settings.format
        shown = shown_frames(self._path, self._container, opened.file.joined, opened.taken)
        return EncodeReport(
            output=self._request.output,
            codec=opened.settings.codec.value,
            encoder=opened.settings.implementation,
            from_device=opened.from_device,
            fallback=opened.fallback,
            width=picture.width,
            height=picture.height,
            pix_fmt=picture.pix_fmt,
            frames_in=opened.taken,
            frames_out=shown,
            duration_s=opened.clock.length_s + 1 / picture.frame_rate,
            output_bytes=self._path.stat().st_size,
            output_sha256=file_sha256(self._path),
            wall_s=time.monotonic() - began,
            substitute=self._substitute,
        )

    def _check_like_first(self, offered: Offered) -> None:
        self._check_device(offered.device)
        if self._shape is None:
            self._shape = offered.shape
        if offered.shape == self._shape:
            return
        number = len(self._peeked) if self._opened is None else self._opened.taken
        here, first = (
            f"{width}x{height} {pix_fmt} on the {'device' if on_device else 'host'}"
            for width, height, pix_fmt, on_device in (offered.shape, self._shape)
        )
        message = f"frame {number} is {here}, and the first is {first}"
        raise UsageError(message, "All frames of a file have one size and one format: convert them first.")

    def _check_device(self, device: int | None) -> None:
        if device is None:
            return
        if self._ordinal is None:
            self._ordinal = self._device().ordinal
        if device != self._ordinal:
            message = f"a frame is on GPU {device} of this process, and frames are encoded on GPU {self._ordinal}"
            raise UsageError(message, f"Give device={device}.")

    def _begin(self) -> _Opened:
        if not self._peeked:
            raise UsageError("there are no frames to encode", "Give one at least.")
        clock = FrameClock(self._peeked, fps=self._request.fps, time_base=self._request.time_base)
        opened = self._opened = self._open(self._peeked[0], clock)
        peeked, self._peeked = self._peeked, []
        for offered in peeked:
            opened.encode(offered)
        return opened

    def _open(self, first: Offered, clock: FrameClock) -> _Opened:
        rate = self._request.fps or measured_rate(self._peeked)
        source = replace(first.format, frame_rate=rate, interlaced=False)
        on_device = isinstance(first.pixels, DevicePicture)
        choice = self._request.encoder
        hard = choice == "nvenc" or (choice == "auto" and first.from_gpu)
        settings, session, fallback = self._session(source, clock.time_base, hard=hard, on_device=on_device)
        self._stack.enter_context(session)
        file = FrameFile(
            self._path, self._container, settings, extradata=session.extradata, reorder_frames=session.reorder_frames
        )
        return _Opened(
            settings=settings,
            session=session,
            file=file,
            clock=clock,
            converter=HostConverter(source, settings.format, clock.time_base),
            mover=self._open_mover,
            from_device=on_device and settings.on_device,
            fallback=fallback,
            stream=self._request.stream,
        )

    def _open_mover(self) -> PictureMover:
        if self._mover is None:
            self._mover = self._stack.enter_context(closing(self._device().open_mover()))
        return self._mover

    def _fetched(self, tensor: DeviceTensor) -> NDArray[np.uint8]:
        self._check_device(tensor.device)
        mover = self._open_mover()
        mover.wait_for(tensor.streams if self._request.stream is None else {*tensor.streams, self._request.stream})
        return mover.fetch(tensor.address, prod(tensor.shape) * tensor.item_bytes)

    def _session(
        self, source: VideoFormat, time_base: Fraction, *, hard: bool, on_device: bool
    ) -> tuple[EncoderSettings, EncoderSession[Any], str]:
        """Return what encodes, opened, and why it is not the GPU on which the frames lie."""
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
        """Return what pictures on the host become: what they are, where the encoder has that."""
        asked = self._request.pix_fmt
        wanted = asked or (_RGB_BECOMES if _is_rgb(source.pix_fmt) else source.pix_fmt)
        pix_fmt, reason = choose_pix_fmt(
            self._codec, wanted, width=source.width, height=source.height, asked=asked is not None
        )
        self._substitute = reason or ""
        return self._shaped(source, pix_fmt)

    def _shaped(self, source: VideoFormat, pix_fmt: str) -> VideoFormat:
        colour = source.colour
        if _is_rgb(source.pix_fmt) and not _is_rgb(pix_fmt):
            colour = self._request.colour_of_rgb
        elif source.pix_fmt.startswith("yuvj"):
            # The old full-range formats say it in their name; nothing else needs to.
            colour = replace(colour, range=_FULL_RANGE)
        shape = self._request.sample_aspect_ratio or source.sample_aspect_ratio
        return replace(source, pix_fmt=pix_fmt, colour=colour, sample_aspect_ratio=shape)


def _is_rgb(pix_fmt: str) -> bool:
    return PixelFormat(pix_fmt).is_rgb
