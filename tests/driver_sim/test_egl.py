"""EGLStreams, EGLImages and EGLSyncs on the simulated driver: every rule of the guide, and Tegra's syncs."""

import json
from typing import Any

import pytest

from tests.sweeps import swept

from .scenario import Action, Fault, Scenario, machine
from .simulated_driver import Ran, needs, run_simulated
from .test_dla import scenario as orin

pytestmark = needs("cuda")

PRELUDE = """
import asyncio, json, mmap, os, socket, sys, tempfile
import numpy as np
from av.video.frame import VideoFrame
import codecfleet
from codecfleet import EglImage, EglStream
from codecfleet.errors import CodecfleetError

folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)
found = []

def refused(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except CodecfleetError as error:
        return f"{type(error).__name__}: {error.message}"
    return ""

def pictures(count, side=(64, 48)):
    for number in range(count):
        yield np.full((side[1] * 3 // 2, side[0]), number + 1, np.uint8)

async def through(stream, count, place="host", every=1, **options):
    presenting = asyncio.create_task(codecfleet.present(pictures(count), stream, **options))
    async with codecfleet.frames(stream, place=place, every=every) as frames:
        got = [(frame.index, str(frame.time_s), int(frame.to_ndarray()[0, 0])) async for frame in frames]
    return got, await presenting
"""
END = "\nprint(json.dumps(found))\n"
SESSIONS = """
from codecfleet.actors.nvidia.egl.calls import egl_cuda
from codecfleet.actors.nvidia.egl.consumer import ConsumerSession
from codecfleet.actors.nvidia.egl.layout import layout_of
from codecfleet.actors.nvidia.egl.producer import ProducerSession
small = layout_of(64, 48, "nv12")
fill = lambda value: egl_cuda().filling(small, VideoFrame.from_ndarray(np.full((72, 64), value, np.uint8), "nv12"))
"""
BETWEEN_PROCESSES = """
def present(channel, dies_at, memory):
    _, (descriptor, *_), _, _ = socket.recv_fds(channel, 16, 1)
    def given():
        for number, picture in enumerate(pictures(12)):
            if number == dies_at:
                os.kill(os.getpid(), 9)
            yield picture
    with EglStream(descriptor=descriptor, wait_s=20) as stream:
        asyncio.run(codecfleet.present(given(), stream, memory=memory))

ours, theirs = socket.socketpair()
producer = os.fork()  # before any process has opened the driver
if producer == 0:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[3]
    try:
        present(theirs, int(sys.argv[1]), sys.argv[2])
    except CodecfleetError:
        os._exit(1)
    os._exit(0)
with EglStream(fifo_frames=4, wait_s=20) as stream:
    socket.send_fds(ours, [b"s"], [stream.descriptor()])
    def taken():
        with codecfleet.frames(stream) as frames:
            found.extend(int(frame.to_ndarray()[0, 0]) for frame in frames)
    error = refused(taken)
    if error:
        os.kill(producer, 9)
    ended = os.waitstatus_to_exitcode(os.waitpid(producer, 0)[1])
    found.append(error or ended)
"""


def run(
    program: str, scenario: Scenario | None = None, arguments: tuple[str, ...] = (), **environment: str
) -> tuple[Ran, list[Any]]:
    """Run a program on the simulated machine; return its result, and the list that it printed."""
    scenario = scenario or Scenario(machine=machine("l4-x4"))
    ran = run_simulated(PRELUDE + program + END, scenario, environment=environment, arguments=arguments)
    assert ran.exit_code == 0, ran.stderr
    printed: list[Any] = json.loads(ran.stdout.splitlines()[-1])
    return ran, printed


def test_frames_go_through_in_order() -> None:
    """A FIFO passes every frame once, as pitched memory or as arrays, on each side; ``every`` takes some frames."""
    _, found = run("""
for place, memory, every in (("host", "pitch", 1), ("device", "array", 1), ("auto", "pitch", 5)):
    with EglStream(fifo_frames=3, fps=25) as stream:
        got, report = asyncio.run(through(stream, 12, place, every, memory=memory))
        found.append([got, [report.frames, report.width, report.height, report.pix_fmt, report.consumed]])
""")
    whole = [[number, str_of(number), number + 1] for number in range(12)]
    report = [12, 64, 48, "nv12", True]
    assert found == [[whole, report], [whole, report], [whole[::5], report]]


