"""How a faked device answers as a host of vGPUs: vGPU Management SDK guide, chapter 2."""

import ctypes
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pynvml

from ..cluster.probes.simulated import SimulatedVgpu
from .fake_nvml_device import SAMPLED_AT_US, encoder_sessions, encoder_stats
from .fake_nvml_mig import profiles_of
from .fake_nvml_state import Answer, FakeDevice, FakeVgpu, refuse

__all__ = [
    "HOST_ANSWERS",
    "INSTANCE_ANSWERS",
    "TYPE_ANSWERS",
    "FakeVgpuType",
    "compatibility",
    "find_type",
    "find_vgpu",
    "types_of",
]

GIB = 1024**3
INVALID_PROFILE = 0xFFFFFFFF
NVIDIA_VENDOR = 0x10DE
FRAME_RATE_LIMIT_FPS = 60
SHARES = (8, 4, 2, 1)
SCHEDULERS = {"best effort": 1, "equal share": 2, "fixed share": 3, "fixed": 3}
VM_STATES_ALL = 0xF
METADATA_VERSION = 2


@dataclass(frozen=True, slots=True)
class FakeVgpuType:
    """A kind of vGPU that a device can host. ``mig_profile`` is "" where it shares the GPU by time."""

    type_id: int
    name: str
    framebuffer_bytes: int
    instances_max: int
    mig_profile: str = ""
    profile_id: int = INVALID_PROFILE

    @property
    def vgpu_class(self) -> str:
        """Return the class that the last letter of its name stands for."""
        return {"Q": "Quadro", "B": "NVS", "A": "NVS"}.get(self.name[-1:], "Compute")


def types_of(device: FakeDevice) -> tuple[FakeVgpuType, ...]:
    """Return every type that a host's device supports: those that run on it, and the usual shares of its memory.

    In MIG mode a type is a whole GPU instance, and is named by it: A100-1-5C is a 1g.5gb.
    """
    if not device.is_host:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    running = {vgpu.simulated.type_id: _running_type(device, vgpu.simulated) for vgpu in device.vgpus}
    usual = _mig_types(device) if device.simulated.mig_enabled else _shared_types(device)
    named = {found.name for found in running.values()}
    return (*running.values(), *(found for found in usual if found.name not in named))


