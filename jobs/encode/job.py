"""Frames that a user has, encoded in this process into one file: one encoder session, from the first to the last."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from ...actors.device.interface import WorkerDevice
from ...errors import UsageError
from ..board.threads import consume_exception, in_thread, shielded, uncancellable
from ..carry.containers import container_for
from ..frames.stream import FrameStream
from ..join.publish import check_output, publish, work_folder
from ..join.spool import Spool
from .encoder import FrameEncoder
from .request import EncodeReport, EncodeRequest

__all__ = ["encode_frames"]


async def encode_frames(
    frames: Iterable[object] | AsyncIterable[object], request: EncodeRequest, device: Callable[[], WorkerDevice]
) -> EncodeReport:
    """Encode frames into a file that appears at once and whole; leave nothing under its name otherwise.

    Args:
        frames: what to encode; see ``read_offered``. A plain iterable is run through in a thread.
        request: how, and into what.
        device: the GPU of this process, if it turns out to be one.

    Raises:
        UsageError: a frame is none, does not fit the others, or has no time; or there are no frames; or the output is
            the file that they come from.
        RequestError: the output cannot be had like that.
        DeviceError: the GPU is insisted on, and cannot do it; or it failed.
        WorkError: encoding or writing failed.
    """
    began = time.monotonic()
    container = container_for(request.output)
    codec = request.codec or container.default_codec
    container.check_video_codec(codec)
    output = request.absolute_output
    # Only frames of a stream have a source; for all others, a name that nothing has.
    source = frames.source if isinstance(frames, FrameStream) else f"{output}.no-input"
    await in_thread(check_output, source, output, overwrite=request.overwrite)
    spool = Spool(work_folder(output, secrets.token_hex(4)))
    await shielded(spool.open)
    try:
        path = spool.folder / f"output.{container.name}"
        encoder = FrameEncoder(request, codec, container, path, device=device)
        await _fed(encoder, frames)
        report = await shielded(encoder.report, began)
        await uncancellable(publish, path, output, overwrite=request.overwrite)
        return report
    finally:
        await asyncio.shield(in_thread(spool.remove))


async def _fed(encoder: FrameEncoder, frames: Iterable[object] | AsyncIterable[object]) -> None:
    """Feed an encoder in one thread of its own: it belongs to whoever opened it."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="codecfleet-encode") as thread:
        try:
            if isinstance(frames, AsyncIterable):
                pending: asyncio.Future[None] | None = None
                async for item in frames:
                    # While one is encoded, the next is made.
                    if pending is not None:
                        await pending
                    pending = loop.run_in_executor(thread, encoder.add, item)
                    pending.add_done_callback(consume_exception)
                if pending is not None:
                    await pending
            else:
                await loop.run_in_executor(thread, encoder.add_all, _iterable(frames))
            await loop.run_in_executor(thread, encoder.finish)
        except BaseException:
            encoder.cancel()
            await asyncio.shield(loop.run_in_executor(thread, encoder.abandon))
            if isinstance(frames, FrameStream):
                await frames.aclose()
            raise


def _iterable(frames: object) -> Iterable[object]:
    if not isinstance(frames, Iterable):
        message = f"a {type(frames).__name__} is no series of frames"
        raise UsageError(message, "Give a list, a generator or an asynchronous iterator.")
    return frames
