"""The answers of a fake device to queries about MIG and the metrics of each engine (GPM).

Engines and memory are those in ``configs/hardware.toml``. Ids and placements are those in the Multi-Instance GPU User
Guide.
"""

import ctypes
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pynvml

from ...cluster.probes.gpus import MIB, MigProfileFacts, load_hardware
from ...cluster.probes.nvml import METRICS
from ...cluster.probes.report import Engine
from ...cluster.simulated.devices import SimulatedSlice
from .fake_nvml_state import Answer, FakeNvmlDevice, FakeSlice, address_of, engine_counts, refuse

HOPPER = 9
_SEVENTHS: Final = 7
_MEMORY_OF_SEVENTHS: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}
"""The number of memory slices for each number of compute slices, on a GPU with seven compute and eight memory
slices."""

_KINDS: Final[Mapping[str, Mapping[int, int]]] = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6},
    "+me": {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12, 3: 17},
    "-me": {1: 13, 2: 14},
    "+me.all": {1: 15, 2: 16},
}
"""NVML_GPU_INSTANCE_PROFILE_*, by the suffix of a profile's name and by the number of slices."""

_WIDE: Final = 9
"""NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, which has one slice with the memory of two."""

_IDS: Final[Mapping[int, Mapping[int, int]]] = {
    7: {0: 19, 1: 14, 2: 9, 3: 5, 4: 0, 7: 20, _WIDE: 15},
    4: {0: 14, 1: 5, 3: 0, 7: 21, 8: 6, 10: 47, 11: 35, 12: 32, 13: 67, 14: 66, 15: 65, 16: 64},
}
_FROM_THE_START: Final = 2
_UNLISTED_ID: Final = 100  # the first invented id, for GPUs that the guide does not list


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeProfile:
    """A GPU instance profile of MIG, with its possible placements."""

    kind: int  # NVML_GPU_INSTANCE_PROFILE_*
    profile_id: int
    name: str
    slices: int  # compute slices
    memory_bytes: int
    engines: Mapping[Engine, int]
    most: int  # how many instances of this kind fit on the GPU
    size: int  # in memory slices
    starts: tuple[int, ...]  # the first memory slice of each possible placement


def profiles_of(device: FakeNvmlDevice) -> tuple[FakeProfile, ...]:
    """Return the kinds of GPU instance that a device can have, in order of their numbers; empty without MIG."""
    return _profiles_of(device.simulated.name) if device.simulated.mig_capable else ()


@cache
def _profiles_of(model: str) -> tuple[FakeProfile, ...]:
    table = load_hardware().mig_profiles_of(model)
    whole = max((_slices(profile) for profile in table), default=0)
    plain: set[int] = set()
    found = []
    for profile, facts in table.items():
        suffix = _suffix(profile)
        wide = not suffix and _slices(profile) in plain
        plain |= set() if suffix else {_slices(profile)}
        found.append(_profile(profile, facts, whole, _WIDE if wide else _KINDS[suffix][_slices(profile)]))
    return tuple(sorted(found, key=lambda each: each.kind))


def placements_of(profiles: Iterable[FakeProfile], slices: Iterable[SimulatedSlice]) -> dict[int, tuple[int, int]]:
    """Return the first memory slice and the number of memory slices of each GPU instance, by instance number.

    Instances are placed as in the guide's listings: the largest first, and instances of more than two slices from the
    end. An instance that then does not fit is placed after the others.
    """
    known = {profile.name: profile for profile in profiles}
    wanted = {part.gpu_instance: known[part.profile] for part in slices if part.profile in known}
    taken: set[int] = set()
    found = {}
    for number, profile in sorted(wanted.items(), key=lambda pair: -pair[1].size):
        starts = profile.starts if profile.size <= _FROM_THE_START else profile.starts[::-1]
        free = [start for start in starts if not taken & set(range(start, start + profile.size))]
        start = free[0] if free else max(taken, default=-1) + 1
        taken |= set(range(start, start + profile.size))
        found[number] = (start, profile.size)
    return found


def _profile(name: str, facts: MigProfileFacts, whole: int, kind: int) -> FakeProfile:
    slices = _slices(name)
    size = slices if whole != _SEVENTHS else 2 if kind == _WIDE else _MEMORY_OF_SEVENTHS[slices]
    memory_slices = whole if whole != _SEVENTHS else whole + 1
    places = min(memory_slices // size, whole // slices)
    return FakeProfile(
        kind=kind,
        profile_id=_IDS.get(whole, {}).get(kind, _UNLISTED_ID + kind),
        name=name,
        slices=slices,
        memory_bytes=facts.memory_mib * MIB,
        engines=facts.engine_counts(),
        most=facts.most,
        size=size,
        starts=tuple(size * place for place in range(places)),
    )


def _slices(profile: str) -> int:
    return int(profile.partition("g.")[0])


def _suffix(profile: str) -> str:
    found = re.fullmatch(r"\d+g\.\d+gb(.*)", profile)
    return found[1] if found else ""


def profile_with_id(device: FakeNvmlDevice, profile_id: int) -> FakeProfile:
    """Return the profile with this id. Raises NVML's error if the device lacks the profile."""
    found = next((profile for profile in profiles_of(device) if profile.profile_id == profile_id), None)
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT) if found is None else found


