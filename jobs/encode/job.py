"""``encode`` turns a caller's frames into one file, with one encoder session in this process."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from os import PathLike
from typing import Unpack

from ...actors.device.interface import WorkerDevice
from ...actors.encode.settings import Codec
from ...actors.task_owner import consume_exception
from ...cluster.worker.own_gpu import own_gpu
from ...errors import UsageError
from ..board.threads import in_thread, shielded, uncancellable
from ..carry.containers import container_for
from ..frames.stream import FrameStream
from ..join.publish import check_output, publish, work_folder
from ..join.spool import Spool
from ..request.options import build
from ..request.values import location
from .encoder import FrameEncoder, FrameSink
from .request import EncodeOptions, EncodeReport, EncodeRequest


async def encode(
    frames: Iterable[object] | AsyncIterable[object],
    output: str | PathLike[str],
    *,
    codec: Codec | str | None = None,
    fps: Fraction | int | None = None,
    gpu: WorkerDevice | None = None,
    **options: Unpack[EncodeOptions],
) -> EncodeReport:
    """Encode your frames into a file, in this process; either the complete file appears at once, or no file.

    If this process's GPU has NVENC, it encodes frames on that GPU without a copy through the host; otherwise software
    encodes the frames.

    Args:
        frames: pictures in presentation order: those of ``frames``, PyAV's ``VideoFrame``s, NumPy arrays, raw bytes,
            DLPack tensors, ``EglImage``s, objects with the CUDA array interface or ``cuda()``; also (picture, seconds),
            or an ``EncodeFrame``, which can also request a keyframe, SEI messages or new rates. A plain iterable is
            consumed in a thread.
        output: path or fsspec URL; its extension names the container.
        codec: h264, hevc, av1 or vp9; None is the container's default.
        fps: show frame n at n / ``fps``; None uses the frames' own times.
        gpu: the device to use instead of this process's GPU, for example a fake one in tests.
        **options: how to encode, and how to read arrays.

            - ``quality``: on the encoder's own scale, lower is better; or ``bitrate_bps``, the average.
            - ``preset``: 1 is fastest, 7 slowest; 4 by default.
            - ``encoder``: ``"software"`` or ``"nvenc"``; ``"auto"`` (default) is NVENC for frames on the GPU.
            - ``encoder_options``: the encoder's options, by its own names: ``(("tune", "film"),)``.
            - ``time_base``: the tick in which the frames' own times are whole; found by default.
            - ``input_pix_fmt``: the layout of arrays. By default (rows, columns, 3) is rgb24 and (rows, columns, 4)
              rgba; two-dimensional arrays are the rows of NV12, or of P010 if samples have 16 bits; bytes are NV12.
            - ``size``: (width, height) of raw bytes.
            - ``pix_fmt``: the format to encode; by default the frames' own format, and yuv420p for RGB.
            - ``matrix``: the matrix that converts RGB to YUV, ``"bt709"`` by default; the file states it.
            - ``sample_aspect_ratio``: by default the frames' own ratio.
            - ``overwrite``: replace an existing output.
            - ``device``: the GPU, by its CUDA ordinal in this process or its UUID; the first by default.
            - ``context``: the handle of your CUDA context to work in; by default the device's primary context.
            - ``stream``: the handle of the CUDA stream that writes your frames; NVENC waits for it.

    Raises:
        UsageError: options are invalid; an item is not a frame, does not fit the others, or has no time; there are no
            frames; or the output is the file from which the frames come.
        RequestError: the output cannot be made as requested.
        DeviceError: the GPU failed, or NVENC is required and cannot encode the frames.
        WorkError: encoding or writing failed.
    """
    fields = {"output": location("output", output), "codec": codec, "fps": fps, **options}
    request = build(EncodeRequest, fields, str, "docs/frames.md lists the options.")
    return await _encode(frames, request, lambda: gpu or own_gpu(request.device, request.context))


async def _encode(
    frames: Iterable[object] | AsyncIterable[object], request: EncodeRequest, device: Callable[[], WorkerDevice]
) -> EncodeReport:
    began = time.monotonic()
    container = container_for(request.output)
    codec = request.codec or container.default_codec
    container.check_video_codec(codec)
    output = request.absolute_output
    # Only frames of a stream have a source; for other frames, a name that no file has is used.
    source = frames.source if isinstance(frames, FrameStream) else f"{output}.no-input"
    await in_thread(check_output, source, output, overwrite=request.overwrite)
    spool = Spool(work_folder(output), output)
    await shielded(spool.open)
    try:
        path = spool.folder / f"output.{container.name}"
        encoder = FrameEncoder(request, codec, container, path, device=device)
        await feed(encoder, frames)
        report = await shielded(encoder.report, began)
        await uncancellable(publish, path, output, overwrite=request.overwrite)
        return report
    finally:
        await asyncio.shield(in_thread(spool.remove))


async def feed(encoder: FrameSink, frames: Iterable[object] | AsyncIterable[object]) -> None:
    """Feed frames to ``encoder`` in a separate thread: a session belongs to the thread that opened it."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="codecfleet-encode") as thread:
        try:
            if isinstance(frames, AsyncIterable):
                pending: asyncio.Future[None] | None = None
                async for item in frames:
                    # The next frame is made while the previous frame is encoded.
                    if pending is not None:
                        await pending
                    pending = loop.run_in_executor(thread, encoder.add, item)
                    pending.add_done_callback(consume_exception)
                if pending is not None:
                    await pending
            else:
                await loop.run_in_executor(thread, encoder.add_all, _iterable(frames))
            await loop.run_in_executor(thread, encoder.finish)
        except BaseException:  # even after a cancellation, the session must be closed in the thread that opened it
            encoder.cancel()
            await asyncio.shield(loop.run_in_executor(thread, encoder.abandon))
            if isinstance(frames, FrameStream):
                await frames.aclose()
            raise


def _iterable(frames: object) -> Iterable[object]:
    if not isinstance(frames, Iterable):
        message = f"a {type(frames).__name__} is not a series of frames"
        raise UsageError(message, "Give a list, a generator or an asynchronous iterator.")
    return frames
