"""Pictures in every form are presented to a stream whose producer keeps what it is given."""

import asyncio
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

import codecfleet
from codecfleet.actors.device.streams import PictureStream, StreamConsumer, StreamProducer
from codecfleet.actors.surfaces.device_frame import DevicePicture
from codecfleet.testing.nvidia.fake_device import FakeDevice

from ..frame_encoding import HEIGHT, WIDTH, by_interface, put, rgb


class Producer(StreamProducer):
    """Keeps pictures."""

    def __init__(self, device: FakeDevice) -> None:
        self.pictures: list[VideoFrame | DevicePicture] = []
        self._mover = device.gpu.open_mover()

    def present(self, picture: VideoFrame | DevicePicture, streams: Iterable[int]) -> bool:
        """Wait as the real producer does, and keep the picture."""
        self._mover.wait_for(streams)
        self.pictures.append(picture)
        return True

    def fetch(self, address: int, size_bytes: int, streams: Iterable[int]) -> NDArray[np.uint8]:
        """Copy from the fake device."""
        self._mover.wait_for(streams)
        return self._mover.fetch(address, size_bytes)

    def drain(self) -> bool:
        """Pretend that a consumer took everything."""
        return True

    def described(self) -> tuple[int, int, str]:
        """Describe the producer's device."""
        return WIDTH, HEIGHT, "rgb24"

    def close(self) -> None:
        """Close the connection to the device."""
        self._mover.close()


class Stream(PictureStream):
    """A stream with that producer."""

    fps: Fraction | None = None
    wait_s: float = 1
    repeat_s: float | None = None

    def __init__(self, device: FakeDevice) -> None:
        self.producer = Producer(device)

    def open_consumer(self, place: str) -> StreamConsumer:
        """Have none."""
        raise NotImplementedError

    def open_producer(self, memory: str) -> StreamProducer:
        """Return the producer."""
        del memory
        return self.producer


@pytest.mark.parametrize("step", [1, -1], ids=["tight", "upside down"])
def test_arrays_on_the_gpu_that_no_surface_holds_come_with_their_samples(step: int) -> None:
    """RGB on the device, tight or strided, is presented unchanged once the stream that writes it is done."""
    device = FakeDevice()
    stream = device.gpu.opened().cuda.stream().number
    wanted = rgb(3)
    there = put(device, np.zeros_like(wanted))
    device.driver.put(stream, lambda: np.copyto(there, wanted[::step]) or 0)
    target = Stream(device)
    report = asyncio.run(codecfleet.present([by_interface(there[::step], stream)], target))
    (found,) = target.producer.pictures
    assert isinstance(found, VideoFrame)
    assert np.array_equal(found.to_ndarray(), wanted)
    assert (report.frames, report.consumed) == (1, True)
