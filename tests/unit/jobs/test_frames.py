"""``Fleet.frames``: the frames of a sequential decode, from several threads, on the host and on a (fake) device."""

import asyncio
import gc
import hashlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from av.video.frame import VideoFrame

from codecfleet import Fleet, Frame, NvdecOptions, SeiMessage
from codecfleet.actors.decoding import SOFTWARE, DecodeTally, OpenTrack, PictureDecoder, PictureHash, decode_range
from codecfleet.actors.media import VideoFormat
from codecfleet.actors.nvidia.cuda import Cuda
from codecfleet.actors.nvidia.gpu import Gpu, assemble_gpu
from codecfleet.actors.nvidia.nvdec_options import Latency
from codecfleet.actors.nvidia.stdout_monitor import StdoutMonitor
from codecfleet.actors.surfaces.device_tensor import device_tensor
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.errors import (
    EngineFailed,
    EngineUnfit,
    InputDamaged,
    InputNotFound,
    NoVideoTrack,
    ProofFailed,
    Unsupported,
    UsageError,
)
from codecfleet.jobs.frame_request import FrameRequest, FramesReport
from codecfleet.jobs.frame_slots import FramesEnd, FrameSlots, FrameTask, Superseded
from codecfleet.jobs.frame_stream import FrameStream
from codecfleet.jobs.own_gpu import OwnGpu
from codecfleet.jobs.source import read_source
from codecfleet.jobs.track_ranges import TrackRanges
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from codecfleet.testing.fake_device import FakeDevice, device_with, drop_idle
from codecfleet.testing.surface_decoder import SurfaceDecoder, surface_of

if TYPE_CHECKING:
    from codecfleet.actors.decoding import VideoPacket
    from codecfleet.actors.device import WorkerDevice

GOPS = (("x264-params", "keyint=8:min-keyint=8:scenecut=0:bframes=2"),)
OPEN_GOPS = (("x264-params", "keyint=8:min-keyint=8:scenecut=0:bframes=2:open-gop=1"),)
WAYS = [("host", "software"), ("host", "nvdec"), ("device", "nvdec"), ("device", "software"), ("auto", "auto")]

Told = list[tuple[int, str]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 pictures at uneven times in closed groups of 8."""
    times = uneven_times([40, 33, 47] * 15 + [40, 40])
    return make_clip(tmp_path_factory.mktemp("frames") / "clip.mkv", Clip(times=times, options=GOPS))


def hashed(frame: VideoFrame) -> str:
    """Hash a frame's samples."""
    return hashlib.sha256(b"".join(plane.tobytes() for plane in plane_arrays(frame))).hexdigest()


def truth(source: Path) -> Told:
    """Return (ticks, hash) of every frame of a sequential decode."""
    index = read_source(str(source)).index
    (segment,) = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(1000)).segments
    whole = TrackRanges(index, (segment,)).decode(segment, 0)
    return [(ticks, hashed(frame)) for ticks, frame in decode_range(whole, DecodeTally(), SOFTWARE)]


def stream(source: Path, device: "WorkerDevice | None" = None, **options: Any) -> FrameStream:  # noqa: ANN401 - of many types
    """Return the frames of a source in segments of a third of a second, on a fake GPU unless another is given."""
    gpu = FakeDevice().gpu if device is None else device
    request = FrameRequest(source=str(source), **({"segment_s": Fraction(1, 3), "threads": 3} | options))
    return FrameStream(request, lambda: gpu)


async def read(frames: FrameStream) -> list[Frame]:
    """Take all frames."""
    return [frame async for frame in frames]


def taken(frames: FrameStream) -> list[Frame]:
    """Take all frames, in a loop of their own."""
    return asyncio.run(read(frames))


def told(frames: list[Frame]) -> Told:
    """Return (ticks, hash) of frames, wherever they lie."""
    return [(frame.ticks, hashed(frame.to_video_frame())) for frame in frames]