def str_of(number: int) -> str:
    """Return the time of a frame, at 25 frames per second."""
    return {0: "0", 5: "1/5", 10: "2/5"}.get(number, f"{number}/25")


def test_streams_are_chained_and_encoded() -> None:
    """Frames of one stream are presented into another stream on the device, and encoded from there."""
    _, found = run("""
async def chain(first, second):
    async with codecfleet.frames(first, place="device") as middle:
        sent, passed, saved = await asyncio.gather(
            codecfleet.present(pictures(9, (160, 96)), first),
            codecfleet.present(middle, second),
            codecfleet.encode(codecfleet.frames(second, place="device"), "out.mp4"),
        )
    found.append([sent.frames, passed.frames, passed.consumed, saved.frames_out, str(saved.duration_s)])
with EglStream(fifo_frames=2, fps=25) as first, EglStream(fifo_frames=2, fps=25) as second:
    asyncio.run(chain(first, second))
""")
    assert found == [[9, 9, True, 9, "9/25"]]


def test_a_tegra_s_frames_for_the_host_stay_in_system_memory() -> None:
    """On an integrated GPU a consumer of host frames requests system memory; on other GPUs it requests nothing."""
    program = """
with EglStream(fifo_frames=2, fps=25) as stream:
    found.append(len(asyncio.run(through(stream, 3))[0]))
"""
    for scenario, asked in ((orin(), 1), (Scenario(machine=machine("l4-x4")), 0)):
        ran, found = run(program, scenario)
        assert (found, len(ran.calls("cuEGLStreamConsumerConnectWithFlags"))) == ([3], asked)


def test_a_mailbox_gives_the_newest_and_keeps_it() -> None:
    """A new frame replaces a frame that was not taken, as numbers show; after a time-out the last one repeats."""
    _, found = run(
        SESSIONS
        + """
stream = EglStream(keeps_last=True, wait_s=5)
consumer = ConsumerSession(egl_cuda(), stream)
producer = ProducerSession(egl_cuda(), stream, small)
for value in (1, 2, 3):
    producer.present(fill(value))
for _ in range(2):
    acquired = consumer.acquire(0.02)
    found.append([acquired.number, acquired.is_new, refused(consumer.acquire, 1)])
    consumer.release()
found += [refused(consumer.release), stream.state.name, producer.out, producer.drain(), producer.out]
producer.close()
found += [consumer.acquire(0.01), consumer.state.name, refused(producer.present, fill(4))]
consumer.close()
"""
    )
    held = "UsageError: a consumer holds one frame at a time"
    assert found[:2] == [[3, True, held], [3, False, held]]
    # Two frames were replaced; one has returned, because the memory of the third frame was free.
    assert found[2:] == [
        *("UsageError: no frame is held", "OLD_FRAME", 3, True, 1),
        *(None, "ENDED", "UsageError: the producer is closed"),
    ]


def test_the_gpu_orders_what_both_ends_do() -> None:
    """Without waits on the host, a frame contains all work queued before presenting, and is read before its release."""
    _, found = run(
        SESSIONS
        + """
calls = egl_cuda()
def queued(value):
    def fill(places, stream):
        calls.call("cuMemsetD8Async", places[0].address, value, small.size_bytes, stream.handle)
    return fill
stream = EglStream(fifo_frames=1, wait_s=5)
consumer, producer = ConsumerSession(calls, stream), ProducerSession(calls, stream, small)
copies = [calls.allocate(small) for _ in range(8)]
for value, copy in enumerate(copies, 1):
    producer.present(queued(value))
    calls.copy(small, consumer.acquire(1).frame.places, copy, consumer.cuda_stream)
    consumer.release()
producer.close()
calls.finish(consumer.cuda_stream)
for copy in copies:
    seen = np.zeros(small.size_bytes, np.uint8)
    calls.call("cuMemcpyDtoH", seen.ctypes.data, copy[0].address, seen.nbytes)
    found.append(sorted({int(value) for value in seen}))
consumer.close()
"""
    )
    assert found == [[value] for value in range(1, 9)]


