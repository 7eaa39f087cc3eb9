"""``codecfleet plan`` with a real input says where the job would run, without starting anything."""

import json
from pathlib import Path

import pytest

from codecfleet.cli.app import run
from codecfleet.cli.plan import PlanOn, Surveyed, place_on
from codecfleet.cluster.placement.build import inventory_of_fleet
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.jobs.plan.placing import demand_of
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing.clips import Clip, constant_times, make_clip

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small H.264 film."""
    return make_clip(
        tmp_path_factory.mktemp("clips") / "clip.mp4", Clip(times=constant_times(50), keyframes=frozenset({0, 25}))
    )


def _plan(clip: Path, **options: object) -> Plan:
    fields = {"source": str(clip), "output": str(clip.with_name("out.mp4")), "segment_s": 1, **options}
    return plan_transcode(TranscodeSpec.model_validate(fields))


def test_a_plans_demand_is_what_it_would_do(clip: Path) -> None:
    """The demand has the plan's segments, sizes, codecs and preset; options of FFmpeg's encoders require software."""
    plan = _plan(clip, codec="hevc", preset=2, workers=3)
    demand = demand_of(plan)
    assert sum(demand.segments) == plan.frames
    assert demand.decode == CodecCase(MediaCodec.H264, Direction.DECODE)
    assert demand.renditions[0].case.codec is MediaCodec.HEVC
    assert (demand.renditions[0].software, demand.renditions[0].preset) == ("libx265", "2")
    assert (demand.workers_max, demand.encoder, demand.has_filters) == (3, EncoderChoice.AUTO, False)
    bound = demand_of(_plan(clip, encoder_options=(("tune", "film"),), scale=(None, 32)))
    assert (bound.encoder, bound.has_filters) == (EncoderChoice.SOFTWARE, True)


def test_json_has_it_all(clip: Path, capsys: Captured) -> None:
    """The document holds the plan as before, and the placement."""
    assert run(["plan", str(clip), "--fleet", "laptop", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert {lane["route"] for lane in document["placement"]["lanes"]} == {"cpu"}
    assert document["placement"]["predicted"]["wall_s"] > 0


def test_a_cluster_is_placed_as_real_work_would_be(clip: Path) -> None:
    """With --address, GPUs decode and encode, unless the job asks for software."""
    found = Surveyed(inventory_of_fleet(load_fleet("l4-x4")))
    placed = place_on(demand_of(_plan(clip)), PlanOn(address="there"), lambda _address, _demand: found)
    assert placed.where == "the cluster at there"
    assert {lane.route for lane in placed.placement.lanes} == {Route.GPU}
    placed = place_on(
        demand_of(_plan(clip, encoder="software")), PlanOn(address="there"), lambda _address, _demand: found
    )
    assert not {lane.route for lane in placed.placement.lanes} & {Route.GPU, Route.UPLOAD}


def test_a_cluster_that_grows_says_which_nodes_it_would_ask_for(clip: Path) -> None:
    """The supervisor's answer for the plan's demand is a line of the plan, and part of its document."""
    asked: list[Demand] = []

    def survey(_address: str, demand: Demand) -> Surveyed:
        asked.append(demand)
        return Surveyed(inventory_of_fleet(load_fleet("laptop")), "g6: 1 more for 1 job")

    plan = _plan(clip)
    placed = place_on(demand_of(plan), PlanOn(address="there"), survey)
    assert "note: g6: 1 more for 1 job" in placed.lines()
    assert placed.to_json()["note"] == "g6: 1 more for 1 job"
    assert asked == [demand_of(plan)]


def test_a_policy_file_counts(clip: Path, tmp_path: Path, capsys: Captured) -> None:
    """Engines that a policy excludes are not used, and the lines say so."""
    policy = tmp_path / "policy.toml"
    policy.write_text('engines = ["cpu"]\n', encoding="utf-8")
    assert run(["plan", str(clip), "--fleet", "l4-x4", "--policy", str(policy)]) == 0
    assert "the policy does not use NVDEC" in capsys.readouterr().out
