"""A supervised, simulated node whose polls read a fake NVML."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from codecfleet.cluster.placement.build import node_of_report
from codecfleet.cluster.placement.model.inventory import Device, DeviceState
from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.supervisor.state.events import HealthSeen, HealthUnseen, NodesSeen, Probed
from codecfleet.cluster.supervisor.state.messages import JobReport, RayNode
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of
from codecfleet.testing.fleet.simulated_report import simulated_report
from codecfleet.testing.nvml.fake_nvml import FakeNvml

from .core_worlds import World
from .state.test_gpu_workers import _demand

MIB, GIB = 1 << 20, 1 << 30


NOW = datetime(2023, 1, 1, tzinfo=UTC)


OURS = 7  # the process id of every worker in World


class Watched:
    """A supervised, simulated node whose polls read a fake NVML."""

    def __init__(self, fleet: str, cores: int = 64, number: int = 0) -> None:
        simulated = load_fleet(fleet).nodes[number]
        self.nvml = FakeNvml(simulated)
        self.poll_health = HealthPoll(self.nvml, now_utc=lambda: NOW)
        report = simulated_report(simulated, fleet)
        self.probed = node_of_report(report)
        self.probed = replace(self.probed, state=DeviceState.OPEN)
        self.gpus = [device for device in self.probed.devices if device.kind is not DeviceKind.CPU]
        self.ray = RayNode(
            node=self.probed.node, name=self.probed.node, cores=cores, free_cores=cores, gpus=len(self.gpus)
        )
        self.world = World()
        self.world.gpus = {f"{self.ray.node}/gpu#{number}": gpu.device for number, gpu in enumerate(self.gpus)}
        self.world.feed(NodesSeen((self.ray,)))
        self.world.feed(Probed(self.probed))
        self.fps: dict[str, float] = {}
        self.jobs: tuple[JobReport, ...] = ()
        self.poll()

    @property
    def device(self) -> Device:
        """The first GPU, as placement sees it."""
        book = self.world.core.state.nodes.get(self.ray.node)
        assert book is not None
        return next(each for each in book.node.devices if each.device == self.gpus[0].device)

    @property
    def raw(self) -> str:
        """The UUID of the first GPU in the fake NVML."""
        return self.nvml.devices[0].simulated.uuid

    def poll(self, times: int = 1, pids: Iterable[int] = (OURS,)) -> None:
        """Let 10 s pass and poll, this many times."""
        for _ in range(times):
            self.world.wait(5)
            self.say()
            self.world.wait(5)
            found = self.poll_health.poll(frozenset(pids))
            event = (
                HealthUnseen(self.ray.node, found.reason)
                if isinstance(found, Unavailable)
                else HealthSeen(self.ray.node, found, self.fps)
            )
            self.world.feed(event)

    def sessions(self, pieces: int = 100) -> int:
        """Return how many sessions on the first GPU a large job gets that only a GPU may decode."""
        demand = replace(_demand(pieces), renditions=(), needs_gpu=True)
        self.say(JobReport(demand))
        lanes = self.world.core.state.plans.placement.lanes
        return sum(lane.sessions for lane in lanes if lane.device == self.gpus[0].device)

    def say(self, *jobs: JobReport) -> None:
        """Report these jobs for the client, or repeat its last report."""
        self.jobs = jobs or self.jobs
        if self.jobs:
            self.world.report("c", *self.jobs)

    @property
    def text(self) -> str:
        """The output of ``codecfleet status``."""
        return "\n".join(status_lines(status_of(self.world.core.state, {}, (), self.world.now_s)))

    @property
    def log(self) -> str:
        """The log lines in the status."""
        return str(status_of(self.world.core.state, {}, (), self.world.now_s).devices)


@pytest.fixture
def watched() -> Watched:
    """An H200 of a simulated fleet."""
    return Watched("h200-l40s")


def _at_work(watched: Watched) -> str:
    """Give the first GPU's worker work that keeps it busy; return the worker."""
    watched.sessions()
    station = next(book for book in watched.world.core.state.stations.values() if book.device == watched.gpus[0].device)
    demand = replace(_demand(100), renditions=(), needs_gpu=True)
    watched.say(JobReport(demand, {station.worker: 7}))
    return station.worker