def test_the_last_frame_is_given_again_on_request() -> None:
    """``repeat_s`` returns the last frame again, with its number, if the stream keeps it."""
    _, found = run("""
async def held(stream):
    slow = asyncio.Event()
    async def some():
        for picture in pictures(1):
            yield picture
        await slow.wait()
    presenting = asyncio.create_task(codecfleet.present(some(), stream))
    async with codecfleet.frames(stream) as frames:
        found.extend([(await anext(frames)).index for _ in range(3)])
        slow.set()
    await presenting

with EglStream(keeps_last=True, repeat_s=0.02) as stream:
    asyncio.run(held(stream))
""")
    assert found == [0, 0, 0]


def test_a_driver_without_the_reset_extension_keeps_the_last_frame() -> None:
    """Without EGL_NV_stream_reset the stream states that it keeps its last frame, and all frames still arrive."""
    _, found = run(
        """
with EglStream(fifo_frames=2, fps=25) as stream:
    found.append(stream.keeps_last)
    found.append(len(asyncio.run(through(stream, 6))[0]))
""",
        DRIVER_SIM_EGL_WITHOUT="EGL_NV_stream_reset",
    )
    assert found == [True, 6]


def test_an_end_that_is_alone_says_so() -> None:
    """An end without a partner gets ``DeadlineMissed`` instead of waiting forever, and the device stays usable."""
    _, found = run("""
with EglStream(wait_s=0.2) as stream:
    found.append(refused(lambda: asyncio.run(codecfleet.present(pictures(1), stream))))
    found.append(refused(lambda: list(codecfleet.frames(stream))))
with EglStream(fifo_frames=1, fps=25) as stream:
    found.append(len(asyncio.run(through(stream, 3))[0]))
""")
    assert found == [
        "DeadlineMissed: no consumer connected to the stream within 0.2 s",
        "DeadlineMissed: the stream's producer gave no frame within 0.2 s",
        3,
    ]


PROCESSES = (
    ("99", "pitch", "1", [*range(1, 13), 0]),
    ("99", "array", "1", ["EngineUnfit"]),
    ("6", "pitch", "0", [-9]),
    ("99", "array", "0", [*range(1, 13), 0]),
)


@pytest.mark.parametrize(
    ("die_at", "memory", "device", "expected"),
    swept(PROCESSES, is_slow=lambda row: row is PROCESSES[-1]),
    ids=["pitch on another GPU", "array on another", "killed", "array on the same"],
)
def test_frames_of_another_process(die_at: str, memory: str, device: str, expected: list[Any]) -> None:
    """Frames come by a descriptor, pitched memory from any GPU, arrays from the same; a producer's death ends them."""
    _, found = run(BETWEEN_PROCESSES, arguments=(die_at, memory, device))
    ended = found[-1].partition(":")[0] if isinstance(found[-1], str) else found[-1]
    assert ended == expected[-1]
    values = found[:-1]
    assert values == (expected[:-1] if len(expected) > 1 else list(range(1, len(values) + 1)))
    assert len(values) <= 12


def test_a_consumer_that_goes_away_ends_the_producer() -> None:
    """Leaving a loop over frames disconnects; the producer's error states how far it came, and its memory is freed."""
    _, found = run("""
async def broken_off(stream):
    presenting = asyncio.create_task(codecfleet.present(pictures(200), stream))
    async with codecfleet.frames(stream) as frames:
        async for frame in frames:
            break
    return await presenting
with EglStream(fifo_frames=2) as stream:
    report = asyncio.run(broken_off(stream))
    found += [report.consumed, report.frames < 200, stream.state.name]
""")
    assert found == [False, True, "DISCONNECTED"]


