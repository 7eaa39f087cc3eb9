"""Each wait of ours is needed: with it the bytes are right, and without it they are not.

The simulator does nothing in a stream before somebody waits for it, and runs as little as it can then. ``WAITS`` names
every wait of the product that a program here can reach, what takes it out, and a program that prints whether all bytes
were right. The simulator cannot show the other waits: they have tests on ``FakeCudaDriver``, which defers work too.

| wait | test that fails without it |
|---|---|
| ``NvdecSession.close``: the last pictures | ``tests/unit/actors/nvidia/nvdec`` |
| ``CudaConversion.convert`` | ``test_conversion_kernels.py`` |
| ``_Converting._upload``: the weights | ``test_conversion_kernels.py`` (its process crashes) |
| ``FrameEncoder``: NVENC's copy | ``test_encode_frames.py`` |
| ``DevicePool.drop_oldest``, and the order of what is freed | ``test_device_memory.py`` |
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.sweeps import swept

from .simulated_driver import needs, run_on_gpu

pytestmark = needs("PyNvVideoCodec")

COMMON = """
import asyncio, ctypes, hashlib, json, sys
from types import SimpleNamespace
import numpy as np
from cuda.bindings import driver
import codecfleet
import codecfleet.errors
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.cluster.worker.own_gpu import own_gpu
from codecfleet.actors.nvidia.convert.device_pictures import CudaMover
from codecfleet.actors.nvidia.cuda.context import Cuda, Stream
from codecfleet.actors.nvidia.nvenc.device import NvencDevice

source, folder = sys.argv[1:]

def cuda(result):
    assert not int(result[0]), result
    return result[1] if len(result) > 1 else None

def surface(frame):
    planar = frame.planes
    pairs = np.stack(planar[1:], axis=-1).reshape(planar[1].shape[0], -1)
    return np.concatenate([planar[0], pairs]).tobytes()

def without(owner, name, *callers):
    '''Leave a call out: everywhere, or where these functions make it.'''
    original = getattr(owner, name)

    def left_out(*arguments, **options):
        if not callers or sys._getframe(1).f_code.co_qualname in callers:
            return None
        return original(*arguments, **options)

    setattr(owner, name, left_out)

def is_right(program):
    try:
        return program()
    except codecfleet.errors.CodecfleetError as error:
        print(error, file=sys.stderr)
        return False

class Consumer:
    '''Copies what it is given into memory of its own, in its stream, and waits at the end alone.'''

    def __init__(self):
        own_gpu().opened().cuda.push()
        self.stream = cuda(driver.cuStreamCreate(1))
        self.copies = []

    def take(self, address, size):
        copy = int(cuda(driver.cuMemAllocAsync(size, self.stream)))
        for _ in range(8):  # it falls behind
            cuda(driver.cuMemsetD8Async(copy, 0, size, self.stream))
        cuda(driver.cuMemcpyDtoDAsync(copy, address, size, self.stream))
        self.copies.append((copy, size))

    def seen(self):
        cuda(driver.cuStreamSynchronize(self.stream))
        found = []
        for copy, size in self.copies:
            host = np.empty(size, np.uint8)
            cuda(driver.cuMemcpyDtoH(host.ctypes.data, copy, size))
            found.append(host.tobytes())
        return found

def right():
    return [surface(frame) for frame in codecfleet.frames(source, decoder="software")] * 2

runs = []

def consumed(take, *, is_stated=False):
    runs.append(take)
    consumer, held = Consumer(), []
    stated = {"stream": int(consumer.stream)} if is_stated else {}
    options = dict(place="device", decoder="nvdec", threads=1, memory_bytes=2 << 20, **stated)
    for _ in range(2):
        for frame in codecfleet.frames(source, **options):
            take(consumer, frame)
            if len(held) < 3 * len(runs) - 2:
                held.append(frame)  # so that no picture is decoded into its own place again
            del frame
    return consumer.seen() == right()
