"""The share of a vGPU in its GPU."""

from dataclasses import replace

import pytest

from codecfleet.cluster.doctor.findings import findings
from codecfleet.cluster.placement.build import guest_share, node_of_report
from codecfleet.cluster.placement.model.inventory import Device
from codecfleet.cluster.placement.model.policy import Policy, with_policy
from codecfleet.cluster.probes.node.report import NodeReport
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("NVIDIA L40S-48Q", 1),
        ("NVIDIA L40S-24Q", 1 / 2),
        ("NVIDIA L40S-12Q", 1 / 4),
        ("NVIDIA L40S-12C", 1 / 4),
        ("GRID T4-4Q", 1 / 4),
        ("NVIDIA A40-8Q", 1 / 6),
        ("GRID A100-10C", 1 / 4),
        ("NVIDIA A100-10C", 1 / 4),
        ("NVIDIA A100-1-5C", 1),
        ("NVIDIA Unheard-12Q", None),
        ("NVIDIA L40S-0Q", None),
        ("NVIDIA L40S", None),
    ],
)
def test_a_type_says_its_share(name: str, share: float | None) -> None:
    """A type's name states how many vGPUs fit into the GPU's memory; on a GPU instance, the share is 1."""
    assert guest_share(name) == share


def _guest(name: str) -> tuple[NodeReport, Device]:
    node = next(node for node in load_fleet("vgpu").nodes if node.name == "guest-1")
    report = simulated_report(replace(node, devices=(replace(node.devices[0], name=name), *node.devices[1:])))
    device = next(device for device in node_of_report(report).devices if device.kind is DeviceKind.VGPU)
    return report, device


def test_a_known_type_counts_with_its_share() -> None:
    """A vGPU with a quarter of an L40S has a quarter of the engines."""
    report, device = _guest("NVIDIA L40S-12Q")
    assert (device.share, device.share_unknown) == (1 / 4, "")
    assert not [each for each in findings(report) if "share of its GPU is unknown" in each.title]


def test_an_unknown_share_is_reported_and_can_be_set() -> None:
    """A vGPU of unknown type counts as a whole GPU, which doctor reports, until the policy sets the share."""
    report, device = _guest("NVIDIA Unheard-12Q")
    assert device.share == 1
    assert device.share_unknown
    (found,) = [each for each in findings(report) if "share of its GPU is unknown" in each.title]
    assert "vgpu_share" in found.fix
    node = with_policy(node_of_report(report), Policy(vgpu_share=0.25))
    assert {(each.share, each.share_unknown) for each in node.devices if each.kind is DeviceKind.VGPU} == {(0.25, "")}
    assert {each.share for each in node.devices if each.kind is not DeviceKind.VGPU} == {1.0}
