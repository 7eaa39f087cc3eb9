"""What machines of every kind offer to Ray."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.doctor.inventory_lines import device_units
from codecfleet.cluster.node.offer import Offer, offer_of
from codecfleet.cluster.placement.build import shown_by
from codecfleet.cluster.placement.labels import is_label_value
from codecfleet.cluster.probes.node.container import probe_container
from codecfleet.cluster.probes.node.report import NodeReport
from codecfleet.cluster.simulated.fleet_file import built_in_fleets, load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

FLEETS = sorted(built_in_fleets())


@cache
def machines(fleet: str) -> tuple[NodeReport, ...]:
    """Return the reports of a fleet's machines, one of each kind."""
    kinds = {
        tuple((each.name, each.virtualization, len(each.slices)) for each in node.devices): node
        for node in load_fleet(fleet).nodes
    }
    return tuple(simulated_report(node) for node in kinds.values())


def one(fleet: str) -> NodeReport:
    """Return the first machine of a fleet."""
    return machines(fleet)[0]


def in_ray(report: NodeReport, offer: Offer) -> list[tuple[str, ...]]:
    """Return, for each GPU that Ray assigns on a node with this offer, its devices."""
    return list(shown_by(report, offer.cuda_visible).units(offer.gpus).units)


@pytest.mark.parametrize("fleet", FLEETS)
def test_each_device_of_a_machine_is_one_gpu_for_ray(fleet: str) -> None:
    """Whole GPUs, slices and vGPUs count as one GPU each; GPUs that host vGPUs do not count."""
    for report in machines(fleet):
        offer = offer_of(report)
        units = in_ray(report, offer)
        assert offer.gpus == len(units) == len(device_units(report))
        assert all(len(unit) == 1 for unit in units)
        assert offer.cpus == report.host.cores


@pytest.mark.parametrize("fleet", FLEETS)
def test_every_label_is_one_that_ray_takes(fleet: str) -> None:
    """Keys and values have the syntax of labels, and no key is one of Ray's own."""
    for report in machines(fleet):
        labels = offer_of(report).labels
        assert all(key.startswith("codecfleet/") and is_label_value(value) for key, value in labels.items())
        assert all(is_label_value(key.removeprefix("codecfleet/")) for key in labels)


@pytest.mark.parametrize(
    ("fleet", "kind", "architecture", "gpus"),
    [
        ("laptop", "cpu", None, 0),
        ("l4-x4", "nvenc", "ada", 4),
        ("a100-mig", "nvdec", "ga100", 18),
        ("vgpu", "cpu", None, 0),  # a hypervisor
        ("orin", "cpu", "orin", 1),  # its engines have another interface
    ],
)
def test_known_machines(fleet: str, kind: str, architecture: str | None, gpus: int) -> None:
    """The kind states the most that a GPU of the machine can do; without a GPU, it is "cpu"."""
    offer = offer_of(one(fleet))
    assert (offer.labels["codecfleet/kind"], offer.labels.get("codecfleet/architecture")) == (kind, architecture)
    assert offer.gpus == gpus


def test_slices_are_named_and_whole_gpus_are_left_to_ray() -> None:
    """CUDA_VISIBLE_DEVICES names each slice and any whole GPU; it is not set if Ray counts correctly without it."""
    sliced = offer_of(one("a100-mig"))
    assert sliced.cuda_visible is not None
    assert Counter(name.partition("-")[0] for name in sliced.cuda_visible.split(",")) == {"MIG": 17, "GPU": 1}
    assert offer_of(one("l4-x4")).cuda_visible is None
    assert offer_of(one("vgpu")).cuda_visible == ""


def test_what_a_container_was_not_given_is_not_offered(tmp_path: Path) -> None:
    """A privileged container sees all GPUs of its machine; only those that it was given are offered."""
    report = one("l4-x4")
    _, second, *_ = report.gpus
    assert isinstance(second.uuid, str)
    given_one = probe_container({"NVIDIA_VISIBLE_DEVICES": second.uuid}, tmp_path)
    offer = offer_of(replace(report, container=given_one))
    assert (offer.gpus, offer.cuda_visible) == (1, second.uuid)


@given(cpus=st.integers(0, 1000), chosen=st.sets(st.sampled_from(range(4)), min_size=1))
def test_the_owners_limits_hold(cpus: int, chosen: set[int]) -> None:
    """The owner decides how many processors are offered, and through CUDA_VISIBLE_DEVICES which GPUs."""
    offer = offer_of(one("l4-x4"), cpus=cpus, cuda_visible=",".join(map(str, sorted(chosen))))
    assert (offer.cpus, offer.gpus, offer.cuda_visible) == (cpus, len(chosen), None)


def test_the_owners_labels_win() -> None:
    """Labels of the owner are added, and override ours."""
    offer = offer_of(one("laptop"), labels={"codecfleet/kind": "nvdec", "team": "video"}, zone="a")
    assert offer.labels == {"codecfleet/kind": "nvdec", "team": "video"}
    assert offer.zone == "a"