@pytest.mark.parametrize(("place", "decoder"), WAYS)
@pytest.mark.parametrize("options", [GOPS, OPEN_GOPS])
def test_frames_are_those_of_a_sequential_decode(
    tmp_path: Path, options: tuple[tuple[str, str], ...], place: str, decoder: str
) -> None:
    """Whoever decodes, wherever to: the same frames, once each, in order, at the same times, numbered from 0."""
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(40, start=120), options=options))
    frames = stream(path, place=place, decoder=decoder)
    found = taken(frames)
    assert told(found) == truth(path)
    assert [frame.index for frame in found] == list(range(40))
    assert [frame.time_s for frame in found] == [Fraction(n * 40, 1000) for n in range(40)]
    assert {frame.on_device for frame in found} == {place != "host"}
    assert frames.report.on_device == (place != "host")
    assert (frames.report.frames, frames.report.frames_promised) == (40, 40)
    assert set(frames.report.decoded_by) == {"nvdec" if decoder == "auto" else decoder}
    assert frames.report.segments > 2


@pytest.mark.parametrize(
    ("start", "end", "every"), [(None, None, 3), (Fraction(1, 2), Fraction(3, 2), 1), (1, None, 7)]
)
def test_a_part_and_every_nth(source: Path, start: Fraction | None, end: Fraction | None, every: int) -> None:
    """A half-open part in time, and each N-th of its frames, counted from its first: the same by every way."""
    whole = truth(source)
    first = whole[0][0]
    part = [
        (ticks, digest)
        for ticks, digest in whole
        if (start or 0) <= Fraction(ticks - first, 1000) and (end is None or Fraction(ticks - first, 1000) < end)
    ]
    for place, decoder in WAYS:
        found = taken(stream(source, place=place, decoder=decoder, start_s=start, end_s=end, every=every))
        assert told(found) == part[::every]
        assert [frame.index for frame in found] == list(range(0, len(part), every))


def test_times_that_are_missing_are_mended_as_for_transcode(tmp_path: Path) -> None:
    """A raw bitstream has no times: frames are counted."""
    path = make_clip(tmp_path / "clip.h264", Clip(times=constant_times(24), options=GOPS))
    found = taken(stream(path))
    assert told(found) == truth(path)
    assert [frame.index for frame in found] == list(range(24))


def test_frames_on_the_host_become_what_is_asked_for(source: Path) -> None:
    """Size and pixel format are software's; planes have no padding; NumPy takes a frame as it is."""
    found = taken(stream(source, size=(30, 20), pix_fmt="rgb24"))
    assert len(found) == 48
    assert all(frame.planes[0].shape == (20, 30, 3) for frame in found)
    assert (found[0].width, found[0].height, found[0].pix_fmt) == (30, 20, "rgb24")
    assert np.array_equal(np.from_dlpack(found[7]), found[7].to_ndarray())
    assert not hasattr(found[7], "__cuda_array_interface__")
    grey = taken(stream(source, pix_fmt="gray", place="auto", end_s=Fraction(1, 10)))
    assert [plane.shape for plane in grey[0].planes] == [(48, 64)]


def test_a_picture_that_no_filter_makes_is_refused(tmp_path: Path) -> None:
    """FFmpeg finds some sizes impossible only when it is to give the first picture."""
    tall = make_clip(tmp_path / "tall.mkv", Clip(times=constant_times(2), width=64, height=480))
    with pytest.raises(Unsupported, match="a picture of 64x480 yuv420p cannot be converted"):
        taken(stream(tall, size=(60_000, 2)))


