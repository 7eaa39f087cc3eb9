"""Which GPU a worker process sees."""

from dataclasses import replace

import pytest

from codecfleet.cluster.probes.gpus.visible_device import TakenDevice, narrow, narrow_to, show_the_gpu
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.errors import FleetUnavailable
from codecfleet.testing import FakeNvml


def nvml_with(*uuids: str) -> FakeNvml:
    """Return a driver with these GPUs, in NVML's order."""
    node = load_fleet("l4-x4").nodes[0]
    devices = tuple(replace(device, uuid=uuid) for device, uuid in zip(node.devices, uuids, strict=False))
    fake = FakeNvml(replace(node, devices=devices))
    fake.nvmlInit()
    return fake


def test_an_index_becomes_a_uuid() -> None:
    """Ray's index is NVML's; the process sees only that GPU, under a name that CUDA understands."""
    environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert narrow(["1"], environment, nvml_with("GPU-a", "GPU-b")) == TakenDevice("GPU-b")
    assert environment == {"CUDA_VISIBLE_DEVICES": "GPU-b", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize("uuid", ["GPU-0f1e", "MIG-7a2b"])
def test_a_uuid_stays_what_it_is(uuid: str) -> None:
    """A UUID from Ray is used as it is, even that of a MIG slice, which has no index in Ray."""
    environment: dict[str, str] = {}
    assert narrow([uuid], environment, None).identity == uuid == environment["CUDA_VISIBLE_DEVICES"]


@pytest.mark.parametrize("given", [[], ["0", "1"]])
def test_one_gpu_is_needed(given: list[str]) -> None:
    """A worker to which Ray assigned no GPU, or several, fails instead of choosing a GPU."""
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    with pytest.raises(FleetUnavailable, match=f"{len(given)} GPUs to this worker instead of one"):
        narrow(given, environment, nvml_with("GPU-a", "GPU-b"))
    assert environment == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_gpu_that_is_lost_is_held_and_not_seen() -> None:
    """A worker whose GPU NVML can no longer reach sees no GPU, and knows why."""
    nvml = nvml_with("GPU-a", "GPU-b")
    nvml.lose_gpu("GPU-b")
    environment: dict[str, str] = {}
    taken = narrow(["1"], environment, nvml)
    assert taken.trouble.startswith("Ray assigned GPU 1, but nvmlDeviceGet")
    assert "GPU_IS_LOST" in taken.trouble
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert narrow(["0"], {}, nvml) == TakenDevice("GPU-a")


def test_a_gpu_in_quarantine_is_held_and_not_seen() -> None:
    """A worker that gets a device to be avoided knows which device it is, and opens nothing on it."""
    environment: dict[str, str] = {}
    taken = narrow(["1"], environment, nvml_with("GPU-a", "GPU-b"), avoided=("GPU-b",))
    assert taken == TakenDevice("GPU-b", "it is in quarantine")
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_an_unknown_index() -> None:
    """An index without a driver, or beyond the GPUs, cannot be resolved."""
    with pytest.raises(FleetUnavailable, match="no NVIDIA driver"):
        narrow(["0"], {}, None)
    taken = narrow(["5"], {}, nvml_with("GPU-a"))
    assert (taken.identity, "does not list" in taken.trouble) == ("", True)


@pytest.mark.parametrize(
    ("device", "visible", "trouble"),
    [
        ("GPU-b", "GPU-b", ""),
        ("GPU-a", "", "it is in quarantine"),
        ("GPU-z", "", "the NVIDIA driver does not list it"),
    ],
)
@pytest.mark.parametrize("before", [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "1,0"}])
def test_a_process_takes_the_gpu_that_it_is_told(
    device: str, visible: str, trouble: str, before: dict[str, str]
) -> None:
    """The process keeps the name of its GPU even if it may not see the GPU, so that the supervisor knows which."""
    environment = dict(before)
    taken = narrow_to(device, environment, nvml_with("GPU-a", "GPU-b"), avoided=("GPU-a",))
    assert taken == TakenDevice(device, trouble)
    assert environment == {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_a_process_whose_gpu_is_lost_knows_why() -> None:
    """NVML no longer names a lost GPU; the process tells what NVML answered."""
    nvml = nvml_with("GPU-a", "GPU-b")
    nvml.lose_gpu("GPU-b")
    taken = narrow_to("GPU-b", {}, nvml)
    assert taken.identity == "GPU-b"
    assert taken.trouble.startswith("the NVIDIA driver does not list it: nvmlDeviceGet")
    assert "GPU_IS_LOST" in taken.trouble


def test_without_a_driver_no_gpu_is_listed() -> None:
    """If NVML does not start in the process, the GPU is not used."""
    assert narrow_to("GPU-a", {}, None) == TakenDevice("GPU-a", "the NVIDIA driver does not list it")


def test_a_dla_s_process_sees_the_gpu_that_ray_hides() -> None:
    """A variable that Ray emptied is removed; a chosen value stays, and no variable is added."""
    blank, chosen, free = {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "1"}, dict[str, str]()
    for environment in (blank, chosen, free):
        show_the_gpu(environment)
    assert (blank, chosen, free) == ({}, {"CUDA_VISIBLE_DEVICES": "1"}, {})
