"""The life of a stream of frames: several readers, breaking off, and the threads and memory it gives back."""

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from codecfleet import Fleet, Frame
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.gpu import Gpu, assemble_gpu
from codecfleet.actors.nvidia.own_gpu import OwnGpu
from codecfleet.actors.nvidia.stdout_monitor import StdoutMonitor
from codecfleet.testing.nvidia.fake_device import FakeDevice, drop_idle

from ..frame_streams import Told, no_gpu, read, source, stream, told, truth, workers

__all__ = ["source"]


@pytest.mark.parametrize("place", ["host", "device"])
def test_breaking_off_stops_the_threads_and_frees_everything(source: Path, place: str) -> None:
    """Closing after one frame: no thread, nothing decoded ahead, and the frame in hand is whole until it is dropped."""
    device = FakeDevice()

    async def begin() -> Frame:
        async with stream(source, device.gpu, place=place) as frames:
            frame = await anext(frames)
        assert frames.report.held_bytes == 0
        assert not workers()
        return frame

    frame = asyncio.run(begin())
    assert told([frame]) == truth(source)[:1]
    opened = device.gpu.opened()
    opened.pool.close()
    del frame
    gc.collect()
    drop_idle(opened.memory)
    assert not device.driver.streams
    # What is left is page-locked memory, kept for the next one.
    calls = device.driver.calls
    assert len(device.driver.memory) == calls["cuMemHostAlloc"] - calls.get("cuMemFreeHost", 0)


def test_a_stream_that_is_forgotten_ends_its_threads(source: Path) -> None:
    """Nobody closed it, and nobody holds it: its threads come to their end by themselves."""

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


def test_a_fleet_that_closes_closes_its_streams(source: Path) -> None:
    """Leaving the fleet ends what was begun in it."""

    async def begin() -> None:
        fleet = Fleet(gpu=no_gpu())
        frames = fleet.frames(str(source))
        await anext(frames)
        await fleet.aclose()
        assert not workers()
        with pytest.raises(StopAsyncIteration):
            await anext(frames)

    asyncio.run(begin())


def test_giving_up_waiting_loses_no_frame(source: Path) -> None:
    """A cancelled wait takes nothing: the next one gets every frame."""

    async def impatient() -> Told:
        frames = stream(source)
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(frames))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        return told(await read(frames))

    assert asyncio.run(impatient()) == truth(source)


def test_several_tasks_share_a_stream(source: Path) -> None:
    """Each frame goes to one of them."""

    async def share() -> list[int]:
        frames = stream(source)
        halves = await asyncio.gather(read(frames), read(frames))
        return sorted(frame.index for half in halves for frame in half)

    assert asyncio.run(share()) == list(range(48))


def test_a_program_s_output_is_listened_to_only_while_somebody_decodes(tmp_path: Path) -> None:
    """Wrong pictures are counted over all times of listening; what is said passes on, and in between at once."""
    said = tmp_path / "said"
    descriptor = os.open(said, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    listening = StdoutMonitor(descriptor)
    with listening, listening:
        assert listening.count() == 0
        os.write(descriptor, b"Decode Error occurred for picture 3\n")
        assert said.read_bytes() == b""
        assert listening.count() == 1
    os.write(descriptor, b"between\n")
    assert said.read_bytes() == b"Decode Error occurred for picture 3\nbetween\n"
    with listening:
        assert listening.count() == 1
        os.write(descriptor, b"Decode Error occurred for picture 4\n")
    assert listening.count() == 2
    with listening:
        pass
    assert said.read_bytes().endswith(b"picture 4\n")
    os.close(descriptor)


class Heard(StdoutMonitor):
    """Tells when somebody who decoded is done."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.is_left = threading.Event()

    def __exit__(self, *arguments: object) -> None:
        """Note it."""
        super().__exit__(*arguments)  # type: ignore[arg-type]
        self.is_left.set()


class ListenedGpu(OwnGpu):
    """A fake GPU, as a process's own is listened to."""

    def __init__(self, listening: StdoutMonitor) -> None:
        device = FakeDevice()
        Gpu.__init__(self, lambda: assemble_gpu(Cuda(device.driver), device.package, None, listening.count))
        self._monitor = listening


def test_a_program_that_takes_its_time_is_not_listened_to_meanwhile(source: Path, tmp_path: Path) -> None:
    """While threads wait for frames to be taken, what the program says goes its own way at once."""
    said = tmp_path / "said"
    descriptor = os.open(said, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    heard = Heard(descriptor)

    async def take_one() -> None:
        async with stream(source, ListenedGpu(heard), place="host", decoder="nvdec", threads=1) as frames:
            await anext(frames)
            assert heard.is_left.wait(10)
            os.write(descriptor, b"now\n")
            assert said.read_bytes() == b"now\n"

    asyncio.run(take_one())
    os.close(descriptor)