def _slices_of(device: FakeNvmlDevice) -> int:
    return max((profile.slices for profile in profiles_of(device)), default=0)


def _mode(device: FakeNvmlDevice) -> list[int]:
    if not device.simulated.mig_capable:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return [int(device.simulated.mig_enabled)] * 2


def _slices_max(device: FakeNvmlDevice) -> int:
    return _slices_of(device) if device.simulated.mig_enabled else 0  # an H200 with MIG off returned 0


def _profile_info(device: FakeNvmlDevice, kind: int, _version: int = 2) -> Any:
    if kind >= pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    found = next((profile for profile in profiles_of(device) if profile.kind == kind), None)
    if found is None:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t()
    for name, count in engine_counts(found.engines, shared=False).items():
        setattr(info, name, count)
    info.id, info.sliceCount, info.instanceCount = found.profile_id, found.slices, found.most
    info.memorySizeMB = found.memory_bytes // MIB
    info.name = f"MIG {found.name}".encode()
    return info


def _remaining(device: FakeNvmlDevice, profile_id: int) -> int:
    wanted = profile_with_id(device, profile_id)
    pieces = [piece.simulated for piece in device.slices]
    instances = {piece.gpu_instance: piece for piece in pieces}.values()
    placed = placements_of(profiles_of(device), pieces).values()
    taken = {each for start, size in placed for each in range(start, start + size)}
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
    "nvmlDeviceGetGpuInstanceProfileInfoV": _profile_info,
    "nvmlDeviceGetGpuInstanceRemainingCapacity": _remaining,
    "nvmlGpmQueryDeviceSupport": lambda device: pynvml.c_nvmlGpmSupport_t(
        version=pynvml.NVML_GPM_SUPPORT_VERSION,
        isSupportedDevice=int(HOPPER <= device.architecture < pynvml.NVML_DEVICE_ARCH_UNKNOWN and not device.is_guest),
    ),
}
"""For each NVML function, the answer about a ``FakeNvmlDevice``."""

SLICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": lambda piece: piece.simulated.uuid,
    "nvmlDeviceGetName": lambda piece: f"{piece.device.simulated.name} MIG {piece.simulated.name}",
    "nvmlDeviceGetGpuInstanceId": lambda piece: piece.simulated.gpu_instance,
    "nvmlDeviceGetComputeInstanceId": lambda piece: piece.simulated.compute_instance,
    "nvmlDeviceGetAttributes_v2": _attributes,
    "nvmlDeviceGetMemoryInfo": _memory,
}
"""For each NVML function, the answer about a ``FakeSlice``."""


class GpmSamples:
    """The allocated GPM samples, by address.

    Metrics with the number ``metrics_end`` or a higher one are unknown. With ``idle_for_missing``, engines that a
    device lacks are reported as idle rather than as unsupported.
    """

    def __init__(self) -> None:
        self._taken: dict[int, FakeSlice | None] = {}
        self._next = 0x9000_0000
        self.idle_for_missing = False
        self.metrics_end = int(pynvml.NVML_GPM_METRIC_MAX)

    @property
    def held(self) -> int:
        """The number of samples that are allocated and not freed."""
        return len(self._taken)

    def alloc(self) -> Any:
        """Allocate a sample."""
        self._next += 0x10
        self._taken[self._next] = None
        return ctypes.cast(ctypes.c_void_p(self._next), pynvml.c_nvmlGpmSample_t)

    def free(self, sample: object) -> None:
        """Free a sample."""
        if self._taken.pop(address_of(sample), refuse) is refuse:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def take(self, piece: FakeSlice, sample: object) -> object:
        """Sample a slice."""
        if piece.device.architecture < HOPPER:
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._taken[address_of(sample)] = piece
        return sample

    def measure(self, asked: Any) -> Any:
        """Fill in the requested metrics; for an engine that the target lacks, the metric has an error code."""
        first, second = (self._taken.get(address_of(sample)) for sample in (asked.sample1, asked.sample2))
        if first is None or first is not second:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if any(asked.metrics[position].metricId >= self.metrics_end for position in range(asked.numMetrics)):
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for position in range(asked.numMetrics):
            metric = asked.metrics[position]
            engine, index = next(
                (each, ids.index(metric.metricId)) for each, ids in METRICS.items() if metric.metricId in ids
            )
            exists = index < first.simulated.engines.get(engine, 0)
            is_reported = exists or self.idle_for_missing
            metric.nvmlReturn = pynvml.NVML_SUCCESS if is_reported else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = first.gpm_percent.get(f"{engine.value}{index}", 0.0) if exists else 0.0
        return asked
