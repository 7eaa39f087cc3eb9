"""The library path of workers, from the node's report to the order that starts one."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.supervisor.state.events import NodesSeen, Probed

from ..core_worlds import World, gpu_node, nvenc


def started(search_path: str | None) -> World:
    """Return a world whose one node's GPU and processor have workers."""
    ray, probed = gpu_node("g", "GPU-0")
    world = World()
    world.gpus = {"g/gpu#0": "GPU-0"}
    world.feed(NodesSeen((ray,)), Probed(replace(probed, search_path=search_path)))
    world.say("one", nvenc("j", 40))
    world.wait(2)
    assert world.started
    return world


@pytest.mark.parametrize("path", ["/usr/local/cuda-13.1/compat:/opt/lib", "", None])
def test_a_gpus_worker_gets_the_path_that_was_tried_on_its_node(path: str | None) -> None:
    """Processes on a GPU load the driver that was chosen; those of the processor load what the node loads."""
    for start in started(path).started:
        assert start.search_path == (path if start.station.kind.takes_gpu else None)
    assert any(start.station.kind.takes_gpu for start in started(path).started)


def test_a_gpu_that_its_probe_closed_is_avoided() -> None:
    """A worker that Ray gives a GPU on which CUDA does not start opens nothing on it."""
    ray, probed = gpu_node("g", "GPU-0", "GPU-1")
    closed = replace(probed.devices[0], state=DeviceState.QUARANTINED, state_reason="CUDA does not start on it")
    world = World()
    world.gpus = {"g/gpu#0": "GPU-1"}
    world.feed(NodesSeen((ray,)), Probed(replace(probed, devices=(closed, *probed.devices[1:]))))
    world.say("one", nvenc("j", 40))
    world.wait(2)
    assert {start.avoided for start in world.started if start.station.kind.takes_gpu} == {frozenset({closed.device})}
