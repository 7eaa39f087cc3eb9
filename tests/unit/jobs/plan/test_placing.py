"""The demand of a plan, and a placement in words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.text_lines import WIDTH
from codecfleet.errors import Unsupported
from codecfleet.jobs.plan.placing import (
    CPU_ONLY,
    PlacedPlan,
    check_device,
    demand_of,
    device_unsupported_reason,
    media_case,
    place_plan,
)
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import FakeDevice


def _demand(encoder: EncoderChoice = EncoderChoice.AUTO) -> Demand:
    track = Rendition(case=CodecCase(MediaCodec.HEVC, Direction.ENCODE), width=1280, height=720, software="libx265")
    return Demand(
        job="plan",
        segments=(240,) * 4,
        decode=CodecCase(MediaCodec.H264, Direction.DECODE),
        width=1280,
        height=720,
        renditions=(track,),
        encoder=encoder,
    )


def _placed(fleet: str, encoder: EncoderChoice = EncoderChoice.AUTO) -> PlacedPlan:
    machines = inventory_of_fleet(load_fleet(fleet))
    return place_plan(_demand(encoder), machines, start_rates(), Policy(), where="a fleet", note="simulated")


@pytest.mark.parametrize(
    ("codec", "pix_fmt", "expected"),
    [
        ("h264", "yuv420p", CodecCase(MediaCodec.H264, Direction.DECODE)),
        ("hevc", "yuv420p10le", CodecCase(MediaCodec.HEVC, Direction.DECODE, bit_depth=10)),
        ("prores", "yuva444p10le", CodecCase(MediaCodec.OTHER, Direction.DECODE, "4:4:4", 10)),
        ("mpeg2video", "yuv422p", CodecCase(MediaCodec.MPEG2, Direction.DECODE, "4:2:2")),
        ("mjpeg", "yuvj420p", CodecCase(MediaCodec.JPEG, Direction.DECODE)),
        ("vp9", "gbrp", CodecCase(MediaCodec.VP9, Direction.DECODE, "4:4:4")),
        ("h264", "yuv444p", CodecCase(MediaCodec.H264, Direction.DECODE, "4:4:4")),
        ("av1", "gray10le", CodecCase(MediaCodec.AV1, Direction.DECODE, "4:0:0", 10)),
        ("dvvideo", "yuv411p", CodecCase(MediaCodec.OTHER, Direction.DECODE, "4:1:1")),
        (None, "yuv420p", CodecCase(MediaCodec.OTHER, Direction.DECODE)),
    ],
)
def test_a_track_is_one_case(codec: str | None, pix_fmt: str, expected: CodecCase) -> None:
    """FFmpeg's names of a codec and pixel format give what an engine must support."""
    assert media_case(codec, Direction.DECODE, pix_fmt) == expected


def test_a_placement_as_json_is_plain() -> None:
    """A placement survives JSON, and each segment is on one lane."""
    document = _placed("h200-l40s").to_json()
    assert json.loads(json.dumps(document)) == document
    assert sorted(number for lane in document["lanes"] for number in lane["segments"]) == [0, 1, 2, 3]
    assert document["encoder_kinds"] == [{"implementation": "nvenc", "architecture": "ada", "driver_branch": "580"}]


def test_a_summary_is_one_line() -> None:
    """A summary is one line with sessions and speed, or with the reason if no device can do the job."""
    assert _placed("laptop").summary().startswith("placed on a fleet: cpu with ")
    placed = _placed("laptop", EncoderChoice.NVENC)
    assert "not placed on" in placed.summary()
    assert any(line.startswith("nowhere: ") for line in placed.lines())
    document = placed.to_json()
    assert (document["lanes"], document["encoder_kinds"], document["predicted"]["wall_s"]) == ([], [], None)


def _plan(folder: Path, params: str = "", **changes: object) -> Plan:
    path = folder / f"clip{params}.mkv"
    if not path.exists():
        make_clip(path, Clip(times=constant_times(12), options=(("x264-params", params),)))
    return plan_transcode(TranscodeSpec.model_validate({"source": str(path), "output": "out.mkv", **changes}))


