"""GPU instances and compute instances: what pynvml and its fake both promise of them, and licences."""

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
from codecfleet.cluster.probes.vgpu.guest import probe_vgpu_guest
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing import FakeNvml

ROOM = 16
KINDS = pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT
COMPUTE_KINDS = pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
PARTS = Path(__file__).parents[1] / "driver_sim" / "parts.toml"


def cut_node() -> SimulatedNode:
    """Return a machine with GPUs that are cut into instances of several kinds, and one that is cut into none."""
    return next(node for node in load_fleet(PARTS).nodes if node.name == "cut")


@pytest.fixture(params=["cut", "a100-mig", "l4-x4", "real"])
def nvml(request: pytest.FixtureRequest) -> Iterator[NvmlLike]:
    """An open library: the fake on machines with and without slices, and the real one where there is a driver."""
    library: Any = pynvml
    if request.param != "real":
        library = FakeNvml(cut_node() if request.param == "cut" else load_fleet(request.param).nodes[0])
    try:
        library.nvmlInit()
    except pynvml.NVMLError:
        pytest.skip("no NVIDIA driver answers here")
    yield library
    library.nvmlShutdown()


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
    """Yield the profiles that a GPU has."""
    for kind in range(KINDS):
        try:
            yield nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, kind, 2)
        except pynvml.NVMLError_NotSupported:
            continue


def listed(function: Any, subject: object, number: int, kind: Any) -> list[Any]:
    """Return the handles that a listing function gives."""
    handles, count = (kind * ROOM)(), ctypes.c_uint()
    function(subject, number, handles, ctypes.byref(count))
    return list(handles[: count.value])


def instances(nvml: Any, gpu: object) -> Iterator[tuple[Any, Any]]:
    """Yield the GPU instances of a GPU, each with its profile."""
    for profile in profiles(nvml, gpu):
        for found in listed(nvml.nvmlDeviceGetGpuInstances, gpu, profile.id, pynvml.c_nvmlGpuInstance_t):
            yield profile, found


def compute_instances(nvml: Any, instance: object) -> Iterator[tuple[Any, Any]]:
    """Yield the compute instances of a GPU instance, each with its profile."""
    for kind in range(COMPUTE_KINDS):
        try:
            profile = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, kind, 0)
        except pynvml.NVMLError_NotSupported:
            continue
        kinds = pynvml.c_nvmlComputeInstance_t
        for found in listed(nvml.nvmlGpuInstanceGetComputeInstances, instance, profile.id, kinds):
            yield profile, found


def mig_devices(nvml: Any, gpu: object) -> dict[tuple[int, int], Any]:
    """Return the handles of a GPU's MIG devices by GPU instance and compute instance."""
    found = {}
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
        except pynvml.NVMLError_NotFound:
            continue
        found[nvml.nvmlDeviceGetGpuInstanceId(handle), nvml.nvmlDeviceGetComputeInstanceId(handle)] = handle
    return found


def test_a_mig_device_is_a_compute_instance_in_a_gpu_instance(nvml: Any) -> None:
    """Both lists agree, and each MIG device has the name, slices, memory and engines of its instances' profiles."""
    for gpu in cut_gpus(nvml):
        devices = mig_devices(nvml, gpu)
        seen = set()
        for profile, instance in instances(nvml, gpu):
            info = nvml.nvmlGpuInstanceGetInfo(instance)
            assert info.profileId == profile.id
            for share, part in compute_instances(nvml, instance):
                about = nvml.nvmlComputeInstanceGetInfo(part)
                seen.add((info.id, about.id))
                handle = devices[info.id, about.id]
                said = nvml.nvmlDeviceGetAttributes_v2(handle)
                assert about.profileId == share.id
                assert f" {text(share.name)}" in text(nvml.nvmlDeviceGetName(handle))
                assert (said.gpuInstanceSliceCount, said.computeInstanceSliceCount) == (
                    profile.sliceCount,
                    share.sliceCount,
                )
                assert said.sharedDecoderCount == share.sharedDecoderCount == profile.decoderCount
                assert said.sharedEncoderCount == share.sharedEncoderCount == profile.encoderCount
                assert said.memorySizeMB == profile.memorySizeMB
        assert seen == set(devices)


