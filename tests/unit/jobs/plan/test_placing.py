"""From a plan's values to a demand, and a placement in words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from codecfleet.cluster.placement.model.inventory import Inventory, processor_of
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.text_lines import WIDTH
from codecfleet.errors import Unsupported
from codecfleet.jobs.plan.placing import (
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

SOFTWARE = Policy(engines=frozenset({Engine.CPU}))


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
    """Codec and pixel format, by FFmpeg's names, become what engines are asked for."""
    assert media_case(codec, Direction.DECODE, pix_fmt) == expected


def test_a_placement_in_words_names_everything() -> None:
    """Machines, note, encoder and why, lanes, refusals and prediction are all said."""
    lines = _placed("h200-l40s").lines()
    assert lines[0] == "placed on a fleet: 3 nodes, 16 GPUs, 320 cores"
    assert lines[1] == "note: simulated"
    assert lines[2] == "hevc 1280x720 is encoded by nvenc (ada, driver branch 580): it finishes soonest"
    assert any(line.startswith("not on 8 x H200 of h200: ") for line in lines)
    assert any(line.startswith("predicted: ") for line in lines)


def test_a_placement_as_json_is_plain() -> None:
    """Everything survives a round trip through JSON, and each segment is on one lane."""
    document = _placed("h200-l40s").to_json()
    assert json.loads(json.dumps(document)) == document
    assert sorted(number for lane in document["lanes"] for number in lane["segments"]) == [0, 1, 2, 3]
    assert document["encoder_kinds"] == [{"implementation": "nvenc", "architecture": "ada", "driver_branch": "580"}]


def test_what_fits_nowhere_says_so() -> None:
    """A job that no device can do has no lanes, no kinds, no prediction, and a reason."""
    placed = _placed("laptop", EncoderChoice.NVENC)
    assert placed.to_json()["lanes"] == []
    assert placed.to_json()["predicted"]["wall_s"] is None
    assert any(line.startswith("nowhere: ") for line in placed.lines())
    assert "nowhere, because" in placed.summary()


def test_this_machine_is_one_line() -> None:
    """A processor alone is summed up: sessions, speed, time."""
    machines = Inventory((processor_of("this machine", "this machine", 2, 8 << 30),))
    placed = place_plan(_demand(), machines, start_rates(), SOFTWARE, where="this machine")
    assert placed.summary().startswith("placed on this machine: cpu with 2 sessions at ")


def _plan(folder: Path, params: str = "", **changes: object) -> Plan:
    path = folder / "clip.mkv"
    if not path.exists():
        make_clip(path, Clip(times=constant_times(12), options=(("x264-params", params),)))
    return plan_transcode(TranscodeSpec.model_validate({"source": str(path), "output": "out.mkv", **changes}))


@pytest.mark.parametrize(
    ("device", "encoder", "reason", "needs_gpu"),
    [
        ("auto", EncoderChoice.AUTO, "", False),
        ("cpu", EncoderChoice.SOFTWARE, "the job asks for processors alone", False),
        ("gpu", EncoderChoice.AUTO, "", True),
    ],
)
def test_the_device_that_is_asked_for_is_in_the_demand(
    tmp_path: Path, device: str, encoder: EncoderChoice, reason: str, *, needs_gpu: bool
) -> None:
    """Processors alone, a GPU for sure, or whatever is best."""
    demand = demand_of(_plan(tmp_path, device=device))
    assert (demand.encoder, demand.software_decode, demand.needs_gpu) == (encoder, reason, needs_gpu)


