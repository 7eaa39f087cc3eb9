"""What a real H200 said, and what is made of it: the recording in tests/fixtures, whose README says how it was made."""

import json
from pathlib import Path

import pytest

from codecfleet.cluster.doctor.findings import Weight, findings, needs_repair
from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.node.report import NodeReport, from_json, pack, unpack
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial


@pytest.fixture(scope="module")
def report(repository: Path) -> NodeReport:
    """The recorded report."""
    text = (repository / "tests" / "fixtures" / "h200-580.159.04.json").read_text(encoding="utf-8")
    return from_json(json.loads(text))


def trial(report: NodeReport, codec: MediaCodec, direction: Direction, engine: Engine, bit_depth: int = 8) -> Trial:
    """Return what came of one case on the GPU."""
    case = CodecCase(codec, direction, bit_depth=bit_depth)
    (found,) = [each for each in report.devices[0].trials if (each.case, each.engine) == (case, engine)]
    return found


def test_it_is_real_and_travels(report: NodeReport) -> None:
    """The recording is marked as no simulation, and survives packing."""
    assert report.simulated == ""
    assert report.probe_problems == ()
    assert unpack(pack(report)) == report


def test_seven_decoders_and_no_encoder(report: NodeReport) -> None:
    """Engines are counted by asking the driver, and an encoder capacity of 100 % proves none."""
    assert not isinstance(report.nvml, Unavailable)
    (device,) = report.nvml.devices
    counts = {count.engine: count.count for count in device.engines}
    assert (counts[Engine.NVDEC], counts[Engine.NVENC]) == (7, 0)
    assert device.use.encoder_capacity_percent["h264"] == 100
    av1 = device.use.encoder_capacity_percent["av1"]
    assert isinstance(av1, Unavailable)
    assert av1.absence is Absence.NOT_SUPPORTED
    assert (device.virtualization, device.name) == ("passthrough", "NVIDIA H200")


@pytest.mark.parametrize(
    ("codec", "bit_depth"),
    [
        (MediaCodec.H264, 8),
        (MediaCodec.HEVC, 8),
        (MediaCodec.HEVC, 10),
        (MediaCodec.VP9, 8),
        (MediaCodec.VP9, 10),
        (MediaCodec.VP8, 8),
        (MediaCodec.MPEG2, 8),
    ],
)
def test_what_was_decoded(report: NodeReport, codec: MediaCodec, bit_depth: int) -> None:
    """A real frame of each came out of NVDEC as software decodes it."""
    found = trial(report, codec, Direction.DECODE, Engine.NVDEC, bit_depth)
    assert (found.works, found.how, found.engines) == (True, How.TRIED, 7)


def test_what_it_cannot(report: NodeReport) -> None:
    """AV1 is not decoded, and nothing is encoded; each says why."""
    av1 = trial(report, MediaCodec.AV1, Direction.DECODE, Engine.NVDEC)
    h264 = trial(report, MediaCodec.H264, Direction.ENCODE, Engine.NVENC)
    assert (av1.works, h264.works) == (False, False)
    assert av1.reason
    assert "no encoder" in h264.reason


def test_nothing_is_to_be_repaired(report: NodeReport) -> None:
    """A GPU without an encoder is a note, not a fault; a newer CUDA package is a limit."""
    found = findings(report)
    assert not needs_repair(found)
    titles = {finding.title: finding.weight for finding in found}
    assert titles["no NVENC: NVDEC decodes here, and this machine's 16 cores encode"] is Weight.NOTE
    assert titles["NVML's encoder capacity is not believed"] is Weight.NOTE


def test_where_its_work_would_go(report: NodeReport) -> None:
    """Where any gain counts, NVDEC decodes for the host's own cores; AV1 is decoded by the cores too."""
    for codec, route in ((MediaCodec.H264, Route.HYBRID), (MediaCodec.AV1, Route.CPU)):
        rendition = Rendition(
            case=CodecCase(MediaCodec.HEVC, Direction.ENCODE), width=1920, height=1080, software="libx265", preset="5"
        )
        demand = Demand(
            job="j",
            segments=(250,) * 64,
            decode=CodecCase(codec, Direction.DECODE),
            width=1920,
            height=1080,
            renditions=(rendition,),
            encoder=EncoderChoice.AUTO,
        )
        placement = place([demand], Inventory((node_of_report(report),)), start_rates(), Policy(hybrid_gain=0))
        assert {lane.route for lane in placement.lanes} == {route}, placement
