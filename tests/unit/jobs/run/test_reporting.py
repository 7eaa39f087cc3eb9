"""What a report says of who decoded: per segment, as a warning, and for a person."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from pydantic import ValidationError

from codecfleet.actors.device.interface import SESSIONS_OPENING
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.console.text import proof_lines
from codecfleet.errors import EngineFailed
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.join.spool import SpooledSegment
from codecfleet.jobs.join.video_track import JoinedTrack
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.report.report import Proof, Report
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.run.finished_track import FinishedTrack
from codecfleet.jobs.run.reporting import damage_warnings, make_report
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.nvidia.fake_device import device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

OPTIONS = (("x264-params", "keyint=8:min-keyint=8:scenecut=0"),)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan of several segments."""
    path = tmp_path_factory.mktemp("plan") / "clip.mkv"
    make_clip(path, Clip(times=constant_times(48), options=OPTIONS))
    spec = TranscodeSpec(source=str(path), output="out.mkv", segment_s=Fraction(1, 2), preset=1)
    return plan_transcode(spec)


@pytest.fixture(scope="module")
def encoded(plan: Plan) -> EncodedSegment:
    """One segment, decoded on a device."""
    return plan.work("job", 0, 0, 0).run(WorkContext(device=device_with(SurfaceDecoder())))


def spooled(facts: EncodedSegment, *told: tuple[str, str]) -> list[SpooledSegment]:
    """Return segments that differ in who decoded them and why."""
    changed = [replace(facts, tally=replace(facts.tally, decoded_by=by, fallback=why)) for by, why in told]
    return [SpooledSegment(each, Path("nowhere"), each.payload.size, "00") for each in changed]


def report_of(plan: Plan, segments: list[SpooledSegment]) -> Report:
    """Return a job's report."""
    proof = Proof(
        frames_in=48,
        frames_out=48,
        first_pts_s="0",
        last_pts_s="1.88",
        seams=2,
        seams_equal=2,
        output_frames=48,
        times_equal=True,
        output_sha256="00",
    )
    track = FinishedTrack(
        path=Path("nowhere"),
        joined=JoinedTrack(),
        segments=tuple(segments),
        restored=frozenset(),
        runs=tuple(Run(number, number, 0, 1) for number in range(len(segments))),
        warnings=(),
        loudness={},
    )
    return make_report(
        plan,
        track,
        job="job",
        proof=proof,
        warnings=(),
        stages_s={"encode": 1.0},
        output_bytes=1000,
        workers=1,
        resumed=None,
        gpu_refusal="",
        warm_fleet=None,
    )


NVDEC = ("nvdec", "")
SOFTWARE = ("software", "")


def test_each_segment_names_its_decoder(plan: Plan, encoded: EncodedSegment) -> None:
    """The report has who decoded each segment, and why it was not the device."""
    assert len(plan.segments) >= 3
    told = [NVDEC, ("software", "it broke off"), SOFTWARE]
    report = report_of(plan, spooled(encoded, *told))
    assert [(each.decoded_by, each.fallback) for each in report.segments] == told


def test_what_software_did_instead_is_a_warning(plan: Plan, encoded: EncodedSegment) -> None:
    """Each reason is one warning with its count; a segment planned for software is none."""
    told = [("software", "it broke off"), NVDEC, ("software", "no session"), ("software", "it broke off"), SOFTWARE]
    segments = [*spooled(encoded, *told)]
    found = [each for each in damage_warnings(plan, segments) if each.code == "fallback"]
    assert [each.message for each in found] == [
        "software decoded 2 of 5 segments: it broke off",
        "software decoded 1 of 5 segments: no session",
    ]


def test_a_job_without_a_fallback_says_nothing_of_it(plan: Plan, encoded: EncodedSegment) -> None:
    """All on the device, or all in software as planned, is not a warning."""
    for told in (NVDEC, SOFTWARE):
        segments = spooled(encoded, *[told] * len(plan.segments))
        assert not [each for each in damage_warnings(plan, segments) if each.code == "fallback"]


