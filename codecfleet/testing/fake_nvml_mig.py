"""How a faked device answers about MIG and per-engine metrics (GPM)."""

import ctypes
from dataclasses import dataclass
from typing import Any

import pynvml

from ..cluster.probes.engines import Engine
from ..cluster.probes.gpm import METRICS
from .fake_nvml_state import Answer, FakeDevice, FakeSlice, refuse

__all__ = ["MIG_ANSWERS", "SLICE_ANSWERS", "GpmSamples", "profiles_of"]

MIB = 1024 * 1024
GIB = 1024 * MIB
HOPPER = 9
SLICES_OF_A30 = 4
SLICES = 7


@dataclass(frozen=True, slots=True)
class FakeProfile:
    """A kind of GPU instance: NVML's number of the kind, the slices it takes and its eighths of the memory."""

    kind: int
    slices: int
    eighths: int
    suffix: str = ""

    def name(self, device: FakeDevice) -> str:
        """Return it as NVIDIA names it, for this device's memory."""
        gib = device.simulated.memory_bytes / GIB * self.eighths / 8
        return f"{self.slices}g.{int(gib + 0.5)}gb{self.suffix}"


_SEVENTHS = (
    FakeProfile(0, 1, 1),
    FakeProfile(1, 2, 2),
    FakeProfile(2, 3, 4),
    FakeProfile(3, 4, 4),
    FakeProfile(4, 7, 8),
    FakeProfile(7, 1, 1, "+me"),
    FakeProfile(9, 1, 2),
)
_QUARTERS = (FakeProfile(0, 1, 2), FakeProfile(1, 2, 4), FakeProfile(3, 4, 8), FakeProfile(7, 1, 2, "+me"))

# Decoders by kind of profile (NVIDIA Multi-Instance GPU User Guide, "Supported MIG Profiles"); where a product is not
# here, a profile gets its share of what the whole GPU has.
_DECODERS = {"A100": {0: 0, 1: 1, 2: 2, 3: 2, 4: 5, 7: 1, 9: 1}, "A30": {0: 0, 1: 2, 3: 4, 7: 1}}


def profiles_of(device: FakeDevice) -> tuple[FakeProfile, ...]:
    """Return the kinds of GPU instance that a device can be cut into; none where it cannot."""
    if not device.simulated.mig_capable:
        return ()
    return _QUARTERS if device.model == "A30" else _SEVENTHS


def _slices_of(device: FakeDevice) -> int:
    return SLICES_OF_A30 if device.model == "A30" else SLICES


def _engines(device: FakeDevice, profile: FakeProfile) -> dict[Engine, int]:
    total = _slices_of(device)
    shares = {engine: count * profile.slices // total for engine, count in device.simulated.engines.items()}
    decoders = _DECODERS.get(device.model, {}).get(profile.kind)
    return shares if decoders is None else {**shares, Engine.NVDEC: decoders}


def _mode(device: FakeDevice) -> list[int]:
    if not device.simulated.mig_capable:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return [int(device.simulated.mig_enabled)] * 2


def _slices_max(device: FakeDevice) -> int:
    return _slices_of(device) if device.simulated.mig_capable else 0


def _profile_info(device: FakeDevice, kind: int, version: int = 2) -> Any:  # noqa: ANN401 - pynvml's structure
    if kind >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    found = next((profile for profile in profiles_of(device) if profile.kind == kind), None)
    if found is None:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    info = pynvml.c_nvmlGpuInstanceProfileInfo_t() if version == 1 else pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    engines = _engines(device, found)
    info.id = found.kind
    info.sliceCount = found.slices
    info.instanceCount = _instances_max(device, found)
    info.decoderCount = engines.get(Engine.NVDEC, 0)
    info.encoderCount = engines.get(Engine.NVENC, 0)
    info.jpegCount = engines.get(Engine.NVJPG, 0)
    info.ofaCount = engines.get(Engine.OFA, 0)
    info.memorySizeMB = device.simulated.memory_bytes * found.eighths // 8 // MIB
    if version != 1:
        info.name = f"MIG {found.name(device)}".encode()
    return info


def _remaining(device: FakeDevice, profile_id: int) -> int:
    if not device.simulated.mig_enabled:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    found = next((profile for profile in profiles_of(device) if profile.kind == profile_id), None)
    if found is None:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    free = _slices_of(device) - sum(piece.gpu_slices for piece in device.slices)
    return min(max(free, 0) // found.slices, _instances_max(device, found))


def _instances_max(device: FakeDevice, profile: FakeProfile) -> int:
    by_slices = 1 if profile.suffix else _slices_of(device) // profile.slices
    return min(by_slices, 8 // profile.eighths)


def _attributes(piece: FakeSlice) -> Any:  # noqa: ANN401 - pynvml's structure
    engines = piece.simulated.engines
    return pynvml.c_nvmlDeviceAttributes(
        sharedDecoderCount=engines.get(Engine.NVDEC, 0),
        sharedEncoderCount=engines.get(Engine.NVENC, 0),
        sharedJpegCount=engines.get(Engine.NVJPG, 0),
        sharedOfaCount=engines.get(Engine.OFA, 0),
        gpuInstanceSliceCount=piece.gpu_slices,
        computeInstanceSliceCount=piece.gpu_slices,
        memorySizeMB=piece.simulated.memory_bytes // MIB,
    )


def _memory(piece: FakeSlice, _version: int | None = None) -> Any:  # noqa: ANN401 - pynvml's structure
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
"""Function to what answers it; the subject is a ``FakeDevice``."""

SLICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": lambda piece: piece.simulated.uuid,
    "nvmlDeviceGetName": lambda piece: f"{piece.device.simulated.name} MIG {piece.simulated.profile}",
    "nvmlDeviceGetGpuInstanceId": lambda piece: piece.simulated.gpu_instance,
    "nvmlDeviceGetComputeInstanceId": lambda _: 0,
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
        self._taken: dict[int, FakeDevice | FakeSlice | None] = {}
        self._next = 0x9000_0000
        self.idle_for_missing = False
        self.metrics_end = int(pynvml.NVML_GPM_METRIC_MAX)

    @property
    def held(self) -> int:
        """Return how many samples nobody has freed."""
        return len(self._taken)

    def alloc(self) -> Any:  # noqa: ANN401 - pynvml's pointer
        """Make room for a sample."""
        self._next += 0x10
        self._taken[self._next] = None
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlGpmSample_t)

    def free(self, sample: object) -> None:
        """Give a sample's room back."""
        if self._taken.pop(_address(sample), refuse) is refuse:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def take(self, target: FakeDevice | FakeSlice, sample: object) -> object:
        """Sample a GPU or a slice."""
        device = target.device if isinstance(target, FakeSlice) else target
        if device.architecture < HOPPER:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._taken[_address(sample)] = target
        return sample

    def measure(self, asked: Any) -> Any:  # noqa: ANN401 - c_nvmlGpmMetricsGet_t
        """Fill in what was asked for; engines that the target lacks say so."""
        first, second = (self._taken.get(_address(sample)) for sample in (asked.sample1, asked.sample2))
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


def _address(pointer: Any) -> int:  # noqa: ANN401 - a ctypes pointer
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