def text(said: str | bytes) -> str:
    """Return what the binding gives as text or as bytes."""
    return said.decode() if isinstance(said, bytes) else said


def test_an_instance_is_found_by_its_number(nvml: Any) -> None:
    """Numbers lead to the same instances as lists do, and a number that nothing has is NOT_FOUND."""
    for gpu in cut_gpus(nvml):
        for number, part in mig_devices(nvml, gpu):
            instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
            assert nvml.nvmlGpuInstanceGetInfo(instance).id == number
            found = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, part)
            assert nvml.nvmlComputeInstanceGetInfo_v2(found).id == part
            with pytest.raises(pynvml.NVMLError_NotFound):
                nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 77)
        with pytest.raises(pynvml.NVMLError_NotFound):
            nvml.nvmlDeviceGetGpuInstanceById(gpu, 77)


def test_uuids_lead_to_gpus_and_to_mig_devices(nvml: Any) -> None:
    """A handle that is found by its UUID is that device: a whole GPU, or a MIG device of its own."""
    for gpu in cut_gpus(nvml):
        for ids, handle in mig_devices(nvml, gpu).items():
            found = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(handle))
            assert (nvml.nvmlDeviceGetGpuInstanceId(found), nvml.nvmlDeviceGetComputeInstanceId(found)) == ids
            parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found)
            assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu)


def placements(function: Any, subject: object, number: int) -> set[tuple[int, int]]:
    """Return where an instance of a profile could lie: the first slice, and how many."""
    count = ctypes.c_uint()
    function(subject, number, None, ctypes.byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    function(subject, number, found, ctypes.byref(count))
    return {(each.start, each.size) for each in found[: count.value]}


def test_instances_lie_where_their_profile_may(nvml: Any) -> None:
    """A GPU instance lies in one of its profile's places, and no two share one; nor do compute instances."""
    for gpu in cut_gpus(nvml):
        taken: list[int] = []
        for profile, instance in instances(nvml, gpu):
            place = nvml.nvmlGpuInstanceGetInfo(instance).placement
            allowed = placements(nvml.nvmlDeviceGetGpuInstancePossiblePlacements, gpu, profile.id)
            assert (place.start, place.size) in allowed
            taken += range(place.start, place.start + place.size)
            slices: list[int] = []
            for _, part in compute_instances(nvml, instance):
                where = nvml.nvmlComputeInstanceGetInfo(part).placement
                slices += range(where.start, where.start + where.size)
            assert len(slices) == len(set(slices)) <= profile.sliceCount
        assert len(taken) == len(set(taken))


def test_what_is_cut_is_no_longer_free(nvml: Any) -> None:
    """A profile's free instances and those that exist are never more than it may have."""
    for gpu in cut_gpus(nvml):
        made = [profile.id for profile, _ in instances(nvml, gpu)]
        for profile in profiles(nvml, gpu):
            free = nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile.id)
            assert 0 <= free <= profile.instanceCount - made.count(profile.id)
        for _, instance in instances(nvml, gpu):
            shares = [share for share, _ in compute_instances(nvml, instance)]
            for share in shares:
                left = nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(instance, share.id)
                assert left <= share.instanceCount - len(shares) or left == 0


def test_the_probe_tells_compute_instances_apart() -> None:
    """Each compute instance is a device with a name of its own; its engines are its GPU instance's."""
    report = probe_nvml(FakeNvml(cut_node()), sleep=lambda _: None)
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
    """State and expiry of the licence of a guest's GPU come from its fleet, and can change while a test runs."""
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
    """Return the licensable features that a guest sees of its first GPU."""
    fake.nvmlInit()
    report = probe_vgpu_guest(fake, fake.nvmlDeviceGetHandleByIndex(0))
    assert not isinstance(report, Unavailable)
    assert not isinstance(report.licences, Unavailable)
    return report.licences.features
