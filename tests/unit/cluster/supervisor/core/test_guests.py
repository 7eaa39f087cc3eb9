"""Guests and hosts in one cluster: the host's report decides how a guest's vGPU is counted."""

from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.inventory import Device
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.state.conditions import OwnLoad, next_condition, with_condition
from codecfleet.cluster.supervisor.state.events import HealthSeen, NodesSeen, Probed
from codecfleet.cluster.supervisor.state.guests import vgpu_rooms
from codecfleet.cluster.supervisor.state.nodes import NodeBook
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of

from ..core_worlds import SETTINGS
from ..watched_nodes import Watched


class Cluster:
    """A guest and its host, from a simulated fleet, under one supervisor."""

    def __init__(self, policy: Policy | None = None, scheduler: str = "equal share") -> None:
        self.guest, self.host = Watched("vgpu", 12, number=1), Watched("vgpu", 64, number=0)
        gpu = self.host.nvml.devices[0]
        gpu.simulated = replace(gpu.simulated, vgpu_scheduler=scheduler)
        self.core = Core(SETTINGS, policy or Policy(), 1, 100.0)
        self.now_s = 100.0
        nodes = (self.guest.ray, self.host.ray)
        self.core.decide(NodesSeen(nodes), self.now_s)
        self.core.decide(Probed(self.guest.probed), self.now_s)
        self.core.decide(Probed(self.host.probed), self.now_s)

    def poll(self, *watched: Watched) -> None:
        """Poll machines, by default both."""
        for each in watched or (self.guest, self.host):
            self.now_s += 10
            found = each.poll_health.poll(frozenset())
            assert not isinstance(found, Unavailable)
            self.core.decide(HealthSeen(each.ray.node, found, {}), self.now_s)

    @property
    def book(self) -> NodeBook:
        """The guest's vGPU in the poll of the guest."""
        book = self.core.state.nodes.get(self.guest.ray.node)
        assert book is not None
        return book

    @property
    def vgpu(self) -> Device:
        """The guest's vGPU, as placement sees it."""
        return next(each for each in self.book.node.devices if each.device == self.guest.gpus[0].device)


@pytest.mark.parametrize(
    ("scheduler", "share"), [("equal share", 1 / 2), ("best effort", 1 / 2), ("fixed share", 1 / 4)]
)
def test_a_guest_has_the_share_that_its_host_gives_it(scheduler: str, share: float) -> None:
    """The share depends on the vGPU's type until the host is polled, and then on the host's scheduler."""
    cluster = Cluster(scheduler=scheduler)
    cluster.poll(cluster.guest)
    assert cluster.vgpu.share == 1 / 4
    cluster.poll(cluster.host)
    assert cluster.vgpu.share == pytest.approx(share)
    shown = " ".join(" ".join(status_lines(status_of(cluster.core.state, {}, (), cluster.now_s))).split())
    assert f"hosted by hypervisor: {scheduler} scheduler, one of 2 vGPUs" in shown


def test_the_policy_s_share_overrides_the_host_s() -> None:
    """The policy's ``vgpu_share`` applies whatever the host reports."""
    cluster = Cluster(Policy(vgpu_share=0.3))
    cluster.poll()
    assert cluster.vgpu.share == 0.3
    assert cluster.book.hosted


def test_the_host_knows_that_a_guest_has_no_licence() -> None:
    """If a guest's driver does not report its licence, the host's report counts."""
    cluster = Cluster()
    cluster.host.nvml.devices[0].vgpus[0].licensed = False
    cluster.guest.nvml.faults = {"nvmlDeviceGetGridLicensableFeatures": 3}
    cluster.poll()
    assert cluster.vgpu.fps_max == 3
    cluster.guest.nvml.faults = {}
    cluster.poll()
    assert cluster.vgpu.fps_max is None


@pytest.mark.parametrize(("scheduler", "busy"), [("equal share", 0.4), ("best effort", 0.4), ("fixed share", 0.2)])
def test_others_use_refers_to_the_vgpu_s_own_share(scheduler: str, busy: float) -> None:
    """A fifth of the whole engine is two fifths of a half; under a fixed share, it is a fifth of the share."""
    cluster = Cluster(scheduler=scheduler)
    cluster.guest.nvml.devices[0].decoder_percent = 20
    for _ in range(3):
        cluster.poll()
    assert cluster.vgpu.busy[Engine.NVDEC] == pytest.approx(busy)


def test_hosts_say_how_many_more_vgpus_they_can_make() -> None:
    """If two of four quarter vGPUs run, two more of that size fit, and none of another size."""
    cluster = Cluster()
    cluster.poll(cluster.guest)
    assert vgpu_rooms(cluster.core.state) is None
    cluster.poll(cluster.host)
    rooms = vgpu_rooms(cluster.core.state)
    assert rooms is not None
    assert rooms["L40S-12Q"] == 2
    assert set(rooms.values()) == {2}
    assert all(name.startswith("L40S-12") for name in rooms)


def test_use_beyond_the_share_counts_as_all_of_it() -> None:
    """Under best effort, a vGPU may use what others leave; this counts as at most the whole share."""
    cluster = Cluster()
    cluster.poll()
    condition = cluster.book.conditions[cluster.guest.gpus[0].device]
    seen = replace(condition.seen, decoder_percent=80, encoder_percent=Unavailable(Absence.NOT_SUPPORTED, "no"))
    found = next_condition(None, seen, OwnLoad(), (), 0.0, part=0.25)
    assert found.others[Engine.NVDEC].part == 1
    assert with_condition(cluster.vgpu, found).busy == {Engine.NVDEC: 1.0}