def test_what_no_gpu_may_decode_says_why(tmp_path: Path) -> None:
    """Interlaced pictures, captions, Dolby Vision and what fits no GPU stay in software, each for its reason."""
    plan = _plan(tmp_path)
    assert device_unsupported_reason(plan) == ""
    interlaced = replace(plan, source_format=replace(plan.source_format, interlaced=True))
    captioned = replace(plan, extras=replace(plan.extras, frame_kinds=frozenset({"A53_CC"})))
    dolby = replace(plan, encoder=replace(plan.encoder, dolby_vision=True))
    unfit = replace(plan, extras=replace(plan.extras, device_unsupported_reason="NVDEC does not decode ffv1"))
    reasons = [device_unsupported_reason(each) for each in (interlaced, captioned, dolby, unfit)]
    for reason, word in zip(reasons, ("interlaced", "captions", "Dolby Vision", "decode ffv1"), strict=True):
        assert word in reason
    assert demand_of(unfit).software_decode == "NVDEC does not decode ffv1"


def test_an_interlaced_source_is_refused_by_its_own_headers(tmp_path: Path) -> None:
    """A real track that may hold fields has an problem before anything is placed."""
    assert "interlaced" in device_unsupported_reason(_plan(tmp_path, "interlaced=1"))


async def test_a_gpu_that_cannot_be_had_is_refused() -> None:
    """A job that requires a GPU is refused with the reason; one that does not is never refused for it."""
    wanted = replace(_demand(), needs_gpu=True, encoder=EncoderChoice.SOFTWARE)
    without, with_gpu = LocalPool(1), LocalPool(1, device=FakeDevice().gpu)
    await check_device(wanted, with_gpu)
    await check_device(replace(wanted, needs_gpu=False, software_decode="no"), without)
    with pytest.raises(Unsupported, match="--device gpu cannot be had: the pictures are interlaced"):
        await check_device(replace(wanted, software_decode="the pictures are interlaced"), with_gpu)
    with pytest.raises(Unsupported, match="--device gpu cannot be had: there is no GPU in this pool"):
        await check_device(wanted, without)


def test_equal_lanes_and_long_refusals_fit_a_terminal() -> None:
    """Equal devices share a line that names their nodes, and nothing is wider than a terminal."""
    lines = _placed("mixed-200").lines()
    assert max(map(len, lines)) <= WIDTH
    words = " ".join(line.strip() for line in lines)
    assert "4 x RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb of blackwell-1 ... blackwell-4: each 1" in words
    assert "a100-mig-1 ... a100-mig-8: it is quarantined because" in words


def test_a_plan_names_the_encoder_that_will_encode() -> None:
    """Where a placement chooses an NVENC, the plan expects that kind; where software encodes, none."""
    expected = _placed("h200-l40s").expected
    assert expected is not None
    assert (expected.is_nvenc, expected.place) == (True, "ada, driver branch 580")
    assert _placed("laptop").expected is None


def test_a_hypervisors_gpu_is_no_gpu_of_ours_and_a_lone_segment_goes_to_the_whole_one() -> None:
    """Of a host of vGPUs, its two guests and a whole GPU three count, and one segment runs on the whole GPU."""
    lone = replace(_demand(), segments=(48,))
    placed = place_plan(lone, inventory_of_fleet(load_fleet("vgpu")), start_rates(), Policy(), where="a fleet")
    assert placed.lines()[0] == "placed on a fleet: 4 nodes, 3 GPUs, 104 cores"
    (lane,) = placed.placement.lanes
    assert lane.node == "passthrough"


def test_the_encoder_of_a_placed_plan_is_said_everywhere_alike(tmp_path: Path) -> None:
    """Its head and its track name the NVENC that the placement chose, and software nowhere; one segment is singular."""
    plan = _plan(tmp_path, codec="hevc")
    assert any(line.startswith("encoder: libx265 ") for line in plan.lines())
    lines = replace(plan, expected=EncoderKind("nvenc", "ada", "580")).lines()
    assert "encoder: hevc_nvenc (ada, driver branch 580), which the device that encodes settles" in lines
    assert any(line.endswith(": encoded with hevc_nvenc") for line in lines)
    assert "1 segment:" in lines
    assert "libx265" not in " ".join(lines)
