"""Polls on a clock: how often they happen, and how an unresponsive node or a changing machine affects them."""

import asyncio

from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.gpus.live_health import DeviceHealth
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.events import Order
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fleet.simulated_report import simulated_report
from codecfleet.testing.nvml.fake_nvml import FakeNvml

from .test_runner import MakeRunner, two_nodes


def _backend(nvml: FakeNvml) -> FakeClusterBackend:
    """Return a cluster of one node with the GPUs of a simulated machine."""
    probed = node_of_report(simulated_report(nvml.node, "test"), node="g")
    gpus = tuple(device for device in probed.devices if device.kind is not DeviceKind.CPU)
    backend = FakeClusterBackend(
        (RayNode(node="g", name="host-g", cores=8, free_cores=8, gpus=len(gpus), devices=gpus),)
    )
    backend.healths["g"] = HealthPoll(nvml).poll
    return backend


def _shown(runner: SupervisorRunner) -> list[tuple[str, int | None]]:
    return [(device.state, device.use.get("nvdec", {}).get("percent")) for device in runner.status().devices]


async def test_a_machine_s_changes_show_in_the_next_poll(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A load, damage, a limited clock and a lost GPU each show in the next poll."""
    nvml = FakeNvml(load_fleet("h200-l40s").nodes[0], clock)
    first, second = nvml.devices[:2]
    began_s = clock()
    nvml.at(began_s + 15, lambda: setattr(first, "decoder_percent", 70))
    nvml.at(began_s + 25, lambda: setattr(first, "ecc_uncorrected", 1))
    nvml.at(began_s + 25, lambda: setattr(second, "clock_reasons", 0x8))
    nvml.at(began_s + 35, lambda: nvml.lose_gpu(second.simulated.uuid))
    backend = _backend(nvml)
    runner = await make_runner(backend)
    assert _shown(runner)[:2] == [("open", None), ("open", None)]
    await clock.advance(11)
    assert _shown(runner)[:2] == [("open", 0), ("open", 0)]
    await clock.advance(10)
    assert _shown(runner)[0] == ("open", 70)
    await clock.advance(10)
    assert _shown(runner)[0] == ("quarantined", 70)
    assert runner.status().devices[1].throttle == "hardware slowdown"
    await clock.advance(10)
    lost = runner.status().devices[1]
    assert (lost.state, lost.use["nvdec"]["percent"]) == ("quarantined", None)
    assert "GPU_IS_LOST" in lost.unknown["nvdec"]
    assert len(backend.polled) == 4


async def test_a_node_without_gpus_is_not_polled(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A node without GPUs is not polled."""
    backend = two_nodes()
    await make_runner(backend)
    await clock.advance(60)
    assert backend.polled == []


async def test_a_draining_node_is_not_polled(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A GPU cannot be reset while it is watched, so polling stops until the node is open again."""
    backend = _backend(FakeNvml(load_fleet("l4-x4").nodes[0]))
    runner = await make_runner(backend)
    runner.ask(Order.DRAIN, "g")
    await clock.advance(30)
    assert backend.polled == []
    assert backend.polling_stopped >= {"g"}
    runner.ask(Order.UNCORDON, "g")
    await clock.advance(11)
    assert set(backend.polled) == {"g"}


async def test_an_unresponsive_node_is_polled_less_and_less(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A driver that hangs is polled less and less often, and a driver that recovers is polled as before."""
    backend = _backend(FakeNvml(load_fleet("l4-x4").nodes[0]))
    well = backend.healths["g"]

    def refuse(_pids: frozenset[int]) -> Maybe[tuple[DeviceHealth, ...]]:
        return Unavailable(Absence.FAILED, "nvmlInit answered UNKNOWN (999)")

    backend.healths["g"] = refuse
    runner = await make_runner(backend)
    await clock.advance(200)
    assert 3 <= len(backend.polled) <= 6
    assert runner.status().devices[0].unknown["poll"] == "nvmlInit answered UNKNOWN (999)"
    assert sum("could not be polled" in line for _, line in runner.status().log) == 1
    backend.healths["g"] = well
    await clock.advance(400)
    asked = len(backend.polled)
    await clock.advance(30)
    assert len(backend.polled) == asked + 3
    assert runner.status().devices[0].seen_s is not None


async def test_only_one_poll_of_a_node_runs_at_a_time(make_runner: MakeRunner, clock: FakeClock) -> None:
    """While a poll of a node has not ended, even past its limit, no other poll of the node starts."""
    backend = _backend(FakeNvml(load_fleet("l4-x4").nodes[0]))
    asked: list[str] = []

    async def hang(node: str, _pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        asked.append(node)
        await asyncio.Event().wait()
        raise AssertionError

    backend.poll = hang  # type: ignore[method-assign]
    await make_runner(backend)
    await clock.advance(100)
    assert asked == ["g"]
