"""The programs of the fault tests: our own sessions use each library step by step, from opening to closing.

``main`` runs one as work of a ``WorkerCore``, as a worker process would, and prints the result of each step as JSON.
"""

import json
import os
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import av
import numpy as np

from codecfleet import Decoder, Encoder, Packet, RateChange
from codecfleet.actors.decode.decoding import DecodeTally, OpenTrack
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.device.worker import WorkerCore
from codecfleet.actors.dla.engine.host import open_host
from codecfleet.actors.dla.engine.states import DlaMode
from codecfleet.actors.dla.engine.tasks import DlaTask
from codecfleet.actors.dla.engine.watchdog import TimeLimits, Timing
from codecfleet.actors.dla.inference.layout import pack, unpack
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.media.values import VideoFormat
from codecfleet.actors.nvidia.cuda.context import Cuda
from codecfleet.actors.nvidia.egl.calls import egl_cuda
from codecfleet.actors.nvidia.egl.consumer import ConsumerSession
from codecfleet.actors.nvidia.egl.gles import GlesTexture
from codecfleet.actors.nvidia.egl.images import EglImage
from codecfleet.actors.nvidia.egl.layout import layout_of
from codecfleet.actors.nvidia.egl.library import device_display
from codecfleet.actors.nvidia.egl.producer import ProducerSession
from codecfleet.actors.nvidia.egl.streams import EglStream
from codecfleet.actors.nvidia.gpu import Gpu, open_gpu
from codecfleet.actors.nvidia.nvenc.device import NvencDevice
from codecfleet.actors.nvidia.nvenc.session import NvencSession
from codecfleet.actors.settle.nvenc import nvenc_request
from codecfleet.actors.settle.request import settle
from codecfleet.actors.watchdog import process_watch
from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.gpus.nvml_child import probe_nvml_in_child
from codecfleet.cluster.probes.nvml.events import watch_events
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.errors import CodecfleetError
from codecfleet.testing.clips import picture

from .loadable import Loadable, Operation, Tensor
from .quiet_clock import wait_quietly, watch_quietly

__all__ = ["FAILED", "STEPS", "main"]

Step = tuple[str, Callable[[], object]]

STEPS: Final = ("opening", "first call", "later calls", "closing")
SIZE: Final = (320, 240)
PICTURES: Final = 8
LATER_KEYFRAME: Final = 4
TICK: Final = Fraction(1, 1000)
FAILED: Final = 98
"""The exit code of a program that raised what is none of our errors."""


def cuda_steps() -> Generator[Step]:
    """CUDA as sessions use it: a context, memory, copies, and the end of the memory."""
    from cuda.bindings import driver

    cudas: list[Cuda] = []
    held: list[int] = []
    yield "opening", lambda: cudas.append(Cuda(driver))
    (cuda,) = cudas
    yield "first call", lambda: held.append(cuda.allocate(4096))

    def later() -> None:
        held.extend(cuda.allocate(4096) for _ in range(2))
        host, stream = np.zeros(4096, np.uint8), cuda.stream()
        with cuda.entered:
            cuda.copy_to_host(host.ctypes.data, held[0], 4096, stream)
            stream.wait()
        stream.close()

    yield "later calls", later
    yield "closing", lambda: [cuda.free(address) for address in held]


def nvdec_steps(film: Path) -> Generator[Step]:
    """NVDEC as a segment uses it: open the device, decode a clip to its end, close the sessions."""
    gpu = open_gpu()

    def decoded() -> None:
        with av.open(str(film)) as container:
            stream = container.streams.video[0]
            packets = enumerate(packet for packet in container.demux(stream) if packet.size)
            count = sum(1 for _ in gpu.pictures.decode(OpenTrack(stream, stream.codec_context), packets, DecodeTally()))
            assert count == stream.frames, count

    yield "opening", lambda: None
    yield "first call", decoded
    yield "later calls", decoded
    yield "closing", gpu.pool.close