def test_a_new_worker_is_no_warning(plan: Plan, encoded: EncodedSegment) -> None:
    """What software decodes while sessions are opened is in its segment's row, and nothing to warn of."""
    told = [("software", SESSIONS_OPENING), NVDEC, ("software", "it broke off")]
    segments = spooled(encoded, *told)
    assert report_of(plan, segments).segments[0].fallback == SESSIONS_OPENING
    (warning,) = [each for each in damage_warnings(plan, segments) if each.code == "fallback"]
    assert warning.message == "software decoded 1 of 3 segments: it broke off"


def test_a_real_fallback_reaches_the_report(plan: Plan) -> None:
    """A device that fails leaves its own words in the warning."""
    context = WorkContext(device=device_with(SurfaceDecoder(EngineFailed("NVDEC left out 1 pictures"), after=3)))
    facts = plan.work("job", 1, 1, 0).run(context)
    (warning,) = [
        each
        for each in damage_warnings(plan, spooled(facts, (facts.tally.decoded_by, facts.tally.fallback)))
        if each.code == "fallback"
    ]
    assert warning.message == "software decoded 1 of 1 segments: NVDEC left out 1 pictures"


@pytest.mark.parametrize(
    ("told", "row"),
    [
        ([NVDEC] * 3, "NVDEC decoded 3 of 3 segments, libx264 encoded"),
        ([NVDEC, SOFTWARE, SOFTWARE], "NVDEC decoded 1 of 3 segments, libx264 encoded"),
        ([SOFTWARE] * 3, ""),
    ],
)
def test_people_read_which_engines_worked(
    plan: Plan, encoded: EncodedSegment, told: list[tuple[str, str]], row: str
) -> None:
    """The summary has a line of engines where a device took part, and none where software did it all."""
    lines = [line for line in proof_lines(report_of(plan, spooled(encoded, *told)), None) if line.startswith("engines")]
    assert [line.removeprefix("engines").strip() for line in lines] == ([row] if row else [])


def test_the_report_reads_back(plan: Plan, encoded: EncodedSegment) -> None:
    """A report survives being written and read, and one from before there were devices means software."""
    report = report_of(plan, spooled(encoded, NVDEC, ("software", "why"), SOFTWARE))
    again = Report.model_validate_json(report.model_dump_json())
    assert again == report
    document = report.model_dump(mode="json")
    for segment in document["segments"]:
        del segment["decoded_by"], segment["fallback"]
    old = Report.model_validate(document)
    assert {(each.decoded_by, each.fallback) for each in old.segments} == {SOFTWARE}


STEPS: dict[str, object] = {
    "size": [64, 48],
    "crop": [32, 24, 8, 8],
    "turn": [0, 1, -1, 0],
    "scaled": [24, 32],
    "padded": [40, 40],
} | {"place": [8, 4]}


@pytest.mark.parametrize(
    "changed",
    [
        *({"frame_rate": text} for text in ("", "x", "0", "-25", "1/0", "nan", "1e9")),
        *({"start_s": text} for text in ("soon", "1/0", "-1")),
        *({"steps": STEPS | each} for each in ({"size": [0, 48]}, {"crop": [64, 48, 8, 8]}, {"turn": [0, 0, 0, 0]})),
        *({"steps": STEPS | {"turn": turn}} for turn in ([1, 1, -1, 1], [2, 0, 0, 2])),
        {"steps": STEPS | {"padded": [24, 31]}},
        {"denoise": "sigmaS=1:planes=99999"},
        {"video_track": -1},
    ],
)
def test_a_report_that_makes_no_sense_is_none(plan: Plan, encoded: EncodedSegment, changed: dict[str, object]) -> None:
    """What follows a report, verify, need not expect figures that no job writes."""
    document = report_of(plan, spooled(encoded, SOFTWARE)).model_dump(mode="json")
    assert Report.model_validate(document | {"steps": STEPS, "frame_rate": "30000/1001"})
    with pytest.raises(ValidationError):
        Report.model_validate(document | changed)


def test_a_job_of_one_segment_speaks_of_no_seams(plan: Plan, encoded: EncodedSegment) -> None:
    """Where nothing was joined, the proof has no line about seams; where something was, it counts them."""
    report = report_of(plan, spooled(encoded, NVDEC))
    assert "seams     2 of 2 agree picture by picture" in proof_lines(report, None)
    alone = report.model_copy(update={"proof": report.proof.model_copy(update={"seams": 0, "seams_equal": 0})})
    assert not [line for line in proof_lines(alone, None) if line.startswith("seams")]
