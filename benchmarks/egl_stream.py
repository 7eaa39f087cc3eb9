"""Test whether EGLStreams and EGLImages keep their rules and bytes on this machine's GPU, and how fast they are.

``python benchmarks/egl_stream.py``; README.md beside this file says what is recorded. Each part is a separate
process, because some show what the driver does to programs that break a rule.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from bench.egl_ends import LARGE, SMALL, Ends, filled, refusal, untouched
from bench.failures import CommandFailed
from bench.machine import describe_gpus, describe_run, described_lines
from bench.program import run_in_folder
from bench.table import save_results

import codecfleet
from codecfleet import EglImage, EglStream
from codecfleet.actors.nvidia.cuda.context import Stream
from codecfleet.actors.nvidia.egl.calls import EglPlane, egl_cuda
from codecfleet.actors.nvidia.egl.consumer import ConsumerSession
from codecfleet.actors.nvidia.egl.gles import GlesTexture
from codecfleet.actors.nvidia.egl.images import pixels_seen
from codecfleet.actors.nvidia.egl.layout import layout_of
from codecfleet.actors.nvidia.egl.library import device_display
from codecfleet.actors.nvidia.egl.producer import FrameMemory, ProducerSession
from codecfleet.actors.nvidia.egl.states import EndState
from codecfleet.actors.surfaces.frames import plane_arrays

PART_S = 40
CHECKED = 20
"""How many frames that pass between two processes are compared."""
BOTH = 2
FORMATS = ("nv12", "p010le", "nv16", "p210le", "yuv444p", "rgba", "bgra", "abgr", "argb", "rgb24", "bgr24", "gray")


# Parts: each returns its results, as JSON.


def part_rules() -> Iterator[tuple[str, Any]]:
    """Try the rules of NVIDIA's guide through codecfleet's sessions."""
    ends = Ends(keeps_last=True)
    yield "states", [ends.stream.state.name]
    ends.put(1)
    yield "a new frame is available", ends.stream.state.name
    yield "the frame is acquired, and again after a time-out", [ends.take(0.05), ends.take(0.05)]
    yield "the frame is then old", ends.stream.state.name
    yield "the last frame is kept: frames out, all seen", [ends.producer.out, ends.producer.drain()]
    ends.put(2)
    yield "a mailbox gives the newest frame", [ends.put(3), ends.take()]
    yield (
        "a consumer holds one frame",
        refusal(lambda: (ends.put(4), ends.consumer.acquire(1), ends.consumer.acquire(1))),
    )
    ends.producer.close()
    yield "a held frame outlives its producer", ends.consumer.state.name
    ends.consumer.close()
    yield "closed", [ends.producer.state.name, ends.consumer.state.name]
    ends = Ends(fifo_frames=4)
    yield (
        "without reuse no frame is acquired twice",
        [ends.put(5), ends.take(0.05), ends.take(0.05), ends.stream.state.name],
    )
    yield "the last frame then comes back", [ends.producer.drain(), ends.producer.out]
    yield "a FIFO keeps the order", [[ends.put(value) for value in (6, 7, 8)], [ends.take() for _ in range(3)]]
    ends.put(9)
    ends.producer.close()
    yield "frames that wait when the producer disconnects are lost", [ends.take(0.1), ends.consumer.state.name]
    ends = Ends(fifo_frames=4)
    ends.put(1)
    ends.consumer.close()
    yield "a producer whose consumer is gone", [ends.put(2), ends.producer.drain(), ends.producer.state.name]
    ends.producer.close()
    yield "a second consumer", refusal(lambda: ConsumerSession(ends.calls, Ends().stream))
    yield (
        "a producer that waits for its consumer",
        refusal(lambda: ProducerSession(ends.calls, EglStream(wait_s=0.2), SMALL)),
    )
    large = VideoFrame(LARGE.width, LARGE.height, LARGE.pix_fmt)
    yield "a picture of another size", refusal(lambda: ends.calls.filling(SMALL, large))
    yield "the device still works", Ends().put(1)


def part_most() -> Iterator[tuple[str, Any]]:
    """Present up to 64 frames, until there is no room."""
    ends = Ends(fifo_frames=64)
    ends.stream.wait_s = 0.3
    count = 0
    while refusal(lambda: ends.put(1)) == "":
        count += 1
    yield "frames presented and not acquired", count


def part_formats() -> Iterator[tuple[str, Any]]:
    """Send one picture of each format through a stream, as pitched memory and as arrays; compare all bytes."""
    for name in FORMATS:
        for memory in FrameMemory:
            yield (
                f"{name} {memory.value}",
                refusal(partial(check_format, name, memory)) or "equal",
            )


def check_format(name: str, memory: FrameMemory) -> None:
    """Send a picture of random bytes through a stream."""
    layout = layout_of(320, 240, name)
    ends = Ends(layout, memory, fifo_frames=2)
    sent = VideoFrame(320, 240, name)
    random = np.random.default_rng(7)
    for plane in sent.planes:
        plane.update(random.integers(0, 256, plane.buffer_size, np.uint8).tobytes())
    ends.producer.present(ends.calls.filling(layout, sent))
    acquired = ends.consumer.acquire(1)
    if acquired is None or acquired.frame.layout != layout:
        raise CommandFailed(f"sent {layout}, received {acquired.frame.layout if acquired else 'no frame'}")
    got = ends.calls.copied_to_host(acquired.frame, ends.consumer.cuda_stream)
    pairs = zip(plane_arrays(got), plane_arrays(sent), strict=True)
    if not all(np.array_equal(one, other) for one, other in pairs):
        raise CommandFailed("the bytes received differ from those sent")
    ends.consumer.release()
    if not ends.producer.drain():
        raise CommandFailed("the frame did not come back")


def part_speed(count: int = 4000) -> Iterator[tuple[str, Any]]:
    """Send 1080p NV12 through a stream, with and without copies; compare with copies within the device."""
    for fifo_frames in (8, 0):
        for copies in (0, 1, 2):
            name = f"{'FIFO of 8' if fifo_frames else 'mailbox'}, {copies} copies a frame"
            yield name, round(stream_fps(count, fifo_frames, copies))
    calls = egl_cuda()
    source, target, stream = calls.allocate(LARGE), calls.allocate(LARGE), calls.cuda.stream()
    for wait in (True, False):
        began_s = time.perf_counter()
        for _ in range(count):
            calls.copy(LARGE, source, target, stream)
            if wait:
                stream.wait()
        stream.wait()
        yield f"plain copy, {'waited for' if wait else 'queued'}", round(count / (time.perf_counter() - began_s))


def stream_fps(count: int, fifo_frames: int, copies: int) -> float:
    """Return how many frames per second pass from a producer to its consumer."""
    ends = Ends(LARGE, fifo_frames=fifo_frames)
    calls, taken = ends.calls, 0
    source, target = calls.allocate(LARGE), calls.allocate(LARGE)

    def fill(places: Sequence[EglPlane], stream: Stream) -> None:
        if copies:
            calls.copy(LARGE, source, places, stream)

    def consume() -> None:
        nonlocal taken
        while (acquired := ends.consumer.acquire(0.2)) is not None or ends.consumer.state is not EndState.ENDED:
            if acquired is None:
                continue
            if copies == BOTH:
                calls.copy(LARGE, acquired.frame.places, target, ends.consumer.cuda_stream)
            ends.consumer.release()
            taken += 1

    consumer = threading.Thread(target=consume)
    consumer.start()
    began_s = time.perf_counter()
    for _ in range(count):
        ends.producer.present(fill)
    ends.producer.drain()
    took_s = time.perf_counter() - began_s
    ends.producer.close()
    consumer.join()
    if fifo_frames and taken != count:
        raise CommandFailed(f"{taken} of {count} frames arrived")
    return count / took_s


def part_public(count: int = 1000) -> Iterator[tuple[str, Any]]:
    """Send frames through ``present`` and ``frames``, on the device and on the host; compare all bytes."""
    for place in ("device", "host"):
        began_s = time.perf_counter()
        right = asyncio.run(through(place, count if place == "device" else count // 4))
        sent = count if place == "device" else count // 4
        yield f"{place}: right of {sent}", right
        yield f"{place}: fps with checks", round(sent / (time.perf_counter() - began_s))


async def through(place: str, count: int) -> int:
    """Return how many of the presented pictures came out unchanged, in order."""
    pictures = [np.full((1620, 1920), value, np.uint8) for value in range(8)]
    right = 0
    with EglStream(fifo_frames=8, fps=25) as stream:
        task = asyncio.create_task(codecfleet.present((pictures[n % 8] for n in range(count)), stream))
        async with codecfleet.frames(stream, place=place) as frames:  # type: ignore[arg-type]
            async for frame in frames:
                rows = frame.to_ndarray()
                right += frame.index < count and bool((rows == frame.index % 8).all())
        await task
    return right


def part_processes() -> Iterator[tuple[str, Any]]:
    """Consume, over a descriptor, the frames that another process presents."""
    ours, theirs = socket.socketpair()
    stream = EglStream(fifo_frames=8, wait_s=8)
    descriptor = stream.descriptor()
    consumer = ConsumerSession(egl_cuda(), stream)
    command = [sys.executable, __file__, "--part", "produce", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL) as child:
        socket.send_fds(ours, [b"s"], [descriptor])
        got, began_s, count = [], 0.0, 0
        until_s = time.monotonic() + 25
        while consumer.state is not EndState.ENDED and time.monotonic() < until_s:
            acquired = consumer.acquire(0.2)
            if acquired is None:
                continue
            began_s = began_s or time.perf_counter()
            if count < CHECKED:
                picture = egl_cuda().copied_to_host(acquired.frame, consumer.cuda_stream)
                got.append(int(memoryview(picture.planes[0])[0]))
            consumer.release()
            count += 1
            ended_s = time.perf_counter()
        child.wait(15)
    yield "a descriptor is refused once an end is connected", refusal(stream.descriptor)
    yield "the first bytes", got
    yield "frames", count
    yield "fps of 1080p NV12, 1 copy a frame", round(count / (ended_s - began_s)) if count > 1 else 0
    yield "the end", [consumer.state.name, child.returncode]


def part_produce() -> Iterator[tuple[str, Any]]:
    """Run as the other process, the producer."""
    die_at = int(os.environ.get("DIE_AT", "0"))
    with (
        EglStream(descriptor=received(), wait_s=8) as stream,
        ProducerSession(egl_cuda(), stream, LARGE) as producer,
    ):
        for number in range(2000):
            if die_at and number == die_at:
                os.kill(os.getpid(), 9)
            producer.present(filled(egl_cuda(), LARGE, number % 250) if number < CHECKED else untouched)
        producer.drain()
    yield "presented", 2000


def part_consume() -> Iterator[tuple[str, Any]]:
    """Run as the other process, the consumer, which dies while it holds a frame."""
    with EglStream(descriptor=received(), wait_s=8) as stream, ConsumerSession(egl_cuda(), stream) as consumer:
        for _ in range(int(os.environ["DIE_AT"])):
            while consumer.acquire(0.2) is None:
                pass
            consumer.release()
        while consumer.acquire(0.2) is None:
            pass
        os.kill(os.getpid(), 9)
    yield "alive", True


def received() -> int:
    """Return the descriptor of a stream that the other process sends over the socket that the command line names."""
    with socket.socket(fileno=int(sys.argv[3])) as channel:
        _, (descriptor, *_), _, _ = socket.recv_fds(channel, 16, 1)
    return descriptor


def part_producer_dies() -> Iterator[tuple[str, Any]]:
    """Consume frames from a process that is killed."""
    os.environ["DIE_AT"] = "40"
    yield from part_processes()


def part_consumer_dies() -> Iterator[tuple[str, Any]]:
    """Present frames to a process that is killed while it holds a frame."""
    os.environ["DIE_AT"] = "40"
    for fifo_frames in (8, 0):
        ours, theirs = socket.socketpair()
        stream = EglStream(fifo_frames=fifo_frames, wait_s=8)
        command = [sys.executable, __file__, "--part", "consume", str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL) as child:
            socket.send_fds(ours, [b"s"], [stream.descriptor()])
            producer = ProducerSession(egl_cuda(), stream, SMALL)
            count, until_s = 0, time.monotonic() + 12
            while producer.present(untouched) and time.monotonic() < until_s:
                count += 1
            child.wait(15)
        name = "FIFO of 8" if fifo_frames else "mailbox"
        yield f"{name}: frames presented until its consumer was gone", count
        yield f"{name}: states, exit code", [producer.state.name, stream.state.name, child.returncode]
        yield f"{name}: closed", [refusal(producer.close), producer.state.name]
    yield "the device still works", Ends().put(1)


def part_images() -> Iterator[tuple[str, Any]]:
    """Read and write EGLImages of textures, and of CUDA's own memory through a descriptor."""
    seen = pixels_seen()
    yield "trial: CUDA reads, CUDA writes", [seen.reads, seen.writes, seen.failure]
    for width, height in ((16, 16), (64, 48), (333, 77), (1920, 1080)):
        with GlesTexture(device_display(), width, height) as texture:
            first = np.random.default_rng(width).integers(0, 256, (height, width, 4), np.uint8)
            texture.write(first)
            with EglImage(texture.image, ready=fence()) as image:
                read = np.array_equal(image.read().to_ndarray(), first)  # type: ignore[union-attr]
                sync = image.write(VideoFrame.from_ndarray(255 - first, format="rgba"))
                written = np.array_equal(texture.read(), 255 - first)
                texture.write(first)
                again = np.array_equal(image.read().to_ndarray(), first)  # type: ignore[union-attr]
            yield f"{width}x{height}: read, written, read again, sync", [read, written, again, sync]