def decoder_steps(film: Path) -> Generator[Step]:
    """NVDEC as packets of a caller use it: two passes over a clip, each to its end, on one ``Decoder``."""
    gpu = Gpu(open_gpu)
    with av.open(str(film)) as container:
        stream = container.streams.video[0]
        extradata, packets = (
            stream.codec_context.extradata or b"",
            [Packet.of(each) for each in container.demux(stream) if each.size],
        )
    with Decoder("h264", extradata=extradata, decoder="nvdec", gpu=gpu) as decoder:

        def decoded() -> None:
            count = sum(len(decoder.decode(packet)) for packet in packets) + len(decoder.flush())
            assert count == len(packets), count

        yield "opening", lambda: None
        yield "first call", decoded
        yield "later calls", decoded
        yield "closing", lambda: (decoder.close(), gpu.close())


def encoder_steps() -> Generator[Step]:
    """NVENC as pictures of a caller use it: the first picture opens the session, and later ones come at new rates."""
    gpu = Gpu(open_gpu)
    with Encoder("h264", fps=25, encoder="nvenc", bitrate_bps=500_000, preset=1, gpu=gpu) as encoder:

        def rest() -> None:
            for number in range(1, PICTURES):
                encoder.encode(picture(number, *SIZE), keyframe=number == LATER_KEYFRAME)
            encoder.reconfigure(RateChange(bitrate=400_000, maxbitrate=400_000))
            encoder.encode(picture(PICTURES, *SIZE))
            encoder.finish()

        yield "opening", gpu.opened
        yield "first call", lambda: encoder.encode(picture(0, *SIZE))
        yield "later calls", rest
        yield "closing", encoder.close


def nvenc_steps(codec: Codec) -> Generator[Step]:
    """NVENC as a segment uses it: capabilities, opening a session, encoding pictures, closing the session."""
    import PyNvVideoCodec
    from cuda.bindings import driver

    device = NvencDevice(PyNvVideoCodec, free_bytes=Cuda(driver).free_bytes)
    DEVICES.append(device)
    sessions: list[NvencSession] = []

    def opened() -> None:
        shape = VideoFormat(*SIZE, "yuv420p", Fraction(25))
        capabilities = device.capabilities(codec)
        settings = settle(nvenc_request(codec, preset=1), shape, TICK, capabilities)
        sessions.append(NvencSession(device, settings))

    def encoded(numbers: range) -> None:
        for number in numbers:
            frame = picture(number, *SIZE).reformat(format="yuv420p")
            frame.pts, frame.time_base = number * 40, TICK
            sessions[0].encode(frame)

    def rest() -> None:
        encoded(range(1, PICTURES))
        sessions[0].finish()

    try:
        yield "opening", opened
        yield "first call", lambda: encoded(range(1))
        yield "later calls", rest
        yield "closing", sessions[0].close
    finally:
        for session in sessions:
            session.close()


def dla_steps(limits: TimeLimits) -> Generator[Step]:
    """A DLA beside CUDA: open a session and a network, run tasks one after the other, close the host."""
    shape = (1, 3, 4, 4)
    network = Loadable(Operation.AFFINE, (Tensor("x", shape),), (Tensor("y", shape),), scale=2.0)
    host = open_host(Timing(limits=limits, patience=wait_quietly))
    tasks: list[DlaTask] = []
    sessions: list[Any] = []

    def loaded() -> None:
        session = sessions[0]
        module = session.load(network.to_bytes())
        x, y = (session.allocate(each.size_bytes) for each in (*module.inputs, *module.outputs))
        session.upload(x, pack(module.inputs[0], np.ones(shape, np.float32)))
        tasks.append(DlaTask(module=module, inputs=(x.registration,), outputs=(y.registration,)))
        ran(1)

    def ran(count: int) -> None:
        for _ in range(count):
            sessions[0].submit(tasks)
            sessions[0].synchronize()

    try:
        yield "opening", lambda: sessions.append(host.open(0))
        yield "first call", loaded
        yield "later calls", lambda: ran(3)
        yield "closing", host.close
    finally:
        host.close()