def _running_type(device: FakeDevice, vgpu: SimulatedVgpu) -> FakeVgpuType:
    profile = _profile_of(vgpu.type_name) if device.simulated.mig_enabled else ""
    fits = max(device.simulated.memory_bytes // max(vgpu.framebuffer_bytes, 1), 1)
    return FakeVgpuType(
        vgpu.type_id, vgpu.type_name, vgpu.framebuffer_bytes, fits, profile, _profile_id(device, profile)
    )


def _shared_types(device: FakeDevice) -> tuple[FakeVgpuType, ...]:
    gib = round(device.simulated.memory_bytes / GIB)
    return tuple(
        FakeVgpuType(
            2000 + share, f"NVIDIA {device.model}-{gib // share}Q", device.simulated.memory_bytes // share, share
        )
        for share in SHARES
        if gib >= share
    )


def _mig_types(device: FakeDevice) -> tuple[FakeVgpuType, ...]:
    types = []
    for profile in profiles_of(device):
        name = profile.name(device)
        slices, _, gib = name.removesuffix(profile.suffix).removesuffix("gb").partition("g.")
        type_name = f"NVIDIA {device.model}-{slices}-{gib}C{'ME' if profile.suffix else ''}"
        memory_bytes = device.simulated.memory_bytes * profile.eighths // 8
        types.append(
            FakeVgpuType(3000 + profile.kind, type_name, memory_bytes, 7 // profile.slices, name, profile.kind)
        )
    return tuple(types)


def _profile_of(type_name: str) -> str:
    found = re.search(r"-(\d+)-(\d+)C(ME)?$", type_name)
    return f"{found[1]}g.{found[2]}gb{'+me' if found[3] else ''}" if found else ""


def _profile_id(device: FakeDevice, profile: str) -> int:
    return next((each.kind for each in profiles_of(device) if each.name(device) == profile), INVALID_PROFILE)


def _creatable(device: FakeDevice) -> list[int]:
    """Apply the rules of 2.2, with and without MIG."""
    types = types_of(device)
    if device.simulated.mig_enabled:
        free = [piece.simulated.profile for piece in device.slices]
        for vgpu in device.vgpus:
            profile = _profile_of(vgpu.simulated.type_name)
            if profile in free:
                free.remove(profile)
        return [found.type_id for found in types if found.mig_profile in free]
    if not device.vgpus:
        return [found.type_id for found in types]
    size = device.vgpus[0].simulated.framebuffer_bytes
    same = [found for found in types if found.framebuffer_bytes == size]
    is_full = len(device.vgpus) >= max(found.instances_max for found in same)
    return [] if is_full else [found.type_id for found in same]


def find_type(devices: Iterable[FakeDevice], number: int) -> tuple[FakeDevice, FakeVgpuType]:
    """Return a vGPU type by its id, with a device that supports it; refuses what no device of the node supports."""
    for device in devices:
        for found in types_of(device) if device.is_host else ():
            if found.type_id == number:
                return device, found
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def find_vgpu(devices: Iterable[FakeDevice], instance: int) -> tuple[FakeDevice, FakeVgpu]:
    """Return a running vGPU by its instance's number, which is unique on a node."""
    for device in devices:
        for vgpu in device.vgpus:
            if vgpu.instance == instance:
                return device, vgpu
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


def compatibility(_vgpu: object, _gpu: object) -> Any:  # noqa: ANN401 - pynvml's structure
    """Say that a vGPU can run on this GPU in whatever state its machine is."""
    return pynvml.c_nvmlVgpuPgpuCompatibility_t(vgpuVmCompatibility=VM_STATES_ALL, compatibilityLimitCode=0)


def _types_max(device: FakeDevice, number: int) -> int:
    for found in types_of(device):
        if found.type_id == number:
            return found.instances_max
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def _active(device: FakeDevice) -> list[int]:
    return [vgpu.instance for vgpu in _hosted(device)]


def _hosted(device: FakeDevice) -> list[FakeVgpu]:
    return device.vgpus if device.is_host else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _utilisation(device: FakeDevice, _since_us: int) -> list[Any]:
    samples = []
    for vgpu in _hosted(device):
        sample = pynvml.c_nvmlVgpuInstanceUtilizationSample_t(vgpuInstance=vgpu.instance, timeStamp=SAMPLED_AT_US)
        sample.smUtil.uiVal, sample.memUtil.uiVal = vgpu.sm_percent, vgpu.memory_percent
        sample.encUtil.uiVal, sample.decUtil.uiVal = vgpu.encoder_percent, vgpu.decoder_percent
        samples.append(sample)
    return samples


def _process_utilisation(device: FakeDevice, _since_us: int) -> list[Any]:
    return [
        pynvml.c_nvmlVgpuProcessUtilizationSample_t(
            vgpuInstance=vgpu.instance,
            pid=process.pid,
            processName=f"process-{process.pid}".encode(),
            timeStamp=SAMPLED_AT_US,
            smUtil=process.sm_percent or 0,
            encUtil=process.encoder_percent or 0,
            decUtil=process.decoder_percent or 0,
        )
        for vgpu in _hosted(device)
        for process in vgpu.processes
    ]


def _features(device: FakeDevice) -> Any:  # noqa: ANN401 - pynvml's structure
    found = pynvml.c_nvmlGridLicensableFeatures_v4_t()
    if device.is_geforce or not (device.is_guest or device.is_host):
        return found  # licensing does not apply here
    found.isGridLicenseSupported, found.licensableFeaturesCount = 1, 1
    feature = found.gridLicensableFeatures[0]
    feature.featureCode = pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VWORKSTATION
    feature.featureState = feature.featureEnabled = 1
    feature.productName = b"NVIDIA RTX Virtual Workstation"
    feature.licenseInfo = b"Quadro-Virtual-DWS,5.0"
    return found


def _device_metadata(device: FakeDevice) -> Any:  # noqa: ANN401 - pynvml's structure
    _hosted(device)
    found = pynvml.c_nvmlVgpuPgpuMetadata_t(version=METADATA_VERSION, hostDriverVersion=device.node.driver.encode())
    found.hostSupportedVgpuRange.minVersion, found.hostSupportedVgpuRange.maxVersion = 0x10001, 0x160001
    return found


def _scheduler(device: FakeDevice) -> Any:  # noqa: ANN401 - pynvml's structure
    _hosted(device)
    policy = SCHEDULERS.get(device.simulated.vgpu_scheduler, pynvml.NVML_VGPU_SCHEDULER_POLICY_UNKNOWN)
    return pynvml.c_nvmlVgpuSchedulerGetState_t(schedulerPolicy=policy)


def _host_mode(device: FakeDevice) -> int:
    _hosted(device)
    return int(pynvml.NVML_HOST_VGPU_MODE_SRIOV)


def _scheduler_capabilities(device: FakeDevice) -> Any:  # noqa: ANN401 - pynvml's structure
    _hosted(device)
    found = pynvml.c_nvmlVgpuSchedulerCapabilities_t()
    for position, policy in enumerate((1, 2, 3)):
        found.supportedSchedulers[position] = policy
    return found


HOST_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetSupportedVgpus": lambda device: [found.type_id for found in types_of(device)],
    "nvmlDeviceGetCreatableVgpus": _creatable,
    "nvmlDeviceGetActiveVgpus": _active,
    "nvmlDeviceGetVgpuMetadata": _device_metadata,
    "nvmlDeviceGetVgpuUtilization": _utilisation,
    "nvmlDeviceGetVgpuProcessUtilization": _process_utilisation,
    "nvmlDeviceGetGridLicensableFeatures": _features,
    "nvmlDeviceGetGridLicensableFeatures_v4": _features,
    "nvmlDeviceGetVgpuSchedulerState": _scheduler,
    "nvmlDeviceGetVgpuSchedulerCapabilities": _scheduler_capabilities,
    "nvmlDeviceGetHostVgpuMode": _host_mode,
    "nvmlVgpuTypeGetMaxInstances": _types_max,
}
"""Function to what answers it; the subject is a ``FakeDevice``."""


def _type_value(attribute: str) -> Answer:
    return lambda _device, found: getattr(found, attribute)


TYPE_ANSWERS: dict[str, Answer] = {
    "nvmlVgpuTypeGetClass": _type_value("vgpu_class"),
    "nvmlVgpuTypeGetName": _type_value("name"),
    "nvmlVgpuTypeGetDeviceID": lambda _device, _found: (0x2235 << 16 | NVIDIA_VENDOR, 0x14A0 << 16 | NVIDIA_VENDOR),
    "nvmlVgpuTypeGetFramebufferSize": _type_value("framebuffer_bytes"),
    "nvmlVgpuTypeGetNumDisplayHeads": lambda _device, found: 4 if found.vgpu_class == "Quadro" else 1,
    "nvmlVgpuTypeGetResolution": lambda _device, _found: (4096, 2160),
    "nvmlVgpuTypeGetLicense": lambda _device, _found: "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0",
    "nvmlVgpuTypeGetFrameRateLimit": lambda _device, _found: FRAME_RATE_LIMIT_FPS,
    "nvmlVgpuTypeGetGpuInstanceProfileId": _type_value("profile_id"),
    "nvmlVgpuTypeGetCapabilities": lambda _device, _found, capability: int(
        capability == pynvml.NVML_VGPU_CAP_GPUDIRECT
    ),
}
"""Function to what answers it; the subjects are a ``FakeDevice`` and a ``FakeVgpuType``."""


def _vm_id(_device: FakeDevice, vgpu: FakeVgpu) -> tuple[bytes, int]:
    # pynvml leaves this one string undecoded, because it comes in a pair.
    vm_id = vgpu.simulated.vm_id
    is_uuid = vm_id.count("-") == 4  # noqa: PLR2004 - a UUID's dashes
    return vm_id.encode(), int(pynvml.NVML_VGPU_VM_ID_UUID if is_uuid else pynvml.NVML_VGPU_VM_ID_DOMAIN_ID)


def _captures(_device: FakeDevice, vgpu: FakeVgpu) -> list[Any]:
    return [
        pynvml.c_nvmlFBCSession_t(
            sessionId=each.session,
            pid=each.pid,
            vgpuInstance=vgpu.instance,
            hMaxResolution=each.width,
            vMaxResolution=each.height,
            hResolution=each.width,
            vResolution=each.height,
            averageFPS=each.fps,
            averageLatency=each.latency_us,
        )
        for each in vgpu.captures
    ]


def _capture_stats(_device: FakeDevice, vgpu: FakeVgpu) -> Any:  # noqa: ANN401 - pynvml's structure
    count, fps, latency_us = encoder_stats(vgpu.captures)
    return pynvml.c_nvmlFBCStats_t(sessionsCount=count, averageFPS=fps, averageLatency=latency_us)


def _frame_rate_limit(_device: FakeDevice, vgpu: FakeVgpu) -> int:
    limit = vgpu.simulated.frame_rate_limit
    return FRAME_RATE_LIMIT_FPS if limit is None else limit


def _accounting_pids(_device: FakeDevice, vgpu: FakeVgpu) -> tuple[Any, Any]:
    pids = [process.pid for process in vgpu.processes] if vgpu.accounting else []
    return ctypes.c_uint(len(pids)), (ctypes.c_uint * len(pids))(*pids)


def _accounting_stats(_device: FakeDevice, vgpu: FakeVgpu, pid: int) -> Any:  # noqa: ANN401 - pynvml's structure
    for process in vgpu.processes if vgpu.accounting else ():
        if process.pid == pid:
            return pynvml.c_nvmlAccountingStats_t(
                gpuUtilization=process.sm_percent or 0,
                memoryUtilization=0,
                maxMemoryUsage=process.memory_bytes or 0,
                time=1000,
                startTime=SAMPLED_AT_US,
                isRunning=1,
            )
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


def _metadata(device: FakeDevice, vgpu: FakeVgpu) -> Any:  # noqa: ANN401 - pynvml's structure
    return pynvml.c_nvmlVgpuMetadata_t(
        version=METADATA_VERSION,
        guestInfoState=int(bool(vgpu.guest_driver)),
        guestDriverVersion=vgpu.guest_driver.encode(),
        hostDriverVersion=device.node.driver.encode(),
    )


def _licence_info(_device: FakeDevice, vgpu: FakeVgpu) -> Any:  # noqa: ANN401 - pynvml's structure
    licensed = vgpu.simulated.licensed
    state = pynvml.NVML_GRID_LICENSE_STATE_LICENSED if licensed else pynvml.NVML_GRID_LICENSE_STATE_UNLICENSED
    return pynvml.c_nvmlVgpuLicenseInfo_t(isLicensed=int(licensed), currentState=state)


INSTANCE_ANSWERS: dict[str, Answer] = {
    "nvmlVgpuInstanceGetVmID": _vm_id,
    "nvmlVgpuInstanceGetUUID": lambda _device, vgpu: vgpu.simulated.uuid,
    "nvmlVgpuInstanceGetMdevUUID": lambda _device, vgpu: vgpu.simulated.uuid,
    "nvmlVgpuInstanceGetVmDriverVersion": lambda _device, vgpu: vgpu.guest_driver or "Not Available",
    "nvmlVgpuInstanceGetFbUsage": lambda _device, vgpu: vgpu.used_bytes,
    "nvmlVgpuInstanceGetFBCStats": _capture_stats,
    "nvmlVgpuInstanceGetFBCSessions": _captures,
    "nvmlVgpuInstanceGetLicenseStatus": lambda _device, vgpu: int(vgpu.simulated.licensed),
    "nvmlVgpuInstanceGetLicenseInfo": _licence_info,
    "nvmlVgpuInstanceGetLicenseInfo_v2": _licence_info,
    "nvmlVgpuInstanceGetType": lambda _device, vgpu: vgpu.simulated.type_id,
    "nvmlVgpuInstanceGetFrameRateLimit": _frame_rate_limit,
    "nvmlVgpuInstanceGetEncoderCapacity": lambda _device, _vgpu: 100,
    "nvmlVgpuInstanceGetEncoderStats": lambda _device, vgpu: encoder_stats(vgpu.sessions),
    "nvmlVgpuInstanceGetEncoderSessions": lambda _device, vgpu: encoder_sessions(vgpu.sessions, vgpu.instance),
    "nvmlVgpuInstanceGetAccountingMode": lambda _device, vgpu: int(vgpu.accounting),
    "nvmlVgpuInstanceGetAccountingPids": _accounting_pids,
    "nvmlVgpuInstanceGetAccountingStats": _accounting_stats,
    "nvmlVgpuInstanceGetMetadata": _metadata,
}
"""Function to what answers it; the subjects are a ``FakeDevice`` and a ``FakeVgpu``."""
