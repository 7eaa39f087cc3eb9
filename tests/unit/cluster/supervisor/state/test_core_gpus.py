"""What the core does with GPUs: shares, quarantine, and rates that workers measure."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.demand import EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.state.events import (
    Died,
    Measured,
    NodesSeen,
    Probed,
    Renewed,
    Reserve,
    Reserved,
    Start,
    Started,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport, WorkerFacts
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX

from ..core_worlds import SETTINGS, World, decided, gpu_node, node, nvenc, total, wants


def test_a_gpu_is_reserved_by_its_share_and_known_by_what_its_worker_took() -> None:
    """A station books 0.51 of some GPU of the node; its worker reports which one."""
    ray, probed = gpu_node("g", "GPU-a", "GPU-b")
    core = Core(SETTINGS, Policy(), 1, 0.0)
    decided(core, NodesSeen((ray,)), 0.0)
    decided(core, Probed(probed), 0.0)
    effects = decided(core, Renewed(ClientReport("one", "driver", 1, (nvenc("j", 40),))), 0.0)
    reserves = [effect for effect in effects if isinstance(effect, Reserve)]
    assert {reserve.gpus for reserve in reserves} == {0.51}
    assert {reserve.station.station for reserve in reserves} == {"g/gpu#0", "g/gpu#1"}
    # Ray gives the second GPU to the first station.
    for reserve, uuid in zip(reserves, ("GPU-b", "GPU-a"), strict=True):
        (start,) = [e for e in decided(core, Reserved(reserve.worker, 0), 0.0) if isinstance(e, Start)]
        assert start.station.kind.takes_gpu
        decided(core, Started(reserve.worker, WorkerFacts(5, start.slots, uuid)), 0.0)
    grants = grants_for(core.state, "one", 0.0)
    lanes = {lane.device: lane.sessions for lane in core.state.placement.lanes}
    given = {
        core.state.stations[worker.rpartition(":")[0]].device: slots for worker, slots in grants.slots["j"].items()
    }
    assert given == lanes
    assert set(lanes) == {"GPU-a", "GPU-b"}


def world_of_two_gpus() -> World:
    """Return a world of one node with two GPUs, which was probed."""
    ray, probed = gpu_node("g", "GPU-a", "GPU-b")
    world = World(settings=SETTINGS)
    world.core = Core(SETTINGS, Policy(), 1, world.now_s)
    world.gpus = {"g/gpu#0": "GPU-a", "g/gpu#1": "GPU-b"}
    world.feed(NodesSeen((ray,)))
    world.feed(Probed(probed))
    return world


@pytest.mark.parametrize("wanted", ["nvenc", "gpu", "bound"])
def test_a_job_that_needs_a_gpu_ends_when_all_are_in_quarantine(wanted: str) -> None:
    """Not while one of them may still work; and jobs that processors can do go on."""
    world = world_of_two_gpus()
    demand = nvenc("j", 40).demand
    if wanted == "gpu":
        demand = replace(demand, encoder=EncoderChoice.AUTO, needs_gpu=True)
    elif wanted == "bound":
        (rendition,) = demand.renditions
        rendition = replace(rendition, kind=EncoderKind("nvenc", "ada", "580"))
        demand = replace(demand, encoder=EncoderChoice.AUTO, renditions=(rendition,))
    jobs = (JobReport(demand, {}), wants("other", 2))
    world.say("one", *jobs)
    for station in ("g/gpu#0", "g/gpu#1"):
        for _ in range(DEATHS_IN_A_ROW_MAX):
            assert world.say("one", *jobs).broken == {}
            world.feed(Died(world.core.state.stations[station].worker, "fell off the bus"))
            world.wait(8)
            world.say("one", *jobs)
    grants = world.say("one", *jobs)
    assert grants.broken == {"j": "every GPU's worker process died 5 times in a row: fell off the bus"}
    assert (grants.unrecoverable, total(grants, "j")) == ("", 0)
    assert total(grants, "other") > 0


def test_gpus_that_ray_was_not_given_are_left_alone() -> None:
    """A node that was started without its GPUs keeps them for others."""
    ray, probed = gpu_node("g", "GPU-a")
    core = Core(SETTINGS, Policy(), 1, 0.0)
    decided(core, NodesSeen((replace(ray, gpus=0),)), 0.0)
    decided(core, Probed(probed), 0.0)
    effects = decided(core, Renewed(ClientReport("one", "driver", 1, (nvenc("j", 40),))), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Reserve)]
    assert "Ray was started without GPUs" in str(core.state.placement.refusals)


def test_what_workers_measure_changes_the_rates() -> None:
    """Rates begin as documented and follow what a worker of ours really gave."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    before = world.core.state.placement.lanes[0].fps
    station = world.core.state.stations["a/cpu#0"]
    world.feed(Measured(station.worker, "j", 2, before / 4))
    world.say("one", wants("j", 50))
    assert world.core.state.placement.lanes[0].fps == pytest.approx(before / 4, rel=0.05)
