"""The life of a stream of frames: several readers, breaking off, and the release of threads and memory."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import codecfleet
from codecfleet import Frame
from codecfleet.actors.nvidia import gpu
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu, assemble_gpu, open_beside
from codecfleet.errors import UsageError
from codecfleet.testing.nvidia.fake_device import FakeDevice, drop_idle

from ..frame_streams import Told, read, reference, source, stream, told, workers

__all__ = ["source"]


@pytest.mark.parametrize("place", ["host", "device"])
def test_breaking_off_stops_the_threads_and_frees_everything(source: Path, place: str) -> None:
    """After closing early, no thread and no frame decoded ahead remains, and frames in hand stay valid."""
    device = FakeDevice()

    async def begin() -> Frame:
        async with stream(source, device.gpu, place=place) as frames:
            frame = await anext(frames)
        assert frames.report.held_bytes == 0
        assert not workers()
        return frame

    frame = asyncio.run(begin())
    assert told([frame]) == reference(source)[:1]
    opened = device.gpu.opened()
    opened.pool.close()
    del frame
    gc.collect()
    drop_idle(opened.memory)
    # The pool's stream, those of idle movers, and page-locked memory are kept for the next stream.
    assert len(device.driver.streams) == 1 + len(opened.movers)
    calls = device.driver.calls
    assert len(device.driver.memory) == calls["cuMemHostAlloc"] - calls.get("cuMemFreeHost", 0)


HALF_READ = """
import sys
import codecfleet

frames = iter(codecfleet.frames(sys.argv[1], decoder="software"))
print(next(frames).index)
"""


def test_a_stream_that_is_half_read_when_the_program_ends_does_not_hold_it_up(source: Path) -> None:
    """The interpreter ends at once, without an error, although a stream is still open."""
    command = [sys.executable, "-P", "-c", HALF_READ, str(source)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_a_stream_that_is_forgotten_ends_its_threads(source: Path) -> None:
    """If a stream is dropped without being closed, its threads end by themselves."""

    async def begin() -> list[threading.Thread]:
        frames = stream(source, memory_bytes=20_000)
        await anext(frames)
        return workers()

    threads = asyncio.run(begin())
    gc.collect()
    for thread in threads:
        thread.join(30)
    assert threads
    assert not workers()


def test_giving_up_waiting_loses_no_frame(source: Path) -> None:
    """A cancelled wait takes no frame, so the next one gets every frame."""

    async def impatient() -> Told:
        frames = stream(source)
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(frames))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        return told(await read(frames))

    assert asyncio.run(impatient()) == reference(source)


def test_several_tasks_share_a_stream(source: Path) -> None:
    """If several tasks share a stream, each frame goes to one of them."""

    async def share() -> list[int]:
        frames = stream(source)
        halves = await asyncio.gather(read(frames), read(frames))
        return sorted(frame.index for half in halves for frame in half)

    assert asyncio.run(share()) == list(range(48))


def test_the_program_s_output_is_its_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a GPU of this process decodes, the program's file descriptors and output stay untouched."""
    device = FakeDevice()
    monkeypatch.setattr(
        gpu, "_opened", lambda wrong, *_: assemble_gpu(Cuda(device.driver), device.package, None, wrong)
    )
    before = os.fstat(1)

    async def take_all() -> int:
        async with stream(source, Gpu(open_beside), place="host", decoder="nvdec", threads=1) as frames:
            await anext(frames)
            assert (os.fstat(1).st_dev, os.fstat(1).st_ino) == (before.st_dev, before.st_ino)
            return 1 + len([frame async for frame in frames])

    assert asyncio.run(take_all()) == len(reference(source))


def test_a_plain_with_closes_what_its_loop_left_open(source: Path) -> None:
    """A plain ``with`` works like a loop: a loop that was left continues, and afterwards no thread is left."""
    whole = [frame.index for frame in codecfleet.frames(source)]
    with codecfleet.frames(source) as frames:
        first = next(frame.index for frame in frames)
        rest = []
        for frame in frames:
            rest.append(frame.index)
            if len(rest) == 2:
                break
        reader = frames._reader
    assert [first, *rest] == whole[:3]
    assert reader is not None
    assert list(frames) == []
    with codecfleet.frames(source) as unread:
        pass
    assert list(unread) == []


async def test_a_plain_with_is_refused_where_a_loop_runs(source: Path) -> None:
    """A plain ``with`` is refused in an event loop, because it would stop the loop."""
    with pytest.raises(UsageError, match="event loop"), codecfleet.frames(source):
        raise AssertionError