"""
BY_DLPACK = """
def take(consumer, frame):
    capsule = frame.__dlpack__(stream=int(consumer.stream))
    consumer.take(frame.device_picture.address, frame.height * 3 // 2 * frame.width)
    del capsule

def program():
    return consumed(take)
"""
BY_INTERFACE = """
def take(consumer, frame):
    about = frame.__cuda_array_interface__
    consumer.take(about["data"][0], about["shape"][0] * about["shape"][1])

def program():
    return consumed(take)
"""
BY_NAME = """
def take(consumer, frame):
    frame.record_stream(int(consumer.stream))
    consumer.take(frame.device_picture.address, frame.height * 3 // 2 * frame.width)

def program():
    return consumed(take)
"""
BY_OPTION = """
def take(consumer, frame):
    consumer.take(frame.device_picture.address, frame.height * 3 // 2 * frame.width)

def program():
    return consumed(take, is_stated=True)
"""
UNNAMED_CONSUMER = "without(codecfleet.Frame, 'record_stream')"
ON_DEVICE = """
def program():
    found = []
    for frame in codecfleet.frames(source, place="device", **AT_ONCE):
        found.append(ctypes.string_at(frame.device_picture.address, frame.height * 3 // 2 * frame.width))
    return found * 2 == right()
"""
ON_HOST = """
def program():
    return [surface(frame) for frame in codecfleet.frames(source, decoder="nvdec")] * 2 == right()
"""
TO_HOST = """
def program():
    found = []
    for frame in codecfleet.frames(source, place="device", decoder="nvdec"):
        found.append(surface(SimpleNamespace(planes=plane_arrays(frame.to_video_frame()))))
    return found * 2 == right()
"""
DECODED = "AT_ONCE = {'decoder': 'nvdec', 'nvdec': codecfleet.NvdecOptions(latency='low')}"
UPLOADED = "AT_ONCE = {'decoder': 'software'}"
ENCODE = """
own_gpu().opened().cuda.push()
stream = cuda(driver.cuStreamCreate(1))
wide, high, count = 320, 240, 6
size = wide * high * 3 // 2
pictures = [np.random.default_rng(n).integers(16, 235, size).astype(np.uint8) for n in range(count)]
staged = []
for picture in pictures:
    staged.append(int(cuda(driver.cuMemAlloc(size))))
    cuda(driver.cuMemcpyHtoD(staged[-1], picture.ctypes.data, size))
target = int(cuda(driver.cuMemAlloc(size)))

def given():
    for each in staged:  # one memory for all: it may be written to again once the next is asked for
        with own_gpu().opened().cuda.entered:
            cuda(driver.cuMemcpyDtoDAsync(target, each, size, stream))
        yield SimpleNamespace(__cuda_array_interface__=dict(
            shape=(high * 3 // 2, wide), typestr="|u1", data=(target, False), version=3, strides=None, stream={said}))

def encoded(name, frames, **options):
    output = f"{{folder}}/{{name}}.mp4"
    options |= dict(fps=25, codec="h264", encoder="nvenc", quality=20, overwrite=True)
    return asyncio.run(codecfleet.encode(frames, output, **options)).output_sha256

def program():
    there = encoded("device", given(), {options})
    return there == encoded("host", (each.reshape(-1, wide) for each in pictures))
"""
FINISHED = "NvdecSession._finished"
BEFORE_ENCODING = """
original = CudaMover.wait_for
CudaMover.wait_for = lambda self, streams: 1 in streams and original(self, streams)
"""
UNNAMED_STREAM = """
opened = NvencDevice.open
NvencDevice.open = lambda *given, stream, **options: opened(*given, **options)
"""
NAMED = ENCODE.format(said="int(stream)", options="")
UNNAMED = ENCODE.format(said="None", options="stream=int(stream)")


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait of the product: its name, the code that removes it, and a program that needs it."""

    what: str
    without: str
    program: str


WAITS = (
    Wait("a writer waits for the consumers' events", "without(Cuda, 'wait_for_event')", BY_DLPACK),
    Wait("an event is recorded in each consumer's stream", "without(Cuda, 'record')", BY_DLPACK),
    Wait("a stream that is named for a frame is waited for", UNNAMED_CONSUMER, BY_NAME),
    Wait("a stream that is named for all frames is waited for", UNNAMED_CONSUMER, BY_OPTION),
    Wait("consumers that name no stream are waited for", "without(Cuda, 'wait_for_all')", BY_INTERFACE),
    Wait("NVDEC's pictures are complete, on the device", f"without(Stream, 'wait', {FINISHED!r})", DECODED + ON_DEVICE),
    Wait("NVDEC's pictures are complete, on the host", f"without(Stream, 'wait', {FINISHED!r})", ON_HOST),
    Wait("a copy to the host is done", "without(Stream, 'wait', 'CudaMover._fetched')", TO_HOST),
    Wait("a copy to the device is done", "without(Stream, 'wait', 'CudaMover.to_device')", UPLOADED + ON_DEVICE),
    Wait("a producer's stream is waited for", BEFORE_ENCODING, NAMED),
    Wait("NVENC reads behind the stream that is named", UNNAMED_STREAM, UNNAMED),
)


def film(folder: Path) -> Path:
    """Make a film whose pictures are shown in coding order, for which NVDEC has a low latency."""
    ordered = (("x264-params", "keyint=10:min-keyint=10:scenecut=0:bframes=0"),)
    return make_clip(folder / "in.mp4", Clip(times=constant_times(40), options=ordered, width=192, height=160))


@pytest.mark.parametrize("wait", swept(WAITS), ids=lambda wait: wait.what)
def test_no_wait_can_be_left_out(wait: Wait, tmp_path: Path) -> None:
    """The bytes are right with the wait, and wrong without."""
    twice = f"print(is_right(program))\n{wait.without}\nprint(is_right(program))\n"
    ran = run_on_gpu(COMMON + wait.program + twice, film(tmp_path), tmp_path)
    assert [line for line in ran.stdout.splitlines() if line in {"True", "False"}] == ["True", "False"], ran.stderr