@pytest.mark.parametrize(
    ("device", "encoder", "reason", "needs_gpu"),
    [
        ("auto", EncoderChoice.AUTO, "", False),
        ("cpu", EncoderChoice.SOFTWARE, CPU_ONLY, False),
        ("gpu", EncoderChoice.AUTO, "", True),
    ],
)
def test_the_requested_device_is_in_the_demand(
    tmp_path: Path, device: str, encoder: EncoderChoice, reason: str, *, needs_gpu: bool
) -> None:
    """``device`` decides whether the demand has only CPUs, requires a GPU, or leaves the choice."""
    demand = demand_of(_plan(tmp_path, device=device))
    assert (demand.encoder, demand.software_decode, demand.needs_gpu) == (encoder, reason, needs_gpu)


def test_what_no_gpu_may_decode_says_why(tmp_path: Path) -> None:
    """Interlaced pictures, captions, Dolby Vision and unsupported codecs stay in software, each with its reason."""
    plan = _plan(tmp_path)
    unfit = replace(plan, extras=replace(plan.extras, device_unsupported_reason="NVDEC does not decode ffv1"))
    for refused, word in (
        (_plan(tmp_path, "interlaced=1"), "interlaced"),
        (replace(plan, extras=replace(plan.extras, frame_kinds=frozenset({"A53_CC"}))), "captions"),
        (replace(plan, encoder=replace(plan.encoder, dolby_vision=True)), "Dolby Vision"),
        (unfit, "decode ffv1"),
    ):
        assert word in device_unsupported_reason(refused)
    assert device_unsupported_reason(plan) == ""
    assert demand_of(unfit).software_decode == "NVDEC does not decode ffv1"


async def test_a_required_gpu_that_is_not_there_is_refused() -> None:
    """A job that requires a missing GPU is refused with the reason; other jobs are not."""
    wanted = replace(_demand(), needs_gpu=True, encoder=EncoderChoice.SOFTWARE)
    without, with_gpu = LocalPool(1), LocalPool(1, device=FakeDevice().gpu)
    await check_device(wanted, with_gpu)
    await check_device(replace(wanted, needs_gpu=False, software_decode="no"), without)
    with pytest.raises(Unsupported, match="--device gpu is not possible: the pictures are interlaced"):
        await check_device(replace(wanted, software_decode="the pictures are interlaced"), with_gpu)
    with pytest.raises(Unsupported, match="--device gpu is not possible: there is no GPU in this pool"):
        await check_device(wanted, without)


def test_lines_fit_a_terminal() -> None:
    """Lines of the largest fleet are wrapped, and the note is among them."""
    lines = _placed("mixed-200").lines()
    assert max(map(len, lines)) <= WIDTH
    assert "note: simulated" in lines


def test_one_segment_takes_a_whole_gpu_before_a_shared_one() -> None:
    """On a fleet with two vGPUs and a whole GPU, a single segment runs on the whole GPU."""
    lone = replace(_demand(), segments=(48,))
    placed = place_plan(lone, inventory_of_fleet(load_fleet("vgpu")), start_rates(), Policy(), where="a fleet")
    (lane,) = placed.placement.lanes
    assert lane.node == "passthrough"


def test_a_plan_names_the_encoder_that_will_encode() -> None:
    """If placement chooses an NVENC, the plan expects that kind; if software encodes, none."""
    expected = _placed("h200-l40s").expected
    assert expected is not None
    assert (expected.is_nvenc, expected.place) == (True, "ada, driver branch 580")
    assert _placed("laptop").expected is None


def test_the_plan_names_the_encoder_that_placement_chose(tmp_path: Path) -> None:
    """The plan names the chosen encoder in its head and its track, and never software; one segment is singular."""
    plan = _plan(tmp_path, codec="hevc")
    assert any(line.startswith("encoder: libx265 ") for line in plan.lines())
    lines = replace(plan, expected=EncoderKind("nvenc", "ada", "580")).lines()
    assert any(line.startswith("encoder: hevc_nvenc (ada, driver branch 580)") for line in lines)
    assert any(line.endswith(": encoded with hevc_nvenc") for line in lines)
    assert "1 segment:" in lines
    assert "libx265" not in " ".join(lines)