@pytest.mark.parametrize(
    ("pix_fmt", "shapes", "dtype"),
    [
        ("nv12", [(48, 64), (24, 32, 2)], "<u1"),
        ("rgba", [(48, 64, 4)], "<u1"),
        ("gray10le", [(48, 64)], "<u2"),
        ("rgb48be", [(48, 64, 3)], ">u2"),
        ("gbrpf32le", [(48, 64)] * 3, "<f4"),
        ("rgb0", None, ""),
        ("yuyv422", None, ""),
        ("x2rgb10le", None, ""),
        ("monow", None, ""),
    ],
)
def test_planes_are_arrays_of_samples(
    source: Path, pix_fmt: str, shapes: list[tuple[int, ...]] | None, dtype: str
) -> None:
    """Each plane is an array of its samples as they are, or refused where no array is."""
    frame = taken(stream(source, pix_fmt=pix_fmt, end_s=Fraction(1, 100)))[0]
    if shapes is None:
        with pytest.raises(Unsupported, match=f"the planes of {pix_fmt} are no arrays"):
            _ = frame.planes
        return
    planes = plane_arrays(frame.to_video_frame())
    assert [plane.shape for plane in planes] == shapes
    assert {plane.dtype for plane in planes} == {np.dtype(dtype)}
    if len(planes) == 1:
        assert np.array_equal(planes[0].astype(planes[0].dtype.newbyteorder("=")), frame.to_ndarray())


@pytest.mark.parametrize(
    ("pix_fmt", "size", "shapes"),
    [
        ("yuv420p", (33, 21), [(21, 33), (11, 17), (11, 17)]),
        ("yuv422p10le", (33, 20), [(20, 33), (20, 17), (20, 17)]),
        ("yuv420p12le", (32, 20), [(20, 32), (10, 16), (10, 16)]),
        ("pal8", (32, 20), None),
    ],
)
def test_what_is_not_one_array_is_refused(
    source: Path, pix_fmt: str, size: tuple[int, int], shapes: list[tuple[int, ...]] | None
) -> None:
    """Odd sides of halved chroma, formats that PyAV does not know, and pictures beside a palette; most have planes."""
    first = taken(stream(source, end_s=Fraction(1, 100)))[0]
    picture = VideoFrame(*size, pix_fmt)
    frame = replace(
        first, format=replace(first.format, pix_fmt=pix_fmt, width=size[0], height=size[1]), _picture=picture
    )
    with pytest.raises(Unsupported, match=f"a frame of {size[0]}x{size[1]} {pix_fmt} is .*one array"):
        frame.to_ndarray()
    assert frame.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match=pix_fmt):
        np.from_dlpack(frame)
    if shapes is not None:
        assert [plane.shape for plane in frame.planes] == shapes


def test_a_source_that_no_surface_holds_is_no_frame_on_the_device(tmp_path: Path) -> None:
    """What cannot lie on the device is refused before anything is decoded, and stays on the host by itself."""
    clip = Clip(times=constant_times(3), pix_fmt="yuv411p", encoder="ffv1", options=())
    path = make_clip(tmp_path / "clip.mkv", clip)
    for options in ({}, {"pix_fmt": "yuv420p"}):
        with pytest.raises(Unsupported, match=r"no frame on the device is 64x48 yuv411p"):
            taken(stream(path, place="device", **options))
    assert not taken(stream(path, place="auto"))[0].on_device


def test_frames_on_the_device_become_what_is_asked_for_there(source: Path) -> None:
    """Scaled where they lie, the same whoever decoded them; what no surface holds is refused by name."""
    found = taken(stream(source, place="device", size=(48, 32)))
    assert {(frame.width, frame.height, frame.pix_fmt, frame.on_device) for frame in found} == {
        (48, 32, "yuv420p", True)
    }
    assert {frame.__cuda_array_interface__["shape"] for frame in found} == {(48, 48)}
    assert told(found) == told(taken(stream(source, place="device", decoder="software", size=(48, 32))))
    for options in ({"pix_fmt": "rgb24"}, {"size": (31, 20)}):
        with pytest.raises(Unsupported, match="no frame on the device"):
            taken(stream(source, place="device", **options))