def standalone_steps(limits: TimeLimits) -> Generator[Step]:
    """A DLA without CUDA: a session, a network whose input is written after its task is queued, memory, the end."""
    shape = (1, 3, 4, 4)
    network = Loadable(Operation.AFFINE, (Tensor("x", shape),), (Tensor("y", shape),), scale=2.0)
    host = open_host(Timing(limits=limits, patience=wait_quietly), DlaMode.STANDALONE)
    sessions: list[Any] = []
    lanes: list[Any] = []

    def ran(count: int) -> None:
        task, written, x, y = lanes
        for number in range(count):
            sessions[0].submit([task], waits=[sessions[0].fence(written)])
            sessions[0].view(x)[:] = pack(task.module.inputs[0], np.full(shape, number, np.float32))
            sessions[0].signal(written)
            sessions[0].synchronize()
            assert (unpack(task.module.outputs[0], sessions[0].view(y)) == 2 * number).all()

    def loaded() -> None:
        session = sessions[0]
        module = session.load(network.to_bytes())
        x, y = (session.allocate(each.size_bytes) for each in (*module.inputs, *module.outputs))
        task = DlaTask(module=module, inputs=(x.registration,), outputs=(y.registration,))
        lanes.extend((task, session.event(), x, y))
        ran(1)

    def later() -> None:
        ran(3)
        sessions[0].allocate(64)

    try:
        yield "opening", lambda: sessions.append(host.open(0))
        yield "first call", loaded
        yield "later calls", later
        yield "closing", host.close
    finally:
        host.close()


def egl_steps() -> Generator[Step]:
    """Both ends of an EGLStream: connect, pass one frame, pass more frames, close."""
    stream = EglStream(fifo_frames=1, wait_s=5)
    ends: list[Any] = []
    layout = layout_of(64, 48, "nv12")

    def opened() -> None:
        ends.append(ConsumerSession(egl_cuda(), stream))
        ends.append(ProducerSession(egl_cuda(), stream, layout))

    def passed() -> None:
        consumer, producer = ends
        fill = egl_cuda().filling(layout, av.VideoFrame(64, 48, "nv12"))
        assert producer.present(fill)
        assert consumer.acquire(5) is not None
        consumer.release()

    def rest() -> None:
        for _ in range(3):
            passed()
        assert ends[1].drain()

    yield "opening", opened
    yield "first call", passed
    yield "later calls", rest
    yield "closing", lambda: [each.close() for each in (*ends, stream)]


def egl_image_steps() -> Generator[Step]:
    """An EGLImage of a texture: try, read, write, close."""
    textures: list[GlesTexture] = []
    images: list[EglImage] = []

    def opened() -> None:
        display = device_display()
        textures.append(GlesTexture(display, 8, 8))
        fence = display.egl.call("eglCreateSyncKHR", display.handle, 0x30F9, None)
        images.append(EglImage(textures[0].image, ready=int(fence)))

    yield "opening", opened
    yield "first call", images[0].read
    yield "later calls", lambda: images[0].write(av.VideoFrame.from_ndarray(np.ones((8, 8, 4), np.uint8), "rgba"))
    yield "closing", lambda: [each.close() for each in (*images, *textures)]


def nvml_said() -> list[list[str]]:
    """Return a probe's report on NVML: the library's problem, the devices' problems, and the missing answers."""
    import pynvml

    report = probe_nvml(pynvml)
    first = report.devices[0] if report.devices else None
    problem = report.library_problem
    return [
        ["library", problem.absence.name if problem else "", problem.reason if problem else "", report.fix],
        ["device", "LOST" if first and first.health.lost else "", first.health.lost if first else "", ""],
        *(
            [name, answer.absence.name, answer.reason, ""]
            for each in report.devices[:1]
            for name, answer in (("memory", each.memory), ("address", each.pci_bus_id))
            if isinstance(answer, Unavailable)
        ),
    ]