def part_memory_images() -> Iterator[tuple[str, Any]]:
    """Import CUDA's memory as an image by its descriptor (dma-buf)."""
    calls = egl_cuda()
    size = 1 << 21
    address = calls.call("cuMemAlloc", size)
    kind = calls.driver.CUmemRangeHandleType.CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
    descriptor = calls.call("cuMemGetHandleForAddressRange", address, size, kind, 0)
    yield "descriptor", int(descriptor)
    for name, planes in (("nv12", [(0, 512), (512 * 240, 512)]), ("rgba", [(0, 2048)])):
        places = [(int(descriptor), offset, pitch) for offset, pitch in planes]
        yield (
            name,
            refusal(lambda: EglImage.of_dma_buf(320, 240, name, places).read()) or "read",  # noqa: B023 - called at once
        )


def part_lost_context() -> Iterator[tuple[str, Any]]:
    """Reset the context of a connected end: entering it is then refused without calling the driver."""
    ends = Ends(fifo_frames=4)
    ends.put(1)
    ends.calls.driver.cuDevicePrimaryCtxReset(0)
    yield "acquire", refusal(lambda: ends.consumer.acquire(0.1))
    yield "consumer", [ends.consumer.state.name, refusal(ends.consumer.close), ends.consumer.state.name]
    yield "present", refusal(lambda: ends.producer.present(untouched))
    yield "producer", [ends.producer.state.name, refusal(ends.producer.close), ends.producer.state.name]