def test_an_end_whose_context_is_gone_calls_the_driver_no_more() -> None:
    """The error is ``DeviceLost``, before a call that would end the process; the end can then be closed."""
    ran, found = run(
        SESSIONS
        + """
stream = EglStream(fifo_frames=4, wait_s=1)
consumer, producer = ConsumerSession(egl_cuda(), stream), ProducerSession(egl_cuda(), stream, small)
producer.present(fill(1))
egl_cuda().driver.cuDevicePrimaryCtxReset(0)
found += [refused(producer.present, fill(2)).partition(":")[0], producer.state.name, stream.state.name]
producer.close()
found.append(producer.state.name)
"""
    )
    assert found == ["DeviceLost", "FAILED", "DISCONNECTED", "ABANDONED"]
    assert not ran.calls("cuEGLStreamProducerDisconnect")


def test_what_makes_no_sense_is_refused_with_the_way_out() -> None:
    """A missing stream, exclusive options or other sizes give one error each, and the device stays usable."""
    _, found = run("""
file = os.open("/dev/null", os.O_RDONLY)
found.append(refused(lambda: EglStream(descriptor=file).handle))
found.append(refused(lambda: EglStream(handle=0x1234).state))
wrong = {"fifo_frames": 65}, {"descriptor": 1, "handle": 2}, {"descriptor": 1, "fifo_frames": 2}, {"wait_s": 0}
for options in wrong:
    found.append(refused(EglStream, **options))
found.append(refused(lambda: codecfleet.frames(EglStream(), pix_fmt="rgb24")))
stream = EglStream()
found.append(stream.descriptor() > 0)
stream.close()
found.append(refused(lambda: stream.handle))
async def mixed(stream):
    presenting = asyncio.create_task(codecfleet.present([*pictures(1), *pictures(1, (32, 32))], stream))
    async with codecfleet.frames(stream) as frames:
        count = len([frame async for frame in frames])
    found.append(count <= 1)  # a frame that waits is lost where the producer goes
    await presenting
with EglStream(fifo_frames=2) as stream:
    found.append(refused(lambda: asyncio.run(mixed(stream))))
    found.append(refused(stream.descriptor).partition(" failed")[0])
with EglStream(fifo_frames=2) as stream:
    found.append(refused(lambda: asyncio.run(codecfleet.present([], stream))))
with EglStream(fifo_frames=1, fps=25) as stream:
    found.append(len(asyncio.run(through(stream, 3))[0]))
""")
    assert [text.partition(":")[0] for text in found[:7]] == ["UsageError"] * 7
    assert found[7:] == [
        True,
        "UsageError: the stream is closed",
        True,
        "UsageError: a frame of 32x32 nv12 follows frames of 64x48 nv12",
        "UsageError: eglGetStreamFileDescriptorKHR",
        "UsageError: there are no frames to present",
        3,
    ]


def test_formats_come_out_as_they_went_in() -> None:
    """PyAV's pictures pass a stream with all samples; planar pictures of the device become NV12 or a similar format."""
    _, found = run("""
async def once(stream, picture):
    presenting = asyncio.create_task(codecfleet.present([picture], stream))
    async with codecfleet.frames(stream, place="auto") as frames:
        (frame,) = [frame async for frame in frames]
    report = await presenting
    same = [bytes(plane) for plane in frame.to_video_frame().planes] == [bytes(plane) for plane in picture.planes]
    return [report.pix_fmt, frame.pix_fmt, frame.on_device, same]

for name in ("rgba", "bgr24", "gray", "yuv444p", "yuv420p", "p010le"):
    picture = VideoFrame(64, 48, name)
    for plane in picture.planes:
        plane.update(np.random.default_rng(5).integers(0, 4, plane.buffer_size, np.uint8).tobytes())
    with EglStream() as stream:
        found.append(asyncio.run(once(stream, picture)))
""")
    assert found == [
        ["rgba", "rgba", False, True],
        ["bgr24", "bgr24", False, True],
        ["gray", "gray", False, True],
        ["yuv444p", "yuv444p", True, True],
        ["nv12", "yuv420p", True, True],
        # test_layout.py and benchmarks/results test the same samples in planes
        ["p010le", "yuv420p10le", True, False],
    ]