class Doubtful(PictureDecoder[VideoFrame]):
    """Software that spoils the first pictures of ranges that begin at ``packets``, as an unclean access point does."""

    name = "doubtful"

    def __init__(self, packets: set[int]) -> None:
        self.packets = packets
        self.begun: list[int] = []

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Decode."""
        first = next(packets)
        self.begun.append(first[0])

        def again() -> "Iterator[tuple[int, VideoPacket]]":
            yield first
            yield from packets

        for place, (number, frame) in enumerate(SOFTWARE.decode(track, again(), tally)):
            if first[0] in self.packets and place < 4:
                frame.planes[0].update(bytes(frame.planes[0].buffer_size))
            yield number, frame


def test_a_segment_that_begins_otherwise_is_decoded_from_further_back(source: Path) -> None:
    """What two segments see at their seam must agree: the later one moves its entry back, and no frame is wrong."""
    decoder = Doubtful({16, 32})
    frames = stream(source, device_with(decoder), decoder="nvdec")
    assert told(taken(frames)) == truth(source)
    assert frames.report.entry_moves == 2
    assert {8, 24} <= set(decoder.begun)


def test_a_device_that_gives_up_leaves_no_trace_but_a_reason(source: Path) -> None:
    """Nothing of a segment is handed out before its device is sure: software decodes it from its beginning."""
    failing = SurfaceDecoder(EngineFailed("it gave up"), 9)
    frames = stream(source, device_with(failing))
    assert told(taken(frames)) == truth(source)
    assert set(frames.report.fallbacks) == {"it gave up"}
    with pytest.raises(EngineFailed, match="it gave up"):
        taken(stream(source, device_with(SurfaceDecoder(EngineFailed("it gave up"), 9)), decoder="nvdec"))


@pytest.fixture(scope="module")
def unordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures in closed groups of 8, shown in the order in which they are coded."""
    options = (("x264-params", "keyint=8:min-keyint=8:scenecut=0:bframes=0:nal-hrd=none:force-cfr=1"),)
    return make_clip(tmp_path_factory.mktemp("frames") / "clip.mkv", Clip(times=constant_times(24), options=options))


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("latency", ["low", "zero"])
def test_little_latency_gives_the_same_frames(unordered: Path, place: str, latency: Latency) -> None:
    """The decoder is asked for it, and frames and times are the same."""
    device = FakeDevice()
    frames = stream(unordered, device.gpu, place=place, decoder="nvdec", nvdec=NvdecOptions(latency=latency))
    assert told(taken(frames)) == truth(unordered)
    assert {options["latency"] for options in device.decoder.options} == {{"low": 1, "zero": 2}[latency]}


@pytest.mark.parametrize(("options", "handed_out"), [(NvdecOptions(), 8), (NvdecOptions(latency="zero"), 11)])
def test_little_latency_hands_frames_out_before_their_segment_is_proven(
    unordered: Path, options: NvdecOptions, handed_out: int
) -> None:
    """By itself nothing of a segment that NVDEC breaks comes out; with low latency what came before the fault does."""
    device = FakeDevice()
    # One to open the session; ten of the first segment: eight, and two to prove the seam. Then the fifth of the second,
    # whose fourth waits to hear when the next one is shown.
    device.decoder.left_out = frozenset({1 + 10 + 4})
    found: list[Frame] = []

    async def read_all() -> None:
        frames = stream(unordered, device.gpu, decoder="nvdec", nvdec=options, threads=1)
        async for frame in frames:
            found.append(frame)  # noqa: PERF401 - what came before the error

    with pytest.raises(EngineFailed, match=r"left out 1 pictures|held the picture of packet 12 back"):
        asyncio.run(read_all())
    assert told(found) == truth(unordered)[:handed_out]


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("size", [None, (32, 32)])
def test_notes_come_with_their_frames(unordered: Path, place: str, size: tuple[int, int] | None) -> None:
    """SEI messages and statistics are the frame's, wherever it lies and whatever it became; else there are none."""
    device = FakeDevice()
    device.decoder.sei_messages = ((5, b"user data"),)
    device.decoder.statistics = {name: [7] for name in ("qp_luma", "cu_type", "mv0_x", "mv0_y", "mv1_x", "mv1_y")}
    options = NvdecOptions(sei_messages=True, statistics=True)
    found = taken(stream(unordered, device.gpu, place=place, size=size, decoder="nvdec", nvdec=options))
    assert len(found) == 24
    for frame in found:
        assert frame.notes is not None
        assert frame.notes.sei_messages == (SeiMessage(5, b"user data"),)
        assert frame.notes.statistics is not None
        assert frame.notes.statistics.first_motion == ((7, 7),)
    assert {frame.notes for frame in taken(stream(unordered, device.gpu, decoder="nvdec"))} == {None}


