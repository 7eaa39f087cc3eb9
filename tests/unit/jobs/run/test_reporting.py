"""What a report says about decoders: for each segment, as a warning, and in the summary."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from codecfleet.actors.device.interface import SESSIONS_OPENING
from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.console.text import proof_lines
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.join.spool import SpooledSegment
from codecfleet.jobs.join.video_track import JoinedTrack
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.report.report import Proof, Report
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.run.reporting import FinishedTrack, damage_warnings, make_report
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
    """Return segments that differ in their decoder and the reason for it."""
    changed = [replace(facts, tally=replace(facts.tally, decoded_by=by, fallback=why)) for by, why in told]
    return [SpooledSegment(each, Path("nowhere"), each.payload.size, "00") for each in changed]


def report_of(plan: Plan, segments: list[SpooledSegment]) -> Report:
    """Return a job's report."""
    counts = {"frames_in": 48, "frames_out": 48, "output_frames": 48, "seams": 2, "seams_equal": 2}
    proof = Proof(**counts, first_pts_s="0", last_pts_s="1.88", times_equal=True, output_sha256="00")
    track = FinishedTrack(
        path=Path("nowhere"),
        joined=JoinedTrack(),
        segments=tuple(segments),
        restored=frozenset(),
        runs=tuple(Run(number, number, 0, 1) for number in range(len(segments))),
        warnings=(),
        loudness={},
        budget=None,
        tries={},
    )
    facts: dict[str, Any] = {"job": "job", "output_bytes": 1000, "workers": 1, "warnings": ()}
    return make_report(plan, track, proof, {"encode": 1.0}, facts)


NVDEC = ("nvdec", "")
SOFTWARE = ("software", "")


def test_each_segment_names_its_decoder(plan: Plan, encoded: EncodedSegment) -> None:
    """The report has the decoder of each segment, and why it was not the device."""
    assert len(plan.segments) >= 3
    told = [NVDEC, ("software", "it broke off"), ("software", SESSIONS_OPENING)]
    report = report_of(plan, spooled(encoded, *told))
    assert [(each.decoded_by, each.fallback) for each in report.segments] == told


OPENING = ("software", SESSIONS_OPENING)
BROKEN = ("software", "it broke off")


@pytest.mark.parametrize(
    ("told", "messages"),
    [
        (
            [BROKEN, NVDEC, ("software", "no session"), BROKEN, SOFTWARE],
            ["software decoded 2 of 5 segments: it broke off", "software decoded 1 of 5 segments: no session"],
        ),
        ([OPENING, NVDEC, BROKEN], ["software decoded 1 of 3 segments: it broke off"]),
        ([NVDEC] * 3, []),
        ([SOFTWARE] * 3, []),
    ],
)
def test_what_software_did_instead_is_a_warning(
    plan: Plan, encoded: EncodedSegment, told: list[tuple[str, str]], messages: list[str]
) -> None:
    """Each reason for software is one warning with a count; planned software and opening sessions need none."""
    found = [each for each in damage_warnings(plan, spooled(encoded, *told)) if each.code == "fallback"]
    assert [each.message for each in found] == messages


@pytest.mark.parametrize(("on_device", "row"), [(3, "NVDEC decoded 3 of 3"), (1, "NVDEC decoded 1 of 3"), (0, "")])
def test_people_read_which_engines_worked(plan: Plan, encoded: EncodedSegment, on_device: int, row: str) -> None:
    """The summary has a line about engines if a device took part, and none otherwise."""
    segments = spooled(encoded, *[NVDEC] * on_device, *[SOFTWARE] * (3 - on_device))
    lines = [line for line in proof_lines(report_of(plan, segments), None) if line.startswith("engines")]
    assert [row in line for line in lines] == [True] * bool(row)


def test_the_report_reads_back(plan: Plan, encoded: EncodedSegment) -> None:
    """A report can be written and read back, and one from before devices existed means software."""
    report = report_of(plan, spooled(encoded, NVDEC, ("software", "why"), SOFTWARE))
    again = Report.model_validate_json(report.model_dump_json())
    assert again == report
    document = report.model_dump(mode="json")
    for segment in document["segments"]:
        del segment["decoded_by"], segment["fallback"]
    old = Report.model_validate(document)
    assert {(each.decoded_by, each.fallback) for each in old.segments} == {SOFTWARE}


STEPS = {"size": [64, 48], "crop": [32, 24, 8, 8], "turn": [0, 1, -1, 0]}
STEPS |= {"scaled": [24, 32], "padded": [40, 40], "place": [8, 4]}


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
    """A report with impossible figures is refused, so that ``verify`` need not expect them."""
    document = report_of(plan, spooled(encoded, SOFTWARE)).model_dump(mode="json")
    assert Report.model_validate(document | {"steps": STEPS, "frame_rate": "30000/1001"})
    with pytest.raises(ValidationError):
        Report.model_validate(document | changed)


def test_a_job_of_one_segment_speaks_of_no_seams(plan: Plan, encoded: EncodedSegment) -> None:
    """If nothing was joined, the proof has no line about seams."""
    report = report_of(plan, spooled(encoded, NVDEC))
    alone = report.model_copy(update={"proof": report.proof.model_copy(update={"seams": 0, "seams_equal": 0})})
    lines = [[line for line in proof_lines(each, None) if line.startswith("seams")] for each in (report, alone)]
    assert ["2 of 2" in line for line in lines[0]] == [True]
    assert not lines[1]