IMAGES = """
from codecfleet.actors.nvidia.egl.gles import GlesTexture
from codecfleet.actors.nvidia.egl.library import device_display
drawn = np.random.default_rng(3).integers(0, 256, (48, 64, 4), np.uint8)
def fence():
    display = device_display()
    return display.egl.call("eglCreateSyncKHR", display.handle, 0x30F9, None)
with GlesTexture(device_display(), 64, 48) as texture:
    texture.write(drawn)
    with EglImage(texture.image, ready=fence()) as image:
        found.append(refused(image.read) or bool(np.array_equal(image.read().to_ndarray(), drawn)))
        picture = VideoFrame.from_ndarray(255 - drawn, format="rgba")
        wrong = VideoFrame(32, 32, "rgba")
        sync = None if refused(image.write, picture) else image.write(picture)
        found.append([bool(np.array_equal(texture.read(), 255 - drawn)), bool(sync), refused(image.write, wrong)])
"""
WRONG_SIZE = "UsageError: a picture of 32x32 rgba does not fit a frame of 64x48 rgba"


def test_an_image_is_read_and_written() -> None:
    """CUDA and OpenGL see each other's pixels; if the driver lacks EGL's events, the host waits for the syncs."""
    ran, found = run(IMAGES)
    assert found == [True, [True, False, WRONG_SIZE]]
    assert ran.calls("eglClientWaitSyncKHR")
    assert not ran.calls("cuEventCreateFromEGLSync")


def test_syncs_of_tegra_need_no_host() -> None:
    """On a Tegra, CUDA waits for EGL's sync through an event, and EGL gets a sync of CUDA's event."""
    ran, found = run(IMAGES, orin())
    assert found == [True, [True, True, WRONG_SIZE]]
    assert ran.calls("cuEventCreateFromEGLSync")
    assert ran.calls("eglCreateSync64KHR")
    assert not ran.calls("eglClientWaitSyncKHR")


def test_pixels_decide_and_not_the_return_code() -> None:
    """If CUDA registers an image but sees other memory, a trial detects this, and nothing is read."""
    fault = Fault(function="cuGraphicsEGLRegisterImage", action=Action.CORRUPT)
    _, found = run(IMAGES, Scenario(machine=machine("l4-x4"), faults=(fault,)))
    assert found[0].startswith("EngineUnfit: CUDA registers an EGLImage here, but does not see the pixels")
    assert found[1][2].startswith("EngineUnfit")


def test_an_image_of_two_planes() -> None:
    """Memory of a descriptor becomes an image with pitched planes, which can be encoded in place and written."""
    _, found = run(
        """
file = os.memfd_create("camera")
os.ftruncate(file, 1 << 16)
memory = mmap.mmap(file, 1 << 16)
rows = np.random.default_rng(3).integers(0, 256, (72, 96), np.uint8)
memory[: rows.size] = rows.tobytes()
planes = [(file, 0, 96), (file, 48 * 96, 96)]
with EglImage.of_dma_buf(64, 48, "nv12", planes) as image:
    read = image.read()
    found.append([read.pix_fmt, read.frame.width])
    report = asyncio.run(codecfleet.encode([image] * 3, "out.mp4", fps=25))
    found.append([report.frames_out, report.pix_fmt])
    image.write(VideoFrame.from_ndarray(np.full((72, 64), 9, np.uint8), "nv12"))
    written = np.frombuffer(memory, np.uint8)[: rows.size].reshape(72, 96)
    found.append([bool((written[:, :64] == 9).all()), bool((written[:, 64:] == rows[:, 64:]).all())])
    del written
found.append(refused(EglImage.of_dma_buf, 64, 48, "nv12", planes[:1]))
found.append(refused(EglImage.of_dma_buf, 640, 480, "nv12", planes).partition(" failed")[0])
found.append(refused(EglImage(0x1234).read).partition(" failed")[0])
"""
    )
    assert found == [
        ["yuv420p", 64],
        [3, "yuv420p"],
        [True, True],
        "UsageError: an image of nv12 cannot be made from 1 planes",
        "UsageError: eglCreateImageKHR",
        "DeviceError: cuGraphicsEGLRegisterImage",
    ]