def test_software_has_no_options_of_nvdec() -> None:
    """Also where it might decode a segment alone: who asks for them says that NVDEC shall decode."""
    for decoder in ("software", "auto"):
        with pytest.raises(UsageError, match=f"software has no NvdecOptions, and decoder '{decoder}'"):
            Fleet().frames("film.mkv", decoder=decoder, nvdec=NvdecOptions(sei_messages=True))  # type: ignore[arg-type]


def test_a_segment_that_memory_does_not_hold_is_not_a_device_s(source: Path) -> None:
    """Software needs no memory for a whole segment; who insists on NVDEC is told."""
    frames = stream(source, memory_bytes=20_000)
    assert told(taken(frames)) == truth(source)
    assert frames.report.decoded_by == {"software": frames.report.segments}
    assert "too long to be held in memory" in frames.report.fallbacks[0]
    assert frames.report.held_bytes_max <= 20_000
    with pytest.raises(Unsupported, match="do not fit into the memory"):
        taken(stream(source, memory_bytes=20_000, decoder="nvdec"))


def damaged(source: Path, tmp_path: Path) -> Path:
    """Return a source with bytes of a packet in its middle overwritten."""
    index = read_source(str(source)).index
    data = bytearray(source.read_bytes())
    place = int(index.pos_bytes[20]) + 20
    data[place : place + 200] = bytes(200)
    path = tmp_path / "damaged.mkv"
    path.write_bytes(data)
    return path


def test_damage_is_counted_or_refused(source: Path, tmp_path: Path) -> None:
    """What decodes comes, at its times and the same with any number of threads; ``strict`` makes damage an error."""
    path = damaged(source, tmp_path)
    frames = stream(path, decoder="software")
    found = taken(frames)
    assert [frame.ticks for frame in found] == [ticks for ticks, _ in truth(path)]
    assert len(found) < 48
    assert told(found)[:16] == truth(source)[:16]
    assert told(found) == told(taken(stream(path, decoder="software", threads=1)))
    assert frames.report.failed_packets + frames.report.corrupt_frames > 0
    assert [frame.index for frame in found] == sorted({frame.index for frame in found})
    with pytest.raises(InputDamaged):
        taken(stream(path, decoder="software", strict=True))


def no_gpu() -> Gpu:
    """Return a GPU that is none."""

    def refuse() -> Any:  # noqa: ANN401 - never returns
        message = "there is no driver"
        raise EngineUnfit(message)

    return Gpu(refuse)


def test_without_a_gpu_frames_come_to_the_host(source: Path) -> None:
    """Unless the GPU is insisted on, software decodes, and the report says why; who insists learns it at once."""
    frames = stream(source, no_gpu(), place="auto")
    found = taken(frames)
    assert told(found) == truth(source)
    assert frames.report.gpu_refusal == "there is no driver"
    assert not found[0].on_device
    for options in ({"place": "device"}, {"decoder": "nvdec"}):
        with pytest.raises(EngineUnfit, match="no driver"):
            taken(stream(source, no_gpu(), **options))


@pytest.mark.parametrize(
    "options",
    [
        {"place": "moon"},
        {"decoder": "hope"},
        {"every": 0},
        {"threads": 0},
        {"memory_bytes": 0},
        {"start_s": Fraction(2), "end_s": Fraction(1)},
        {"start_s": Fraction(-1)},
        {"size": (0, 2)},
        {"size": (10**10, 10)},
        {"size": (160, 90, 3)},
        {"size": (160.5, 90)},
        {"size": "160x90"},
        {"size": 160},
        {"every": 2.5},
        {"every": "x"},
        {"video_track": 0.5},
        {"memory_bytes": "2G"},
        {"pix_fmt": 3},
        {"start_s": "soon"},
        {"start_s": float("nan")},
        {"end_s": float("inf")},
    ],
)
def test_what_makes_no_sense_is_refused_at_once(options: dict[str, Any]) -> None:
    """Before anything is read."""
    with pytest.raises(UsageError):
        Fleet().frames("absent.mkv", **options)


