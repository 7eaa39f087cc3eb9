"""How a faked device answers about GPU and compute instances (NVML API Reference Manual, "MIG management")."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from .fake_nvml_device import check
from .fake_nvml_mig import COMPUTE_KINDS, compute_sizes, placements_of, profile_with_id, profiles_of
from .fake_nvml_state import FakeGpuInstance, FakeNvmlDevice, FakeSlice, address_of, engine_counts, refuse

FIRST_HANDLE = 0x4000_0000


class FakeInstances:
    """Creates GPU instances and compute instances, and answers for them.

    Args:
        device_of: finds the device of a handle for a function, or refuses.
        device_handle: gives the handle of a device by its index.
    """

    def __init__(self, device_of: Callable[[object, str], FakeNvmlDevice], device_handle: Callable[[int], Any]) -> None:
        self._device_of = device_of
        self._device_handle = device_handle
        self._handles: dict[tuple[int, int, int | None], int] = {}
        self._subjects: dict[int, FakeGpuInstance | FakeSlice] = {}

    def answers(self) -> dict[str, Callable[..., Any]]:
        """Return function to what answers it."""
        return {
            "nvmlDeviceGetGpuInstances": self._gpu_instances,
            "nvmlDeviceGetGpuInstanceById": self._gpu_instance,
            "nvmlDeviceGetGpuInstancePossiblePlacements": self._gpu_placements,
            "nvmlGpuInstanceGetInfo": self._gpu_info,
            "nvmlGpuInstanceGetComputeInstanceProfileInfo": self._compute_profile,
            "nvmlGpuInstanceGetComputeInstanceProfileInfoV": self._compute_profile,
            "nvmlGpuInstanceGetComputeInstanceRemainingCapacity": self._compute_remaining,
            "nvmlGpuInstanceGetComputeInstancePossiblePlacements": self._compute_placements,
            "nvmlGpuInstanceGetComputeInstances": self._compute_instances,
            "nvmlGpuInstanceGetComputeInstanceById": self._compute_instance,
            "nvmlComputeInstanceGetInfo": self._compute_info,
            "nvmlComputeInstanceGetInfo_v2": self._compute_info,
        }

    # GPU instances of a device.

    def _device(self, handle: object, name: str) -> FakeNvmlDevice:
        device = self._device_of(handle, name)
        return device if device.simulated.mig_enabled else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _gpu_instances(self, handle: object, profile_id: int, instances: Any, count: Any) -> int:
        device = self._device(handle, "nvmlDeviceGetGpuInstances")
        profile = profile_with_id(device, profile_id)
        found = [each for each in device.gpu_instances if each.slices[0].simulated.profile == profile.name]
        _fill(instances, count, [self._address_of(each) for each in found])
        return int(pynvml.NVML_SUCCESS)

    def _gpu_instance(self, handle: object, number: int) -> Any:
        for each in self._device(handle, "nvmlDeviceGetGpuInstanceById").gpu_instances:
            if each.number == number:
                return ctypes.cast(ctypes.c_void_p(self._address_of(each)), pynvml.c_nvmlGpuInstance_t)
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def _gpu_placements(self, handle: object, profile_id: int, placements: Any, count: Any) -> int:
        profile = profile_with_id(self._device(handle, "nvmlDeviceGetGpuInstancePossiblePlacements"), profile_id)
        _place(placements, count, profile.starts, profile.size)
        return int(pynvml.NVML_SUCCESS)

    def _gpu_info(self, handle: object) -> Any:
        found = self._instance(handle, "nvmlGpuInstanceGetInfo")
        profiles = profiles_of(found.device)
        profile = next(each for each in profiles if each.name == found.slices[0].simulated.profile)
        pieces = [piece.simulated for piece in found.device.slices]
        return pynvml.c_nvmlGpuInstanceInfo_t(
            device=self._device_handle(found.device.index),
            id=found.number,
            profileId=profile.profile_id,
            placement=pynvml.c_nvmlGpuInstancePlacement_t(*placements_of(profiles, pieces)[found.number]),
        )

    # Compute instances of a GPU instance.

    def _compute_profile(self, handle: object, kind: int, engines: int, version: int = 2) -> Any:
        found = self._instance(handle, "nvmlGpuInstanceGetComputeInstanceProfileInfo")
        if kind >= pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT or engines:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        whole = found.slices[0].simulated
        size = next((each for each in compute_sizes(whole.gpu_slices) if COMPUTE_KINDS[each] == kind), None)
        if size is None:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        old, new = pynvml.c_nvmlComputeInstanceProfileInfo_t, pynvml.c_nvmlComputeInstanceProfileInfo_v2_t
        info = (old if version == 1 else new)()
        for name, count in engine_counts(whole.engines, shared=True).items():
            setattr(info, name, count)
        info.id, info.sliceCount, info.instanceCount = kind, size, whole.gpu_slices // size
        if version != 1:
            share = "" if size == whole.gpu_slices else f"{size}c."
            info.name = f"MIG {share}{whole.profile}".encode()
        return info

    def _compute_remaining(self, handle: object, profile_id: int) -> int:
        found = self._instance(handle, "nvmlGpuInstanceGetComputeInstanceRemainingCapacity")
        size = _size(found, profile_id)
        return (found.slices[0].simulated.gpu_slices - sum(map(_slices, found.slices))) // size

    def _compute_placements(self, handle: object, profile_id: int, placements: Any, count: Any) -> int:
        found = self._instance(handle, "nvmlGpuInstanceGetComputeInstancePossiblePlacements")
        size = _size(found, profile_id)
        _place(placements, count, range(0, found.slices[0].simulated.gpu_slices - size + 1, size), size)
        return int(pynvml.NVML_SUCCESS)

    def _compute_instances(self, handle: object, profile_id: int, instances: Any, count: Any) -> int:
        found = self._instance(handle, "nvmlGpuInstanceGetComputeInstances")
        size = _size(found, profile_id)
        _fill(instances, count, [self._address_of(each) for each in found.slices if _slices(each) == size])
        return int(pynvml.NVML_SUCCESS)

    def _compute_instance(self, handle: object, number: int) -> Any:
        for each in self._instance(handle, "nvmlGpuInstanceGetComputeInstanceById").slices:
            if each.simulated.compute_instance == number:
                return ctypes.cast(ctypes.c_void_p(self._address_of(each)), pynvml.c_nvmlComputeInstance_t)
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def _compute_info(self, handle: object) -> Any:
        found = self._subjects.get(address_of(handle))
        if not isinstance(found, FakeSlice):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        check(found.device, "nvmlComputeInstanceGetInfo", of_a_part=True)
        instance = next(each for each in found.device.gpu_instances if found in each.slices)
        start = sum(_slices(each) for each in instance.slices[: instance.slices.index(found)])
        return pynvml.c_nvmlComputeInstanceInfo_t(
            device=self._device_handle(found.device.index),
            gpuInstance=ctypes.cast(ctypes.c_void_p(self._address_of(instance)), pynvml.c_nvmlGpuInstance_t),
            id=found.simulated.compute_instance,
            profileId=COMPUTE_KINDS[_slices(found)],
            placement=pynvml.c_nvmlComputeInstancePlacement_t(start, _slices(found)),
        )

    def _instance(self, handle: object, name: str) -> FakeGpuInstance:
        found = self._subjects.get(address_of(handle))
        if not isinstance(found, FakeGpuInstance):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        check(found.device, name, of_a_part=True)
        return found

    def _address_of(self, subject: FakeGpuInstance | FakeSlice) -> int:
        part = subject.simulated if isinstance(subject, FakeSlice) else None
        number = subject.number if isinstance(subject, FakeGpuInstance) else subject.simulated.gpu_instance
        key = (subject.device.index, number, None if part is None else part.compute_instance)
        address = self._handles.setdefault(key, FIRST_HANDLE + 0x10 * len(self._handles))
        self._subjects[address] = subject
        return address


def _slices(piece: FakeSlice) -> int:
    return piece.simulated.compute_slices or piece.simulated.gpu_slices


def _size(instance: FakeGpuInstance, profile_id: int) -> int:
    sizes = compute_sizes(instance.slices[0].simulated.gpu_slices)
    found = next((size for size in sizes if COMPUTE_KINDS[size] == profile_id), None)
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT) if found is None else found


def _fill(places: Any, count: Any, addresses: Sequence[int]) -> None:
    """Write handles into the caller's array, which must be long enough, and how many there are."""
    array = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
    for place, address in enumerate(addresses):
        array[place] = address
    ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = len(addresses)


def _place(places: Any, count: Any, starts: Sequence[int], size: int) -> None:
    """Write placements into the caller's array; without one, only how many there are."""
    if places is not None:
        array = ctypes.cast(places, ctypes.POINTER(pynvml.c_nvmlGpuInstancePlacement_t))
        for place, start in enumerate(starts):
            array[place] = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    ctypes.cast(count, ctypes.POINTER(ctypes.c_uint))[0] = len(starts)
