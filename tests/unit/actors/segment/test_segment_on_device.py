"""A segment encoded by a device has the same bytes with any decoder, and pictures scaled there stay there."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.device.encoder_offer import EncoderOffer
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.encode.settings import Codec
from codecfleet.actors.segment.encoding import EncodedSegment, EncodeSegment
from codecfleet.cluster.placement.model.demand import EncoderKind
from codecfleet.errors import DeviceError, EngineFailed, EngineUnfit
from codecfleet.jobs.plan.encoders import with_nvenc
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.verify.reference.hdr10plus import MessageReader
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice, drop_idle
from tests.hdr10plus_films import FRAMES, every, hevc, message

ADA = EncoderKind("nvenc", "ada", "580")
GOP = "keyint=8:min-keyint=8:scenecut=0:bframes=3:open-gop=1"
X265 = f"{GOP}:log-level=none:pools=1:frame-threads=1"
EIGHT_BITS = Clip(times=constant_times(30), options=(("x264-params", GOP),), width=96, height=64)
TEN_BITS = Clip(
    times=constant_times(30),
    encoder="libx265",
    options=(("x265-params", X265),),
    width=96,
    height=64,
    pix_fmt="yuv420p10le",
)
SOURCES = {"h264.mkv": EIGHT_BITS, "hevc-10.mkv": TEN_BITS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources."""
    folder = tmp_path_factory.mktemp("on-device")
    for name, clip in SOURCES.items():
        make_clip(folder / name, clip)
    return folder


def planned(source: Path, **changes: object) -> Plan:
    """Return a plan for a fake GPU's NVENC."""
    wanted = {"source": str(source), "output": "out.mkv", "segment_s": Fraction(1, 2), "preset": 1, **changes}
    plan = plan_transcode(TranscodeSpec.model_validate(wanted))
    capabilities = FakeDevice().gpu.encoder_capabilities(plan.encoder.codec)
    assert plan.nvenc is not None
    return with_nvenc(plan, plan.nvenc, ADA, EncoderOffer(capabilities, "2.2.4", converts=True))


def works(plan: Plan) -> list[EncodeSegment]:
    """Return a plan's segments."""
    return [plan.work("job", number, number, 0) for number in range(len(plan.segments))]


def content(encoded: EncodedSegment) -> tuple[object, ...]:
    """Return the parts of a result that must not depend on the decoder."""
    return (
        encoded.pts_ticks.tolist(),
        encoded.payload.tobytes(),
        encoded.extradata,
        encoded.tally.seam_before,
        encoded.tally.seam_after,
        encoded.resized,
    )


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC, Codec.AV1])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scale": (64, 48)},
        {"pix_fmt": "yuv420p"},
        {"pix_fmt": "yuv420p10le", "scale": (128, 80)},
        {"keyframe_interval_s": Fraction(7, 50)},
    ],
    ids=["as-it-is", "smaller", "8-bit", "larger-10-bit", "cut-between-access-points"],
)
def test_bytes_do_not_depend_on_who_decoded(
    folder: Path, source: str, codec: Codec, changes: dict[str, object]
) -> None:
    """Pictures of NVDEC, and software's pictures copied to the device, give the same packets and seams."""
    plan = planned(folder / source, codec=codec, **changes)
    segments = works(plan)
    assert len(segments) >= 2
    assert plan.filters.on_device
    for work in segments:
        on_nvdec = work.run(WorkContext(device=FakeDevice().gpu))
        broken = FakeDevice()
        broken.decoder.supported = frozenset()
        in_software = work.run(WorkContext(device=broken.gpu))
        assert (on_nvdec.tally.decoded_by, in_software.tally.decoded_by) == ("nvdec", "software")
        assert "NVDEC" in in_software.tally.fallback
        assert content(on_nvdec) == content(in_software)
        assert on_nvdec.tally.frames == on_nvdec.frames_out > 0


@pytest.mark.parametrize("codec", [Codec.HEVC, Codec.AV1])
def test_each_picture_keeps_its_hdr10_plus(codec: Codec, tmp_path: Path) -> None:
    """NVDEC's pictures have no metadata and NVENC writes none, so both are left to the packets."""
    plan = planned(hevc(tmp_path, every), codec=codec)
    assert plan.warnings == ()
    found: list[tuple[int, bytes]] = []
    for work in works(plan):
        encoded = work.run(WorkContext(device=FakeDevice().gpu))
        assert encoded.tally.decoded_by == "nvdec"
        begin, reader = 0, MessageReader(codec, b"")
        for pts, size in zip(encoded.pts_ticks.tolist(), encoded.sizes_bytes.tolist(), strict=True):
            found.append((pts, reader.read(encoded.payload[begin : begin + size].tobytes()) or b""))
            begin += size
    assert [written for _, written in sorted(found)] == [message(number) for number in range(FRAMES)]


def test_pictures_do_not_leave_the_device(folder: Path) -> None:
    """Only the pictures that prove a seam are copied to the host; none is copied to the device."""
    work = works(planned(folder / "h264.mkv", scale=(64, 48)))[0]
    device = FakeDevice()
    encoded = work.run(WorkContext(device=device.gpu))
    hashed = len(encoded.tally.seam_before) + len(encoded.tally.seam_after)
    assert device.driver.calls["cuMemcpyDtoHAsync"] == hashed
    assert "cuMemcpyHtoDAsync" not in device.driver.calls
    assert device.driver.calls["cuMemcpyDtoDAsync"] >= encoded.tally.frames