def test_what_is_wrong_with_a_source_comes_with_the_first_frame(source: Path) -> None:
    """One error of our tree, and the stream is at its end."""

    async def first(frames: FrameStream) -> None:
        with pytest.raises((InputNotFound, NoVideoTrack, UsageError)):
            await anext(frames)
        with pytest.raises(StopAsyncIteration):
            await anext(frames)

    asyncio.run(first(stream(Path("absent.mkv"))))
    asyncio.run(first(stream(source, video_track=3)))
    asyncio.run(first(stream(source, start_s=Fraction(100))))


def workers() -> list[threading.Thread]:
    """Return the threads that decode frames."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("codecfleet-frames")]


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


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv422p10le", "yuv444p"])
def test_a_frame_on_the_device_is_a_tensor(tmp_path: Path, pix_fmt: str) -> None:
    """DLPack and the CUDA array interface name its memory: the rows of all planes, and each plane by itself."""
    path = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(3), pix_fmt=pix_fmt, encoder="libx264"))
    frame = taken(stream(path, place="device", decoder="software"))[1]
    assert frame.__dlpack_device__() == (2, 0)
    tensor = device_tensor(frame)
    picture = frame.device_picture
    assert picture is not None
    surface = surface_of(frame.to_video_frame(), picture.format)
    assert tensor.address == picture.address
    assert int(np.prod(tensor.shape)) * tensor.item_bytes == len(surface)
    assert tensor.shape[1] == 64
    interface = frame.__cuda_array_interface__
    assert (interface["shape"], interface["data"]) == (tensor.shape, (picture.address, False))
    offset = 0
    for plane in frame.planes:
        of_plane = device_tensor(plane)
        assert of_plane.address == picture.address + offset
        assert plane.__cuda_array_interface__["typestr"] == ("|u1" if of_plane.item_bytes == 1 else "<u2")
        offset += int(np.prod(of_plane.shape)) * of_plane.item_bytes
    assert offset == len(surface)


def test_a_capsule_keeps_the_memory(source: Path) -> None:
    """As long as anything was made of a frame, its memory is nobody else's; after that it goes back."""
    frame = taken(stream(source, place="device", end_s=Fraction(1, 100)))[0]
    assert frame.device_picture is not None
    memory = weakref.ref(frame.device_picture.frame.owner)
    for version in (None, (1, 0), (2, 0)):
        capsules = [frame.__dlpack__(max_version=version), frame.planes[1].__dlpack__(stream=1)]
        assert ("versioned" in repr(capsules[0])) == (version is not None)
        del capsules
    capsule = frame.__dlpack__()
    del frame
    gc.collect()
    assert memory() is not None
    del capsule
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("name", ["dltensor", "used_dltensor"])
def test_capsules_and_tensors_may_outlive_the_module(name: str) -> None:
    """What is let go of when the interpreter ends, after all modules, calls functions that are still there."""
    code = (
        "import ctypes, sys\n"
        "from codecfleet.actors.surfaces.frames_dlpack import DeviceArray\n"
        "sys.kept = DeviceArray(4096, (2, 2), 1, object()).__dlpack__()\n"
        f"sys.name = ctypes.c_char_p({name.encode()!r})\n"
        "rename = ctypes.PyDLL(None).PyCapsule_SetName\n"
        "rename.argtypes = ctypes.py_object, ctypes.c_char_p\n"
        "rename(sys.kept, sys.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_what_dlpack_cannot_have_is_refused(source: Path) -> None:
    """No copy, no other device, and no stream that CUDA leaves open."""
    frame = taken(stream(source, place="device", end_s=Fraction(1, 100)))[0]
    for options in ({"copy": True}, {"dl_device": (1, 0)}, {"stream": 0}):
        with pytest.raises(BufferError):
            frame.__dlpack__(**options)
    assert frame.__dlpack__(copy=False, dl_device=(2, 0), stream=-1)


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
        self.listening = listening


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


# The order of segments by itself, with nothing decoded.


def blank(index: int) -> Frame:
    """Return a frame that is only told by its number."""
    format_ = VideoFormat(16, 16, "gray", Fraction(25))
    picture = VideoFrame(16, 16, "gray")
    return Frame(index=index, ticks=index, time_base=Fraction(1, 25), start_ticks=0, format=format_, _picture=picture)


def seam(*ticks: int) -> tuple[PictureHash, ...]:
    """Return hashes of pictures that are told by their times."""
    return tuple(PictureHash(each, b"") for each in ticks)


def slots(segments: int, wake: Callable[[], None] = lambda: None, **options: int) -> FrameSlots:
    """Return an order of segments, two at once."""
    return FrameSlots(segments, **({"at_once": 2, "slot_bytes": 100} | options), wake=wake, report=FramesReport())


def task(found: FrameTask | None) -> FrameTask:
    """Return a task that is there."""
    assert found is not None
    return found


def end(order: FrameSlots, done: FrameTask, before: tuple[int, ...], after: tuple[int, ...], *, at_start: bool) -> None:
    """Finish a segment."""
    order.finish(
        done,
        before=seam(*before),
        after=seam(*after),
        at_start=at_start,
        told=("software", ""),
        tally=DecodeTally(),
    )


def test_segments_are_handed_out_in_order() -> None:
    """The later segment may be decoded first: its frames wait for those before."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.begin(right, whole=False)
    order.put(right, blank(1), 10)
    end(order, right, (1,), (), at_start=False)
    assert order.poll() is None
    order.begin(left, whole=True)
    order.put(left, blank(0), 10)
    assert order.poll() is None  # a device is not sure of it yet
    end(order, left, (0,), (1,), at_start=True)
    found = [order.poll(), order.poll()]
    assert [frame.index for frame in found if frame is not None] == [0, 1]
    with pytest.raises(FramesEnd):
        order.poll()


def test_a_seam_that_differs_is_decoded_again_and_at_last_given_up() -> None:
    """The run that began otherwise is superseded; from the track's start there is no further back."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.begin(right, whole=False)
    order.see_beginning(right, seam(7, 8))
    order.put(right, blank(7), 10)
    end(order, left, (0,), (1, 2), at_start=True)
    assert order.poll() is None
    with pytest.raises(Superseded):
        order.put(right, blank(8), 10)
    again = task(order.next_task())
    assert (again.segment, again.entry_moves) == (1, 1)
    end(order, again, (7, 8), (), at_start=True)
    with pytest.raises(ProofFailed):
        order.poll()


def test_nobody_decodes_too_far_ahead() -> None:
    """A full segment's thread waits for the consumer, and no third segment begins; one frame always has room."""
    woken = threading.Semaphore(0)
    order = slots(3, wake=woken.release, slot_bytes=25)
    left = task(order.next_task())
    assert task(order.next_task()).segment == 1

    def produce() -> None:
        for index in range(6):
            order.put(left, blank(index), 10)
        end(order, left, (0,), (6,), at_start=True)

    thread = threading.Thread(target=produce)
    thread.start()
    found: list[int] = []
    while len(found) < 6:
        frame = order.poll()
        if frame is None:
            assert woken.acquire(timeout=30)
        else:
            found.append(frame.index)
    thread.join()
    assert found == list(range(6))
    assert order._report.held_bytes_max <= 25
    order.put(FrameTask(1, 0, 0), blank(6), 1000)
    order.stop()
    assert order.next_task() is None


def test_an_error_comes_after_the_frames_before_it() -> None:
    """What could be decoded is delivered first."""
    order = slots(2)
    left, right = task(order.next_task()), task(order.next_task())
    order.fail(right, EngineFailed("it broke"))
    order.put(left, blank(0), 10)
    end(order, left, (0,), (), at_start=True)
    assert order.poll() is not None
    with pytest.raises(EngineFailed):
        order.poll()
