"""Groups of vGPU machines grow only as far as the cluster's hosts can create vGPUs of the right type."""

from dataclasses import replace

import pytest

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.autoscale.deciding import decide, with_vgpu_rooms
from codecfleet.cluster.autoscale.values import Decision, GroupSize, NodeSeen
from codecfleet.cluster.placement.model.inventory import Device
from codecfleet.cluster.probes.report.device_kinds import DeviceKind

from .groups import config, group, work

TYPE = "NVIDIA L40S-12Q"


def guests(vgpus: int = 1, **changes: int) -> Group:
    """Return a group whose machines have vGPUs."""
    made = group("guests", **changes)  # type: ignore[arg-type]
    device = Device(device="v", node="guests", kind=DeviceKind.VGPU, name=TYPE, engines={})
    gpus = tuple(replace(device, device=f"v{number}") for number in range(vgpus))
    return replace(made, node=replace(made.node, devices=(*made.node.devices, *gpus)))


def limited(
    *groups: Group, rooms: dict[str, int] | None, up: int = 0, wanted: int = 0
) -> tuple[AutoscaleConfig, tuple[NodeSeen, ...]]:
    """Return the configuration limited to the vGPU ``rooms``, and the running nodes.

    ``up`` guests run, and ``wanted`` guests are requested.
    """
    nodes = tuple(NodeSeen(node=f"g{number}", group="guests") for number in range(up))
    last = Decision(sizes=(GroupSize(group="guests", wanted=wanted),))
    return with_vgpu_rooms(config(*groups), nodes, last, rooms), nodes


@pytest.mark.parametrize(
    ("rooms", "up", "wanted", "most"),
    [
        ({TYPE.removeprefix("NVIDIA "): 2}, 0, 0, 2),
        ({TYPE.removeprefix("NVIDIA "): 2}, 3, 3, 5),
        ({}, 3, 3, 3),
        ({}, 0, 0, 0),
        ({}, 1, 3, 3),  # two were requested and may already have vGPUs
        ({TYPE.removeprefix("NVIDIA "): 99}, 0, 0, 10),
        (None, 0, 0, 10),
    ],
)
def test_a_group_grows_as_far_as_its_hosts_have_room(
    rooms: dict[str, int] | None, up: int, wanted: int, most: int
) -> None:
    """Running and requested nodes stay. Without a host in the cluster, there is no limit."""
    found, _ = limited(guests(), group("cores"), rooms=rooms, up=up, wanted=wanted)
    assert [each.nodes_max for each in found.groups] == [most, 10]


def test_a_machine_with_two_vgpus_needs_room_for_both() -> None:
    """Room for three more vGPUs is room for only one more machine with two vGPUs."""
    found, _ = limited(guests(2), rooms={"L40S-12Q": 3})
    assert found.groups[0].nodes_max == 1


def test_the_reason_names_the_missing_vgpus() -> None:
    """The group grows as far as the hosts can create vGPUs; then the reason names the missing type."""
    roomy, nodes = limited(guests(), rooms={"L40S-12Q": 2})
    decided = decide(roomy, [work(guests=10.0)], nodes, None, 0.0)
    assert decided.size("guests").wanted == 2
    full, nodes = limited(guests(), rooms={}, up=2, wanted=2)
    decided = decide(full, [work(guests=10.0)], nodes, decided, 1000.0)
    assert decided.size("guests").wanted == 2
    assert decided.size("guests").reason.endswith("no host can create another L40S-12Q now")
