"""How a faked device answers about MIG and per-engine metrics (GPM)."""

import ctypes
from typing import Any

import pynvml

from ...cluster.probes.nvml import METRICS
from .fake_nvml_state import Answer, FakeNvmlDevice, FakeSlice, address_of, engine_counts, refuse
from .mig_profiles import FakeProfile, placements_of, profiles_of_gpu

MIB = 1024 * 1024
HOPPER = 9


def profiles_of(device: FakeNvmlDevice) -> tuple[FakeProfile, ...]:
    """Return the kinds of GPU instance that a device can be cut into; none where it cannot."""
    return profiles_of_gpu(device.simulated.name) if device.simulated.mig_capable else ()


def profile_with_id(device: FakeNvmlDevice, profile_id: int) -> FakeProfile:
    """Return the profile with this id; refuses one that the device does not have."""
    found = next((profile for profile in profiles_of(device) if profile.profile_id == profile_id), None)
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT) if found is None else found


def _slices_of(device: FakeNvmlDevice) -> int:
    return max((profile.slices for profile in profiles_of(device)), default=0)


def _mode(device: FakeNvmlDevice) -> list[int]:
    if not device.simulated.mig_capable:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return [int(device.simulated.mig_enabled)] * 2


def _slices_max(device: FakeNvmlDevice) -> int:
    return _slices_of(device) if device.simulated.mig_enabled else 0  # measured with MIG off, on an H200


def _profile_info(device: FakeNvmlDevice, kind: int, version: int = 2) -> Any:
    if kind >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    found = next((profile for profile in profiles_of(device) if profile.kind == kind), None)
    if found is None:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    old, new = pynvml.c_nvmlGpuInstanceProfileInfo_t, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t
    info = (old if version == 1 else new)()
    for name, count in engine_counts(found.engines, shared=False).items():
        setattr(info, name, count)
    info.id, info.sliceCount, info.instanceCount = found.profile_id, found.slices, found.most
    info.memorySizeMB = found.memory_bytes // MIB
    if version != 1:
        info.name = f"MIG {found.name}".encode()
    return info


def _remaining(device: FakeNvmlDevice, profile_id: int) -> int:
    wanted = profile_with_id(device, profile_id)
    pieces = [piece.simulated for piece in device.slices]
    instances = {piece.gpu_instance: piece for piece in pieces}.values()
    lain = placements_of(profiles_of(device), pieces).values()
    taken = {each for start, size in lain for each in range(start, start + size)}
    places = sum(not taken & set(range(start, start + wanted.size)) for start in wanted.starts)
    slices = _slices_of(device) - sum(piece.gpu_slices for piece in instances)
    more = wanted.most - sum(piece.profile == wanted.name for piece in instances)
    return max(min(places, slices // wanted.slices, more), 0)


def _attributes(piece: FakeSlice) -> Any:
    return pynvml.c_nvmlDeviceAttributes(
        **engine_counts(piece.simulated.engines, shared=True),
        gpuInstanceSliceCount=piece.simulated.gpu_slices,
        computeInstanceSliceCount=piece.simulated.compute_slices or piece.simulated.gpu_slices,
        memorySizeMB=piece.simulated.memory_bytes // MIB,
    )


def _memory(piece: FakeSlice, _version: int | None = None) -> Any:
    total, used = piece.simulated.memory_bytes, piece.used_bytes
    return pynvml.c_nvmlMemory_t(total=total, used=used, free=total - used)


MIG_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetMigMode": _mode,
    "nvmlDeviceGetMaxMigDeviceCount": _slices_max,
    "nvmlDeviceGetGpuInstanceProfileInfo": _profile_info,
    "nvmlDeviceGetGpuInstanceProfileInfoV": _profile_info,
    "nvmlDeviceGetGpuInstanceRemainingCapacity": _remaining,
    "nvmlGpmQueryDeviceSupport": lambda device: pynvml.c_nvmlGpmSupport_t(
        version=pynvml.NVML_GPM_SUPPORT_VERSION,
        isSupportedDevice=int(HOPPER <= device.architecture < pynvml.NVML_DEVICE_ARCH_UNKNOWN and not device.is_guest),
    ),
}
"""Function to what answers it; the subject is a ``FakeNvmlDevice``."""

SLICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": lambda piece: piece.simulated.uuid,
    "nvmlDeviceGetName": lambda piece: f"{piece.device.simulated.name} MIG {piece.simulated.name}",
    "nvmlDeviceGetGpuInstanceId": lambda piece: piece.simulated.gpu_instance,
    "nvmlDeviceGetComputeInstanceId": lambda piece: piece.simulated.compute_instance,
    "nvmlDeviceGetAttributes": _attributes,
    "nvmlDeviceGetAttributes_v2": _attributes,
    "nvmlDeviceGetMemoryInfo": _memory,
}
"""Function to what answers it; the subject is a ``FakeSlice``."""


class GpmSamples:
    """GPM samples that were taken, by their address. ``metrics_end``: numbers from here on are not known yet.

    ``idle_for_missing``: engines that a device lacks are called idle instead of not supported.
    """

    def __init__(self) -> None:
        self._taken: dict[int, FakeNvmlDevice | FakeSlice | None] = {}
        self._next = 0x9000_0000
        self.idle_for_missing = False
        self.metrics_end = int(pynvml.NVML_GPM_METRIC_MAX)

    @property
    def held(self) -> int:
        """Return how many samples were not freed."""
        return len(self._taken)

    def alloc(self) -> Any:
        """Make room for a sample."""
        self._next += 0x10
        self._taken[self._next] = None
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlGpmSample_t)

    def free(self, sample: object) -> None:
        """Give a sample's room back."""
        if self._taken.pop(address_of(sample), refuse) is refuse:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def take(self, target: FakeNvmlDevice | FakeSlice, sample: object) -> object:
        """Sample a GPU or a slice."""
        device = target.device if isinstance(target, FakeSlice) else target
        if device.architecture < HOPPER:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._taken[address_of(sample)] = target
        return sample

    def measure(self, asked: Any) -> Any:
        """Fill in what was asked for; engines that the target lacks say so."""
        first, second = (self._taken.get(address_of(sample)) for sample in (asked.sample1, asked.sample2))
        if first is None or first is not second:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if any(asked.metrics[position].metricId >= self.metrics_end for position in range(asked.numMetrics)):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for position in range(asked.numMetrics):
            metric = asked.metrics[position]
            engine, index = METRICS[int(metric.metricId)]
            exists = index < first.simulated.engines.get(engine, 0)
            is_told = exists or self.idle_for_missing
            metric.nvmlReturn = pynvml.NVML_SUCCESS if is_told else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = first.gpm_percent.get(f"{engine.value}{index}", 0.0) if exists else 0.0
        return asked
