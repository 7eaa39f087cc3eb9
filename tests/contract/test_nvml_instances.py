"""GPU instances and licences: what both pynvml and its fake promise."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import pytest

from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.nvml.calls import NvmlLike
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.engines import Engine, EngineCount, How
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing import FakeNvml

from .nvml_nodes import opened

ROOM = 16
KINDS = pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT
PARTS = Path(__file__).parents[1] / "driver_sim" / "parts.toml"


def cut_node() -> SimulatedNode:
    """Return a machine with GPUs that are partitioned in several ways, and one without slices."""
    return next(node for node in load_fleet(PARTS).nodes if node.name == "cut")


@pytest.fixture(params=["cut", "a100-mig", "l4-x4", "real"])
def nvml(request: pytest.FixtureRequest) -> Iterator[NvmlLike]:
    """An open library: the fake on machines with and without slices, and the real one if there is a driver."""
    if request.param == "real":
        fake = None
    else:
        fake = FakeNvml(cut_node() if request.param == "cut" else load_fleet(request.param).nodes[0])
    with opened(fake) as library:
        yield library


def cut_gpus(nvml: Any) -> Iterator[Any]:
    """Yield the handles of the GPUs in MIG mode."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
        except pynvml.NVMLError:
            continue
        if current:
            yield handle


def profiles(nvml: Any, gpu: object) -> Iterator[Any]:
    """Yield the profiles of a GPU."""
    for kind in range(KINDS):
        try:
            yield nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, kind, 2)
        except pynvml.NVMLError_NotSupported:
            continue


def listed(function: Any, subject: object, number: int, kind: Any) -> list[Any]:
    """Return the handles that a listing function returns."""
    handles, count = (kind * ROOM)(), ctypes.c_uint()
    function(subject, number, handles, ctypes.byref(count))
    return list(handles[: count.value])


def instances(nvml: Any, gpu: object) -> Iterator[tuple[Any, Any]]:
    """Yield the GPU instances of a GPU, each with its profile."""
    for profile in profiles(nvml, gpu):
        for found in listed(nvml.nvmlDeviceGetGpuInstances, gpu, profile.id, pynvml.c_nvmlGpuInstance_t):
            yield profile, found


def mig_devices(nvml: Any, gpu: object) -> dict[tuple[int, int], Any]:
    """Return the handles of a GPU's MIG devices, by GPU instance and compute instance."""
    found = {}
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        except pynvml.NVMLError_NotFound:
            continue
        found[nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)] = handle
    return found


def test_a_mig_device_is_part_of_a_gpu_instance(nvml: Any) -> None:
    """Both lists agree, and each MIG device has the slices, memory and engines of its GPU instance's profile."""
    for gpu in cut_gpus(nvml):
        devices = mig_devices(nvml, gpu)
        made = {nvml.nvmlGpuInstanceGetInfo(each).id: (profile, each) for profile, each in instances(nvml, gpu)}
        assert made.keys() == {number for number, _ in devices}
        for (number, _), handle in devices.items():
            profile, instance = made[number]
            said = nvml.nvmlDeviceGetAttributes_v2(handle)
            assert nvml.nvmlGpuInstanceGetInfo(instance).profileId == profile.id
            assert said.gpuInstanceSliceCount == profile.sliceCount
            assert said.sharedDecoderCount == profile.decoderCount
            assert said.sharedEncoderCount == profile.encoderCount
            assert said.memorySizeMB == profile.memorySizeMB


def test_an_instance_is_found_by_its_number(nvml: Any) -> None:
    """Numbers lead to the same instances as lists do, and an unused number is NOT_FOUND."""
    for gpu in cut_gpus(nvml):
        for number, _ in mig_devices(nvml, gpu):
            instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
            assert nvml.nvmlGpuInstanceGetInfo(instance).id == number
        with pytest.raises(pynvml.NVMLError_NotFound):
            nvml.nvmlDeviceGetGpuInstanceById(gpu, 77)


def test_no_two_instances_share_a_place(nvml: Any) -> None:
    """Each GPU instance has memory slices of its own."""
    for gpu in cut_gpus(nvml):
        places = [nvml.nvmlGpuInstanceGetInfo(instance).placement for _, instance in instances(nvml, gpu)]
        taken = [each for place in places for each in range(place.start, place.start + place.size)]
        assert len(taken) == len(set(taken))


def test_what_is_cut_is_no_longer_free(nvml: Any) -> None:
    """The free and the existing instances of a profile are never more than the profile allows."""
    for gpu in cut_gpus(nvml):
        made = [profile.id for profile, _ in instances(nvml, gpu)]
        for profile in profiles(nvml, gpu):
            free = nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile.id)
            assert 0 <= free <= profile.instanceCount - made.count(profile.id)


def test_the_probe_tells_compute_instances_apart() -> None:
    """Each compute instance is a device with a name of its own, and with the engines of its GPU instance."""
    report = probe_nvml(FakeNvml(cut_node()))
    mig = report.devices[0].mig
    assert not isinstance(mig, Unavailable)
    assert [(part.profile, part.gpu_instance, part.compute_instance) for part in mig.slices] == [
        ("1c.3g.20gb", 1, 0),
        ("1c.3g.20gb", 1, 1),
        ("1c.3g.20gb", 1, 2),
        ("2g.10gb", 2, 0),
        ("1g.5gb+me", 3, 0),
    ]
    assert all(EngineCount(Engine.NVDEC, 2, How.ASKED) in part.engines for part in mig.slices[:3])
    free = {profile.name: profile.instances_free for profile in mig.profiles}
    assert (free["3g.20gb"], free["1g.5gb"], free["1g.5gb+me"]) == (0, 1, 0)


@pytest.mark.parametrize(
    ("virtualization", "licensed", "expected"),
    [
        pytest.param("guest", None, (True,), id="a guest has a licence unless the fleet says otherwise"),
        pytest.param("guest", False, (False,), id="a guest without one"),
        pytest.param("passthrough", None, (), id="a passed-through GPU needs none"),
        pytest.param("passthrough", False, (False,), id="a passed-through GPU that lacks one"),
    ],
)
def test_a_licence_is_what_the_fleet_says(
    virtualization: str,
    licensed: bool | None,  # noqa: FBT001 - a parameter of the test
    expected: tuple[bool, ...],
) -> None:
    """The state and end of the licence come from the fleet, and can change while a test runs."""
    name = "guest-1" if virtualization == "guest" else "passthrough"
    node = next(node for node in load_fleet("vgpu").nodes if node.name == name)
    gpu = node.devices[0] if licensed is None else replace(node.devices[0], licensed=licensed)
    expires = datetime(2027, 1, 31, 12, 30, tzinfo=UTC)
    fake = FakeNvml(replace(node, devices=(replace(gpu, licence_expires=expires), *node.devices[1:])))
    assert tuple(feature.is_licensed for feature in licences(fake)) == expected
    assert all(feature.expires_utc == "2027-01-31 12:30:00" for feature in licences(fake))
    fake.devices[0].licensed = False
    assert [feature.is_licensed for feature in licences(fake)] == [False]


def licences(fake: FakeNvml) -> tuple[Any, ...]:
    """Return the licensable features of the first GPU, as the guest sees them."""
    found = probe_nvml(fake).devices[0].licences
    assert not isinstance(found, Unavailable)
    return found.features
