"""Devices that report damage: Xids, lost GPUs, failed polls, and the supervisor's reaction."""

from dataclasses import replace

import pynvml
import pytest

from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.ray.keeper import Driving
from codecfleet.cluster.supervisor.state.events import Asked, HealthSeen, NodesSeen, Order, Probe, Probed
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.stations import StationState

from ..watched_nodes import Watched, _at_work


@pytest.mark.parametrize(
    ("sicken", "reason"),
    [
        (lambda device: setattr(device, "ecc_uncorrected", 2), "2 errors could not be corrected"),
        (lambda device: setattr(device, "recovery_action", 1), "its driver advises: reset"),
        (lambda device: setattr(device, "remapping_pending", 1), "a reset is pending"),
        (lambda device: setattr(device, "lost_code", pynvml.NVML_ERROR_GPU_IS_LOST), "GPU_IS_LOST"),
    ],
)
def test_a_sick_device_gets_no_work_until_a_probe_has_passed(watched: Watched, sicken: object, reason: str) -> None:
    """Damage keeps work away, with its reason; after a repair the node is probed, and then work returns."""
    before = watched.sessions()
    device = watched.nvml.device(watched.raw)
    sicken(device)  # type: ignore[operator]
    watched.poll()
    assert watched.sessions() == 0
    assert watched.device.state is DeviceState.QUARANTINED
    assert reason in watched.device.state_reason
    assert reason in watched.text
    device.ecc_uncorrected = device.recovery_action = device.remapping_pending = device.lost_code = 0
    watched.poll(3)  # the device waits 30 s for its trial
    assert watched.sessions() == 0
    assert watched.world.probes[-1] == Probe(watched.ray.node, again=True)
    watched.world.feed(Probed(watched.probed))
    assert watched.sessions() == before


def test_an_xid_of_the_device_quarantines_it_until_a_user_opens_its_node(watched: Watched) -> None:
    """A device that needs a reset gets no work until ``uncordon``, even if its polls look healthy."""
    before = watched.sessions()
    watched.nvml.raise_xid(watched.raw, 48)
    watched.poll()
    assert watched.sessions() == 0
    assert "Xid 48, double-bit ECC error" in watched.device.state_reason
    watched.poll(3)
    watched.world.feed(Probed(watched.probed))
    assert watched.sessions() == 0
    watched.world.feed(Asked(Order.UNCORDON, watched.ray.node))
    watched.world.feed(Probed(watched.probed))
    watched.poll()
    assert watched.sessions() == before


@pytest.mark.parametrize(
    ("xids", "state"), [((68,), DeviceState.OPEN), ((45, 68, 48), DeviceState.QUARANTINED)], ids=["alone", "of several"]
)
def test_an_xid_of_an_engine_replaces_the_worker(watched: Watched, xids: tuple[int, ...], state: DeviceState) -> None:
    """An engine's Xid replaces the worker and leaves the device open, unless another Xid closes the device."""
    worker = _at_work(watched)
    for xid in xids:
        watched.nvml.raise_xid(watched.raw, xid)
    watched.poll()
    book = watched.world.core.state.stations[worker.rpartition(":")[0]]
    assert (book.state, book.recycle_due) == (StationState.READY, "its GPU raised Xid 68")
    assert watched.device.state is state


def test_an_xid_of_a_session_or_a_note_changes_nothing(watched: Watched) -> None:
    """The error of a session ends the session's work; the supervisor only notes the Xid."""
    before = watched.sessions()
    watched.nvml.raise_xid(watched.raw, 45)
    watched.nvml.raise_xid(watched.raw, 63)
    watched.poll()
    assert watched.sessions() == before


def test_a_gpu_that_fell_off_the_bus_drains_its_node(watched: Watched) -> None:
    """Xid 79 usually needs a reboot, so the node gets nothing new and is not polled until a user uncordons it."""
    watched.world.feed(NodesSeen((watched.ray, RayNode(node="other", name="other", cores=4, free_cores=4, gpus=0))))
    watched.nvml.raise_xid(watched.raw, 79)
    watched.poll()
    book = watched.world.core.state.nodes.get(watched.ray.node)
    assert book is not None
    assert (book.state, book.is_polled) == (DeviceState.DRAINING, False)
    assert watched.sessions() == 0
    assert "Xid 79" in book.node.state_reason
    assert book.driving is Driving.RESTS
    assert watched.world.kept_orders == {watched.ray.node: Order.DRAIN}  # a new supervisor drains it too
    watched.world.feed(Asked(Order.UNCORDON, watched.ray.node))
    assert (book.is_polled, watched.world.kept_orders) == (True, {})


def test_the_only_node_stays_in_use(watched: Watched) -> None:
    """On a single machine, a job continues on the other GPUs and the CPU; only the lost GPU is closed."""
    watched.nvml.raise_xid(watched.raw, 79)
    watched.poll()
    book = watched.world.core.state.nodes.get(watched.ray.node)
    assert book is not None
    assert (book.state, watched.device.state) == (DeviceState.OPEN, DeviceState.QUARANTINED)
    assert watched.sessions() == 0


def test_a_repartitioned_gpu_is_probed_again(watched: Watched) -> None:
    """If a poll has other devices than the probe, the node is probed once, and the old device's load is dropped."""
    watched.nvml.device(watched.raw).decoder_percent = 80
    watched.poll()
    assert watched.device.busy
    before = len(watched.world.probes)
    found = watched.poll_health.poll(frozenset())
    assert isinstance(found, tuple)
    cut = tuple(replace(each, uuid="MIG-1", is_slice=True) if each.uuid == watched.raw else each for each in found)
    watched.world.feed(HealthSeen(watched.ray.node, cut))
    assert watched.world.probes[before:] == [Probe(watched.ray.node, again=True)]
    assert watched.device.busy == {}
    watched.world.feed(Probed(watched.probed))
    watched.world.feed(HealthSeen(watched.ray.node, cut))
    assert len(watched.world.probes) == before + 1


def test_polls_that_fail_forget_the_load_and_keep_the_damage(watched: Watched) -> None:
    """After three failed polls, a device's load is dropped, but its damage still counts."""
    device = watched.nvml.device(watched.raw)
    device.decoder_percent = 80
    watched.poll()
    watched.nvml.library_code = int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    watched.poll_health.close()
    watched.poll(2)
    assert watched.device.busy
    watched.poll()
    assert watched.device.busy == {}
    assert "not polled: nvmlInit answered DRIVER_NOT_LOADED" in watched.text
