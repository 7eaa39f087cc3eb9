"""A segment on a device's decoder has the bytes of software, and software decodes if the device fails."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.decode.decoding import PictureDecoder
from codecfleet.actors.device.interface import SESSIONS_OPENING
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.segment.decode_path import METADATA_IN_SOFTWARE
from codecfleet.actors.segment.encoding import EncodedSegment, EncodeSegment
from codecfleet.errors import (
    Cancelled,
    DeviceLost,
    EngineBusy,
    EngineFailed,
)
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

FRAMES = 48
GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3:open-gop=1"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clip with open groups of pictures."""
    clip = Clip(times=constant_times(FRAMES), options=(("x264-params", GOP),), width=64, height=64)
    return make_clip(tmp_path_factory.mktemp("segments") / "clip.mkv", clip)


def segments(source: Path, **changes: object) -> list[EncodeSegment]:
    """Return a job's work items, segment by segment."""
    wanted = {"source": str(source), "output": "out.mkv", "segment_s": Fraction(1, 2), "preset": 1, **changes}
    plan = plan_transcode(TranscodeSpec.model_validate(wanted))
    return [plan.work("job", number, number, 0) for number in range(len(plan.segments))]


def content(encoded: EncodedSegment) -> tuple[object, ...]:
    """Return the parts of a result that must not depend on the decoder."""
    tally = encoded.tally
    return (
        encoded.pts_ticks.tolist(),
        encoded.sizes_bytes.tolist(),
        encoded.keyframes.tolist(),
        encoded.payload.tobytes(),
        encoded.extradata,
        encoded.resized,
        replace(tally, decoded_by="", fallback="", decode_s=0.0),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scale": (48, 32)},
        {"pix_fmt": "yuv422p10le", "codec": "hevc"},
        {"deinterlace": "on"},
        {"deinterlace": "auto", "scale": (32, 32), "pix_fmt": "yuv444p"},
        {"crop": (32, 24, 8, 4), "rotate": "90", "pad": (48, 48)},
    ],
)
def test_bytes_do_not_depend_on_who_decoded(source: Path, changes: dict[str, object]) -> None:
    """With any filters, every segment's packets, times and seams are those of software."""
    works = segments(source, **changes)
    assert len(works) >= 3
    for work in works:
        in_software = work.run(WorkContext())
        device = SurfaceDecoder()
        on_device = work.run(WorkContext(device=device_with(device)))
        assert device.pictures >= on_device.tally.frames > 0
        assert content(on_device) == content(in_software)
        assert (on_device.tally.decoded_by, on_device.tally.fallback) == ("nvdec", "")
        assert (in_software.tally.decoded_by, in_software.tally.fallback) == ("software", "")


@pytest.mark.parametrize("after", [0, 11, None])
def test_software_starts_over_where_the_device_fails(source: Path, after: int | None) -> None:
    """Whichever picture fails, the result is that of software, names the reason, and counts frames once."""
    work, counting = segments(source)[1], SurfaceDecoder()
    wanted = work.run(WorkContext())
    assert content(work.run(WorkContext(device=device_with(counting)))) == content(wanted)
    after = counting.pictures - 1 if after is None else after
    context = WorkContext(frames_done=100, device=device_with(SurfaceDecoder(EngineFailed("it gave up"), after)))
    found = work.run(context)
    assert content(found) == content(wanted)
    assert (found.tally.decoded_by, found.tally.fallback) == ("software", "it gave up")
    assert (found.device_fault, wanted.device_fault) == ("it gave up", "")
    assert context.frames_done == 100 + wanted.frames_out
    assert (found.tally.failed_packets, found.tally.corrupt_frames) == (0, 0)


def test_what_nvdec_may_not_decode_says_why(tmp_path: Path) -> None:
    """An interlaced track is decoded in software; the reason is what NVDEC cannot do."""
    clip = Clip(times=constant_times(12), options=(("x264-params", "interlaced=1"),), width=64, height=64)
    work = segments(make_clip(tmp_path / "fields.mkv", clip), deinterlace="on")[0]
    device = SurfaceDecoder()
    found = work.run(WorkContext(device=device_with(device)))
    assert content(found) == content(work.run(WorkContext()))
    assert (found.tally.decoded_by, device.pictures, found.device_fault) == ("software", 0, "")
    assert "interlaced" in found.tally.fallback


def test_dolby_vision_stays_in_software(source: Path) -> None:
    """Only software passes on the metadata, so the device is not even asked."""
    work = segments(source, codec="hevc")[0]
    dolby = replace(work, encoder=replace(work.encoder, dolby_vision=True))
    device = SurfaceDecoder(DeviceLost("it must not be asked"))
    found = dolby.run(WorkContext(device=device_with(device)))
    assert found.tally.decoded_by == "software"
    assert found.tally.fallback == METADATA_IN_SOFTWARE
    assert device.pictures == 0


class _BusyGpu(Gpu):
    """A GPU with a session for callers that wait, and none for others."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = SurfaceDecoder()

    def non_blocking_pictures(self) -> AbstractContextManager[PictureDecoder[VideoFrame]]:
        """Provide a decoder without a session."""
        return nullcontext(SurfaceDecoder(EngineBusy(SESSIONS_OPENING)))


@pytest.mark.parametrize(
    ("device", "told"), [("auto", ("software", SESSIONS_OPENING)), ("gpu", ("nvdec", "")), ("cpu", ("software", ""))]
)
def test_who_requires_on_a_gpu_waits_for_it(source: Path, device: str, told: tuple[str, str]) -> None:
    """While sessions are still being opened, a job continues in software unless it requires a GPU."""
    work = segments(source, device=device)[1]
    wanted = work.run(WorkContext())
    found = work.run(WorkContext(device=None if device == "cpu" else _BusyGpu()))
    assert content(found) == content(wanted)
    assert (found.tally.decoded_by, found.tally.fallback) == told


def test_cancelling_is_no_failure_of_the_device(source: Path) -> None:
    """Cancelled work on a device ends, and does not start again in software."""
    context = WorkContext(device=device_with(SurfaceDecoder()))
    context.cancel()
    with pytest.raises(Cancelled):
        segments(source)[1].run(context)
