"""Sources, streams of their frames, and the frames of a sequential decode."""

import asyncio
import hashlib
import threading
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from av.video.frame import VideoFrame

from codecfleet import Frame
from codecfleet.actors.decode.decoding import SOFTWARE, DecodeTally, decode_range
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.surfaces.frames import plane_arrays
from codecfleet.errors import EngineUnfit
from codecfleet.jobs.frames.request import FrameRequest
from codecfleet.jobs.frames.stream import FrameStream
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from codecfleet.testing.nvidia.fake_device import FakeDevice

if TYPE_CHECKING:
    from codecfleet.actors.device.interface import WorkerDevice


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


def reference(source: Path) -> Told:
    """Return (ticks, hash) of every frame of a sequential decode."""
    index = read_source(str(source)).index
    (segment,) = TrackRanges.cut(index, start_s=None, end_s=None, segment_s=Fraction(1000)).segments
    whole = TrackRanges(index, (segment,)).decode(segment, 0)
    return [(ticks, hashed(frame)) for ticks, frame in decode_range(whole, DecodeTally(), SOFTWARE)]


def stream(source: Path, device: "WorkerDevice | None" = None, **options: Any) -> FrameStream:
    """Return the frames of a source in segments of a third of a second, on a fake GPU unless another is given."""
    gpu = FakeDevice().gpu if device is None else device
    request = FrameRequest(source=str(source), **({"segment_s": Fraction(1, 3), "threads": 3} | options))
    return FrameStream(request, lambda: gpu)


async def read(frames: FrameStream) -> list[Frame]:
    """Take all frames."""
    return [frame async for frame in frames]


def taken(frames: FrameStream) -> list[Frame]:
    """Take all frames, in a new event loop."""
    return asyncio.run(read(frames))


def told(frames: list[Frame]) -> Told:
    """Return (ticks, hash) of frames in any memory."""
    return [(frame.ticks, hashed(frame.to_video_frame())) for frame in frames]


@pytest.fixture(scope="module")
def unordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures in closed groups of 8, shown in the order in which they are coded."""
    options = (("x264-params", "keyint=8:min-keyint=8:scenecut=0:bframes=0:nal-hrd=none:force-cfr=1"),)
    return make_clip(tmp_path_factory.mktemp("frames") / "clip.mkv", Clip(times=constant_times(24), options=options))


def no_gpu() -> Gpu:
    """Return a fake GPU."""

    def refuse() -> Any:
        message = "there is no driver"
        raise EngineUnfit(message)

    return Gpu(refuse)


def workers() -> list[threading.Thread]:
    """Return the threads that decode frames."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("codecfleet-frames")]
