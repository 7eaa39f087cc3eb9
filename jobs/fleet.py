"""``Fleet``: where jobs are submitted. The public face of everything below."""

import asyncio
import secrets
import weakref
from collections.abc import AsyncIterable, Iterable
from fractions import Fraction
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..actors.decode.nvdec_options import PLAIN, NvdecOptions
from ..actors.device.interface import WorkerDevice
from ..actors.encode.settings import Codec
from ..cluster.client.pool import Pool
from ..errors import UsageError
from .encode.request import EncoderChoice, EncodeReport, EncodeRequest, Matrix
from .frames.request import Decoder, FrameRequest, Place
from .job import Job
from .options import build
from .report.channel import EventChannel
from .report.report import Report
from .request.api_values import exact
from .request.spec import TranscodeSpec
from .run.job_run import JobRun

if TYPE_CHECKING:
    from .frames.stream import FrameStream

__all__ = ["Fleet", "transcode"]

JOBS_AT_ONCE = 4
"""Jobs under way at the same time; more wait their turn, so that open files and memory stay bounded."""


class Fleet:
    """Workers to run jobs on: an embedded Ray of one's own, or a cluster.

    Without ``address`` (and without ``RAY_ADDRESS``) a private Ray is started on this machine, and stopped again;
    inside an existing Ray driver, worker or job, that connection is used and left as it is.

    Args:
        address: a Ray cluster's address.
        workers: how many segments may be in flight; None takes what the machines have.
        jobs_at_once: how many jobs may be under way at the same time.
        pool: where to run instead, such as ``codecfleet.testing.LocalPool``.
        gpu: what ``frames`` and ``encode`` use instead of this process's own GPU.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        jobs_at_once: int = JOBS_AT_ONCE,
        pool: Pool | None = None,
        gpu: WorkerDevice | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            message = f"a fleet needs at least one worker: {workers}"
            raise UsageError(message, "Leave it out to use every core.")
        if jobs_at_once < 1:
            message = f"a fleet must run at least one job at a time: {jobs_at_once}"
            raise UsageError(message, "Leave it out for the default.")
        self._address = address
        self._workers = workers
        self._pool = pool
        self._turns = asyncio.Semaphore(jobs_at_once)
        self._jobs: set[Job] = set()
        self._gpu = gpu
        self._streams: weakref.WeakSet[FrameStream] = weakref.WeakSet()
        self._open = False

    async def __aenter__(self) -> Self:
        """Open the fleet. Workers start with the first job that has something for them to do."""
        if self._pool is None:
            from ..cluster.client.connected_pool import ConnectedPool  # noqa: PLC0415 - imports Ray, which plans do without

            self._pool = ConnectedPool(self._address, slots=self._workers)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the jobs that still run, and release the workers."""
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the jobs that still run, close the streams of frames, and release the workers. Idempotent."""
        self._open = False
        for stream in list(self._streams):
            await stream.aclose()
        for job in list(self._jobs):
            await job.cancel()
        if self._pool is not None:
            await self._pool.aclose()

    async def transcode(self, spec: TranscodeSpec) -> Job:
        """Submit a job and return at once; it begins when its turn comes.

        Raises:
            UsageError: the fleet is not open.
        """
        if not self._open or self._pool is None:
            message = "the fleet is not open"
            raise UsageError(message, "Use it as `async with Fleet() as fleet:`.")
        name = secrets.token_hex(4)
        spec = spec.resolved()
        job = Job(name, spec, lambda channel: self._run(name, spec, channel))
        self._jobs.add(job)
        job.on_end(self._jobs.discard)
        return job

    def frames(
        self,
        source: str,
        *,
        place: Place = "host",
        decoder: Decoder = "auto",
        start_s: Fraction | None = None,
        end_s: Fraction | None = None,
        video_track: int = 0,
        every: int = 1,
        size: tuple[int, int] | None = None,
        pix_fmt: str | None = None,
        threads: int | None = None,
        memory_bytes: int | None = None,
        strict: bool = False,
        nvdec: NvdecOptions = PLAIN,
    ) -> "FrameStream":
        """Decode a source's frames, for analysis and training: those that ``transcode`` takes, at the same times.

        They are decoded here, in this process, several segments at once: on its own GPU if it has one, else in
        software. Raw frames never travel through Ray: inside a task or an actor, this uses the GPU that Ray gave it.
        The fleet need not be open for it.

        Args:
            source: path or fsspec URL.
            place: where frames shall lie: on the host, on the GPU, or on the GPU if it decodes this source.
            decoder: NVDEC where it decodes the source exactly and software elsewhere, or one of them alone.
            start_s: the first frame's least time, in seconds after the source's first picture.
            end_s: frames before this time alone.
            video_track: counted among the video tracks, from 0.
            every: take the frames 0, ``every``, 2 ``every`` ... of that part.
            size: (width, height) that frames get; None is the source's.
            pix_fmt: FFmpeg's pixel format that frames get, such as ``rgb24`` on the host; None is the source's.
            threads: how many segments are decoded at once.
            memory_bytes: how much may be decoded ahead: 2 GiB on the host, a quarter of what is free on the GPU.
            strict: raise ``InputDamaged`` where decoding meets damage, rather than count it.
            nvdec: latency, SEI messages, decode statistics and the largest size, with ``decoder="nvdec"`` alone.

        Raises:
            UsageError: the call makes no sense. All other errors come with the first frame, or in its place.
        """
        request = FrameRequest(
            source=source,
            place=place,
            decoder=decoder,
            start_s=exact("start_s", start_s),
            end_s=exact("end_s", end_s),
            video_track=video_track,
            every=every,
            size=size,
            pix_fmt=pix_fmt,
            threads=threads,
            memory_bytes=memory_bytes,
            strict=strict,
            nvdec=nvdec,
        )
        from .frames.stream import FrameStream  # noqa: PLC0415 - decoders, which submitting jobs does without

        stream = FrameStream(request, self._device)
        self._streams.add(stream)
        return stream

    async def encode(
        self,
        frames: Iterable[object] | AsyncIterable[object],
        output: str,
        *,
        codec: Codec | str | None = None,
        quality: int | None = None,
        bitrate_bps: int | None = None,
        preset: int = 4,
        encoder: EncoderChoice = "auto",
        encoder_options: tuple[tuple[str, str], ...] = (),
        fps: Fraction | int | None = None,
        time_base: Fraction | None = None,
        input_pix_fmt: str | None = None,
        size: tuple[int, int] | None = None,
        pix_fmt: str | None = None,
        matrix: Matrix = "bt709",
        sample_aspect_ratio: Fraction | None = None,
        overwrite: bool = False,
    ) -> EncodeReport:
        """Encode frames that you have into a file, in this process; the file appears at once and whole, or not at all.

        Frames on this process's GPU are encoded by its NVENC without a copy through the host where it has one, else,
        and from the host, by software. The fleet need not be open for it.

        Args:
            frames: pictures, in the order in which they are shown: those of ``frames``, PyAV's ``VideoFrame``s, NumPy
                arrays, raw bytes, DLPack tensors, objects with the CUDA array interface or ``cuda()``; or (picture,
                seconds); or an ``EncodeFrame``, which also asks for a keyframe, SEI messages or new rates.
            output: path or fsspec URL; its extension names the container.
            codec: h264, hevc, av1 or vp9; None is the container's usual one.
            quality: the encoder's own scale, lower is better.
            bitrate_bps: an average, instead of a quality.
            preset: 1 is fastest, 7 slowest.
            encoder: software or NVENC; "auto" is NVENC for frames on the GPU.
            encoder_options: of the encoder, by its own names.
            fps: show frame n at n / ``fps``; None takes the frames' own times.
            time_base: the tick in which the frames' own times are whole; None finds one.
            input_pix_fmt: how arrays are laid out; None takes (rows, columns, 3) for rgb24, 4 for rgba, and
                two-dimensional ones for the rows of NV12, or of P010 where samples have 16 bits, and bytes for NV12.
            size: (width, height) of raw bytes, which do not tell it.
            pix_fmt: what to encode; None is what the frames are, and yuv420p for RGB.
            matrix: what RGB is turned into YUV by; the file says so.
            sample_aspect_ratio: None is the frames' own.
            overwrite: replace what has the output's name.

        Raises:
            UsageError: the call makes no sense, or a frame is none, does not fit the first, or has no time.
            RequestError: the output cannot be had like that.
            DeviceError: the GPU failed, or NVENC is insisted on and cannot do it.
            WorkError: encoding or writing failed.
        """
        from .encode.job import encode_frames  # noqa: PLC0415 - encoders, which submitting jobs does without

        try:
            chosen = None if codec is None else Codec(codec)
        except ValueError:
            message = f"codec {codec!r} is none of {', '.join(Codec)}"
            raise UsageError(message, "Leave it out for the container's usual one.") from None
        request = EncodeRequest(
            output=output,
            codec=chosen,
            quality=quality,
            bitrate_bps=bitrate_bps,
            preset=preset,
            encoder=encoder,
            encoder_options=encoder_options,
            fps=exact("fps", fps),
            time_base=exact("time_base", time_base),
            input_pix_fmt=input_pix_fmt,
            size=size,
            pix_fmt=pix_fmt,
            matrix=matrix,
            sample_aspect_ratio=exact("sample_aspect_ratio", sample_aspect_ratio),
            overwrite=overwrite,
        )
        return await encode_frames(frames, request, self._device)

    def _device(self) -> WorkerDevice:
        if self._gpu is None:
            from ..cluster.worker.own_gpu import own_gpu  # noqa: PLC0415 - what decodes on a GPU, which plans do without

            self._gpu = own_gpu()
        return self._gpu

    async def _run(self, name: str, spec: TranscodeSpec, channel: EventChannel) -> Report:
        async with self._turns:
            if self._pool is None:
                message = "the fleet was closed"
                raise UsageError(message)
            return await JobRun(name, spec, self._pool, channel).run()


def transcode(source: str, output: str, *, address: str | None = None, **options: object) -> Report:
    """Transcode one file and wait for it: the whole of codecfleet in one call.

    ``options`` are those of ``TranscodeSpec``.

    Raises:
        CodecfleetError: whatever went wrong; nothing is left under the output's name. ``UsageError`` for options that
            make no sense.
    """
    fields = {"source": source, "output": output, **options}
    spec = build(TranscodeSpec, fields, str, "docs/config.md lists every option.")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_transcode(spec, address))
    message = "transcode() waits, and an event loop is running here"
    raise UsageError(message, "Use `async with Fleet() as fleet` and `await fleet.transcode(spec)`.")


async def _transcode(spec: TranscodeSpec, address: str | None) -> Report:
    async with Fleet(address, workers=spec.workers) as fleet:
        return await (await fleet.transcode(spec))