def fence() -> int:
    """Return a sync for all OpenGL commands so far (EGL_SYNC_FENCE_KHR)."""
    display = device_display()
    return int(display.egl.call("eglCreateSyncKHR", display.handle, 0x30F9, None))


OTHERS = ("produce", "consume")
"""Parts that other parts start."""
PARTS = {name.removeprefix("part_"): value for name, value in list(globals().items()) if name.startswith("part_")}


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="run only these parts")
    parser.add_argument("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    options = parser.parse_args()
    if options.part:
        for name, seen in PARTS[options.part[0]]():
            print(json.dumps([name, seen]), flush=True)
        # Sessions left open by a broken rule would call the driver again.
        os._exit(0)
    return run_in_folder(lambda _: measure(options), None)


def measure(options: argparse.Namespace) -> None:
    """Run all parts, each in a separate process, and print and save their results."""
    document = describe_run(None) | describe_gpus()
    print("\n".join(described_lines(document)), flush=True)
    document["parts"] = {}
    for part in options.only or [name for name in PARTS if name not in OTHERS]:
        document["parts"][part] = run_part(part)
        if options.save:
            save_results(options.save, document)


def run_part(part: str) -> dict[str, Any]:
    """Run one part; return its results, and how it ended."""
    command = [sys.executable, __file__, "--part", part]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            stdout, stderr = child.communicate(timeout=PART_S)
        except subprocess.TimeoutExpired:
            child.kill()
            stdout, stderr = child.communicate()
    seen = dict(json.loads(line) for line in stdout.splitlines() if line.startswith("["))
    ended = {} if child.returncode == 0 else {"exit code": child.returncode, "last words": stderr.strip()[-300:]}
    print(f"\n{part}", *(f"  {name}: {value}" for name, value in (seen | ended).items()), sep="\n", flush=True)
    return seen | ended


if __name__ == "__main__":
    sys.exit(main())