def test_all_memory_comes_back(folder: Path) -> None:
    """After a segment only idle memory stays on the device, and a second segment leaves no more."""
    device = FakeDevice()
    opened = device.gpu.opened()

    def kept(work: EncodeSegment) -> tuple[int, int, int]:
        work.run(WorkContext(device=device.gpu))
        # How many pictures exist at once depends on how far the decoder gets ahead of the encoder.
        drop_idle(opened.memory)
        return len(device.driver.memory), len(device.driver.streams), opened.budget.taken_bytes

    first, second = (works(planned(folder / "h264.mkv", scale=(64, 48)))[0] for _ in range(2))
    assert kept(first) == kept(second)
    assert device.encoder.open_sessions == 0


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"deinterlace": "on"}, " software-filters"),
        ({"crop": (64, 48, 8, 4)}, " software-filters crop=64:48:8:4"),
        ({"denoise": "light"}, " software-filters bilateral=sigmaS=1.5:sigmaR=0.03"),
        ({"rotate": "90"}, " software-filters turn=0:1:-1:0"),
        ({"scale": (64, 48), "pad": (96, 64)}, " software-filters scale=64:48 pad=96:64:16:8"),
    ],
)
def test_filters_are_softwares(folder: Path, changes: dict[str, object], kind: str) -> None:
    """Pictures that the device cannot filter are filtered in software, and encoded one by one."""
    plan = planned(folder / "h264.mkv", **changes)
    assert not plan.filters.on_device
    assert plan.encoder_kind.endswith(kind)
    for work in works(plan):
        encoded = work.run(WorkContext(device=FakeDevice().gpu))
        assert encoded.tally.frames == encoded.frames_out > 0
        assert encoded.tally.decoded_by == "nvdec"


@pytest.mark.parametrize("fps", [Fraction(12), Fraction(60000, 1001)])
def test_a_rate_is_softwares(folder: Path, fps: Fraction) -> None:
    """When the frame rate changes, the host repeats or drops pictures.

    It passes each remaining one to the device's encoder with its number.
    """
    plan = planned(folder / "h264.mkv", fps=fps, keyframe_interval_s=Fraction(1, 4))
    assert not plan.filters.on_device
    assert plan.encoder_kind.endswith(f" fps={fps}")
    encoded = [work.run(WorkContext(device=FakeDevice().gpu)) for work in works(plan)]
    assert [number for each in encoded for number in sorted(each.pts_ticks)] == list(range(plan.frames))
    assert {each.tally.decoded_by for each in encoded} == {"nvdec"}
    assert sum(int(each.keyframes.sum()) for each in encoded) == 5


def test_the_kind_says_what_was_done_to_pictures(folder: Path) -> None:
    """Scaling on the device affects bytes, so it is in the encoder kind; unchanged pictures add nothing."""
    assert (
        "device-scaling-1 bicubic 96x64 NV12/8 left to 64x48"
        in planned(folder / "h264.mkv", scale=(64, 48)).encoder_kind
    )
    assert "scaling" not in planned(folder / "h264.mkv").encoder_kind
    assert planned(folder / "h264.mkv").encoder_kind.startswith("h264_nvenc PyNvVideoCodec-2.2.4 ada r580 ")


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC, Codec.AV1])
def test_keyframes_lie_where_they_were_asked_for(folder: Path, codec: Codec) -> None:
    """With --keyframe-interval, only the first picture at or after each multiple of the interval is a keyframe."""
    plan = planned(folder / "h264.mkv", codec=codec, keyframe_interval_s=Fraction(7, 50), preset=6)
    encoded = [work.run(WorkContext(device=FakeDevice().gpu)) for work in works(plan)]
    assert len(encoded) > 1
    keyframes = [int(ticks) for each in encoded for ticks in sorted(each.pts_ticks[each.keyframes])]
    assert keyframes == [0, 160, 280, 440, 560, 720, 840, 1000, 1120]


def test_an_encoder_that_fails_is_not_blamed_on_the_decoder(folder: Path) -> None:
    """The error of an encoder is raised at once, because decoding again in software would not help."""
    device = FakeDevice()
    device.encoder.faults = {"nvEncEncodePicture": 8}
    work = works(planned(folder / "h264.mkv"))[0]
    with pytest.raises(EngineFailed):
        work.run(WorkContext(device=device.gpu))
    assert device.decoder.decoders_made == 1


def test_a_worker_without_a_gpu_says_so(folder: Path) -> None:
    """Without a GPU, a track that a GPU encodes is refused, not encoded otherwise."""
    work = works(planned(folder / "h264.mkv"))[0]
    with pytest.raises(EngineUnfit, match="h264_nvenc encodes on a GPU, and this worker has no GPU"):
        work.run(WorkContext())


def test_a_gpu_without_an_encoder_says_so(folder: Path) -> None:
    """The error states the device's own reason."""
    device = FakeDevice()
    device.encoder.capabilities = {}
    work = works(planned(folder / "h264.mkv"))[0]
    with pytest.raises(DeviceError, match="this GPU has no h264 encoder"):
        work.run(WorkContext(device=device.gpu))


def test_a_picture_that_no_surface_holds_is_an_error(folder: Path, tmp_path: Path) -> None:
    """A picture that differs from the first picture and fits no surface is reported, not scaled."""
    odd = make_clip(tmp_path / "odd.mkv", replace(EIGHT_BITS, width=95, height=63, pix_fmt="yuv444p"))
    work = works(planned(folder / "h264.mkv"))[0]
    strange = replace(work, decode=replace(work.decode, source=str(odd), entry=None, expected_packets=None))
    device = FakeDevice()
    device.decoder.supported = frozenset()
    encoded = strange.run(WorkContext(device=device.gpu))
    assert sum(encoded.resized.values()) == encoded.tally.frames > 0