def nvml_child_said(limit_s: float) -> list[list[str]]:
    """Return the report on NVML of a probe in a child process, whatever happens to that process."""
    nvml = probe_nvml_in_child(limit_s).nvml
    return [["library", nvml.absence.name, nvml.reason, ""]] if isinstance(nvml, Unavailable) else nvml_said()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence(Work[None]):
    """The steps of a library, each reported at its end; the first error skips all later steps except closing."""

    steps: Callable[[], Generator[Step]]

    def run(self, context: WorkContext) -> None:
        """Run them."""
        context.advance(0)
        step, steps = STEPS[0], self.steps()
        try:
            for step, call in steps:
                call()
                _say(step, None)
        except CodecfleetError as error:
            _say(step, error)
            steps.close()
            raise


def _say(step: str, error: CodecfleetError | None) -> None:
    said = ["", "", "", ""]
    if error is not None:
        said = [type(error).__name__, error.retry.name, error.message, error.next_step]
    os.write(CHANNEL[0], json.dumps([step, *said]).encode() + b"\n")


DEVICES: list[NvencDevice] = []
"""A worker keeps its device as long as it lives."""
CHANNEL: list[int] = []
"""The descriptor of the report: the worker monitors its standard output."""


def as_work(steps: Callable[[], Generator[Step]], limit_s: float) -> None:
    """Run steps as a worker process runs work, with watched calls."""
    watch = process_watch()
    if limit_s:
        watch_quietly(watch, limit_s)
    core = WorkerCore(1)
    watch.on_overdue(core.give_up)
    error = core.submit("run", Sequence(job="faults", label="steps", steps=steps)).exception()
    if isinstance(error, CodecfleetError):
        _say("work", error)
    elif error is not None:
        raise error


def run_nvml(limit_s: float) -> None:
    """Probe the machine, in a child process if a limit shows that a call may hang."""
    for line in nvml_child_said(limit_s) if limit_s else nvml_said():
        os.write(CHANNEL[0], json.dumps(line).encode() + b"\n")


def with_xids(run: Callable[[], None]) -> None:
    """Run a function, and also report the Xids of NVML's events meanwhile."""
    import pynvml

    pynvml.nvmlInit()
    with watch_events(pynvml, {"0": pynvml.nvmlDeviceGetHandleByIndex(0)}) as events:
        run()
        told = [event.xid for event in events.poll()]
    os.write(CHANNEL[0], json.dumps(["xids", "", "", str(told), ""]).encode() + b"\n")


def program(name: str, film: Path, limit_s: float) -> Callable[[], None]:
    """Return the program of a case; ``limit_s`` is the limit for hanging calls (0: the usual limit)."""
    limits = TimeLimits(task_s=limit_s, grace_s=limit_s, call_s=limit_s) if limit_s else TimeLimits()
    steps: dict[str, Callable[[], Generator[Step]]] = {
        "libcuda": cuda_steps,
        "nvcuvid": partial(nvdec_steps, film),
        "nvenc": partial(nvenc_steps, Codec.H264),
        "nvcuvid packets": partial(decoder_steps, film),
        "nvenc packets": encoder_steps,
        "nvenc av1": partial(nvenc_steps, Codec.AV1),
        "cudla": partial(dla_steps, limits),
        **dict.fromkeys(("cudla standalone", "nvscibuf", "nvscisync"), partial(standalone_steps, limits)),
        "EGL": egl_steps,
        "EGL image": egl_image_steps,
    }
    if name == "nvml":
        return partial(run_nvml, limit_s)
    return partial(as_work, steps[name], limit_s)


def main() -> None:
    """Run the case of ``sys.argv``: program, film, limit of calls, whether Xids count; then end this process."""
    name, film, limit_s, xids = sys.argv[1:]
    CHANNEL.append(os.dup(1))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    code = FAILED
    try:
        run = program(name, Path(film), float(limit_s))
        (partial(with_xids, run) if xids else run)()
        code = 0
    finally:
        if code:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(code)  # without waiting for threads in calls that hang
