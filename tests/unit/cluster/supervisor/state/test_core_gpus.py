"""GPUs: shares, quarantine, and rates that workers measure."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.demand import EncoderChoice, EncoderKind
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.state.events import (
    Died,
    NodesSeen,
    Probed,
    Renewed,
    Reserve,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX

from ..core_worlds import SETTINGS, World, decided, gpu_node, nvenc, total, wants


def world_of_two_gpus() -> World:
    """Return a world with one probed node that has two GPUs."""
    ray, probed = gpu_node("g", "GPU-a", "GPU-b")
    world = World(settings=SETTINGS)
    world.core = Core(SETTINGS, Policy(), 1, world.now_s)
    world.gpus = {"g/gpu#0": "GPU-a", "g/gpu#1": "GPU-b"}
    world.feed(NodesSeen((ray,)))
    world.feed(Probed(probed))
    return world


@pytest.mark.parametrize("wanted", ["nvenc", "gpu", "bound"])
def test_a_job_that_needs_a_gpu_ends_when_all_are_in_quarantine(wanted: str) -> None:
    """A job that needs a GPU does not end while a GPU may still work; jobs for processors continue."""
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


def test_gpus_that_ray_does_not_have_are_not_used() -> None:
    """A node that was started without its GPUs leaves them to other programs."""
    ray, probed = gpu_node("g", "GPU-a")
    core = Core(SETTINGS, Policy(), 1, 0.0)
    decided(core, NodesSeen((replace(ray, gpus=0),)), 0.0)
    decided(core, Probed(probed), 0.0)
    effects = decided(core, Renewed(ClientReport("one", "driver", 1, (nvenc("j", 40),))), 0.0)
    assert not [effect for effect in effects if isinstance(effect, Reserve)]
    assert "Ray was started without GPUs" in str(core.state.plans.placement.refusals)


def started(search_path: str | None) -> World:
    """Return a world with one node, whose GPU and processor have workers."""
    ray, probed = gpu_node("g", "GPU-0")
    world = World()
    world.gpus = {"g/gpu#0": "GPU-0"}
    world.feed(NodesSeen((ray,)), Probed(replace(probed, search_path=search_path)))
    world.say("one", nvenc("j", 40))
    world.wait(2)
    assert world.started
    return world


@pytest.mark.parametrize("path", ["/usr/local/cuda-13.1/compat:/opt/lib", "", None])
def test_a_gpus_worker_gets_the_path_tried_on_its_node(path: str | None) -> None:
    """GPU workers load the driver that was chosen for them; CPU workers load the node's driver."""
    for start in started(path).started:
        assert start.search_path == (path if start.station.kind.takes_gpu else None)
    assert any(start.station.kind.takes_gpu for start in started(path).started)


def test_a_gpu_closed_by_its_probe_is_avoided() -> None:
    """A worker does not open a GPU on which CUDA does not start, even if Ray assigns that GPU."""
    ray, probed = gpu_node("g", "GPU-0", "GPU-1")
    closed = replace(probed.devices[0], state=DeviceState.QUARANTINED, state_reason="CUDA does not start on it")
    world = World()
    world.gpus = {"g/gpu#0": "GPU-1"}
    world.feed(NodesSeen((ray,)), Probed(replace(probed, devices=(closed, *probed.devices[1:]))))
    world.say("one", nvenc("j", 40))
    world.wait(2)
    assert {start.avoided for start in world.started if start.station.kind.takes_gpu} == {frozenset({closed.device})}
