"""The answers of a fake device as a host of vGPUs, after chapter 2 of the vGPU Management SDK guide."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pynvml

from ...cluster.probes.gpus import MIB, VgpuTypeEntry, load_hardware
from .fake_nvml_device import SAMPLED_AT_US, encoder_sessions, encoder_stats
from .fake_nvml_mig import profiles_of
from .fake_nvml_state import Answer, FakeNvmlDevice, FakeVgpu, refuse

INVALID_PROFILE = NO_INSTANCE = 0xFFFFFFFF
EXPIRY_NOT_AVAILABLE, EXPIRY_VALID = 0, 2
NVIDIA_VENDOR = 0x10DE
FRAME_RATE_LIMIT_FPS = 60
SCHEDULERS = {"best effort": 1, "equal share": 2, "fixed share": 3, "fixed": 3}
VM_STATES_ALL = 0xF
METADATA_VERSION = 2
UUID_DASHES = 4


@dataclass(frozen=True, slots=True)
class Series:
    """The values that all types of a series share: class in NVML, number and size of displays, frame rate, licences."""

    vgpu_class: str
    displays: int
    width: int
    height: int
    fps: int
    licences: str


_SERIES = {
    "Q": Series("Quadro", 4, 7680, 4320, 60, "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0;GRID-Virtual-WS-Ext,2.0"),
    "B": Series("NVS", 4, 5120, 2880, 45, "GRID-Virtual-PC,2.0;Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0"),
    "A": Series("NVS", 1, 1280, 1024, 60, "GRID-Virtual-Apps,3.0"),
    "C": Series("Compute", 1, 4096, 2160, 60, "NVIDIA-vComputeServer,9.0;Quadro-Virtual-DWS,5.0"),
}
"""Keys are the last letters of type names (vGPU User Guide, "Virtual GPU Types")."""


def series_of(found: VgpuTypeEntry) -> Series:
    """Return the values of a type's series; if the name of the type states no series, those of compute types."""
    return _SERIES.get(found.series, _SERIES["C"])


def profile_id_of(device: FakeNvmlDevice, found: VgpuTypeEntry) -> int:
    """Return the GPU instance profile that a type occupies entirely, or NVML's number for no profile."""
    ids = (profile.profile_id for profile in profiles_of(device) if profile.name == found.mig_profile)
    return next(ids, INVALID_PROFILE) if device.simulated.mig_enabled else INVALID_PROFILE


def types_of(device: FakeNvmlDevice) -> tuple[VgpuTypeEntry, ...]:
    """Return every type that a host's device supports: types in codecfleet's tables, and running types."""
    if not device.is_host:
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    simulated = device.simulated
    listed = load_hardware().vgpu_types_of(simulated.name, mig_enabled=simulated.mig_enabled)
    named = {found.name for found in listed}
    unlisted = {
        vgpu.simulated.type_id: VgpuTypeEntry(
            number=vgpu.simulated.type_id,
            name=vgpu.simulated.type_name,
            framebuffer_mib=vgpu.simulated.framebuffer_bytes // MIB,
            most=max(simulated.memory_bytes // max(vgpu.simulated.framebuffer_bytes, 1), 1),
        )
        for vgpu in device.vgpus
        if vgpu.simulated.type_name not in named
    }
    return (*listed, *unlisted.values())


def gpu_instance_of(device: FakeNvmlDevice, vgpu: FakeVgpu) -> int:
    """Return the GPU instance on which a vGPU runs, or NVML's number for no instance. Instances are filled in order."""
    if not device.simulated.mig_enabled:
        return NO_INSTANCE
    profiles = {found.number: found.mig_profile for found in types_of(device)}
    wanted = profiles.get(vgpu.simulated.type_id)
    fitting = [each.number for each in device.gpu_instances if each.slices[0].simulated.profile == wanted]
    alike = [each for each in device.vgpus if profiles.get(each.simulated.type_id) == wanted]
    place = next(position for position, each in enumerate(alike) if each is vgpu)
    return fitting[place] if place < len(fitting) else NO_INSTANCE


def _creatable(device: FakeNvmlDevice) -> list[int]:
    types = types_of(device)
    if device.simulated.mig_enabled:
        taken = {gpu_instance_of(device, vgpu) for vgpu in device.vgpus}
        free = {each.slices[0].simulated.profile for each in device.gpu_instances if each.number not in taken}
        return [found.number for found in types if found.mig_profile in free]
    if not device.vgpus:
        return [found.number for found in types]
    size = device.vgpus[0].simulated.framebuffer_bytes // MIB
    same = [found for found in types if found.framebuffer_mib == size]
    is_full = len(device.vgpus) >= max(found.most for found in same)
    return [] if is_full else [found.number for found in same]


def find_type(devices: Iterable[FakeNvmlDevice], number: int) -> tuple[FakeNvmlDevice, VgpuTypeEntry]:
    """Return a vGPU type by id, with a device that supports the type.

    Raises NVML's error if no device of the node supports the type.
    """
    for device in devices:
        for found in types_of(device) if device.is_host else ():
            if found.number == number:
                return device, found
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def find_vgpu(devices: Iterable[FakeNvmlDevice], instance: int) -> tuple[FakeNvmlDevice, FakeVgpu]:
    """Return a running vGPU by the number of its instance, which is unique on a node."""
    for device in devices:
        for vgpu in device.vgpus:
            if vgpu.instance == instance:
                return device, vgpu
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


def compatibility(_vgpu: object, _gpu: object) -> Any:
    """Report that a vGPU can run on this GPU, whatever the state of its virtual machine."""
    return pynvml.c_nvmlVgpuPgpuCompatibility_t(vgpuVmCompatibility=VM_STATES_ALL, compatibilityLimitCode=0)


def _types_max(device: FakeNvmlDevice, number: int) -> int:
    for found in types_of(device):
        if found.number == number:
            return found.most
    return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def _hosted(device: FakeNvmlDevice) -> list[FakeVgpu]:
    return device.vgpus if device.is_host else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _utilisation(device: FakeNvmlDevice, _since_us: int) -> list[Any]:
    samples = []
    for vgpu in _hosted(device):
        sample = pynvml.c_nvmlVgpuInstanceUtilizationSample_t(vgpuInstance=vgpu.instance, timeStamp=SAMPLED_AT_US)
        sample.smUtil.uiVal, sample.memUtil.uiVal = vgpu.sm_percent, vgpu.memory_percent
        sample.encUtil.uiVal, sample.decUtil.uiVal = vgpu.encoder_percent, vgpu.decoder_percent
        samples.append(sample)
    return samples


def _process_utilisation(device: FakeNvmlDevice, _since_us: int) -> list[Any]:
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


def _features(device: FakeNvmlDevice) -> Any:
    found = pynvml.c_nvmlGridLicensableFeatures_v4_t()
    licensed = device.is_host if device.licensed is None else device.licensed
    if device.is_geforce or not (device.is_guest or device.is_host or device.licensed is not None):
        return found  # licensing does not apply to this device
    found.isGridLicenseSupported, found.licensableFeaturesCount = 1, 1
    feature = found.gridLicensableFeatures[0]
    feature.featureCode = pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VWORKSTATION
    feature.featureState = feature.featureEnabled = int(licensed)
    feature.productName = b"NVIDIA RTX Virtual Workstation"
    feature.licenseInfo = b"Quadro-Virtual-DWS,5.0"
    feature.licenseExpiry = _expiry(device.licence_expires)
    return found


def _expiry(when: datetime | None) -> Any:
    if when is None:
        return pynvml.c_nvmlGridLicenseExpiry_t(status=EXPIRY_NOT_AVAILABLE)
    year, month, day, hour, minute, second, *_ = when.astimezone(UTC).timetuple()
    return pynvml.c_nvmlGridLicenseExpiry_t(year, month, day, hour, minute, second, EXPIRY_VALID)


def _device_metadata(device: FakeNvmlDevice) -> Any:
    _hosted(device)
    found = pynvml.c_nvmlVgpuPgpuMetadata_t(version=METADATA_VERSION, hostDriverVersion=device.node.driver.encode())
    found.hostSupportedVgpuRange.minVersion, found.hostSupportedVgpuRange.maxVersion = 0x10001, 0x160001
    return found


def _scheduler(device: FakeNvmlDevice) -> Any:
    _hosted(device)
    policy = SCHEDULERS.get(device.simulated.vgpu_scheduler, pynvml.NVML_VGPU_SCHEDULER_POLICY_UNKNOWN)
    return pynvml.c_nvmlVgpuSchedulerGetState_t(schedulerPolicy=policy)


HOST_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetSupportedVgpus": lambda device: [found.number for found in types_of(device)],
    "nvmlDeviceGetCreatableVgpus": _creatable,
    "nvmlDeviceGetActiveVgpus": lambda device: [vgpu.instance for vgpu in _hosted(device)],
    "nvmlDeviceGetVgpuMetadata": _device_metadata,
    "nvmlDeviceGetVgpuUtilization": _utilisation,
    "nvmlDeviceGetVgpuProcessUtilization": _process_utilisation,
    "nvmlDeviceGetGridLicensableFeatures": _features,
    "nvmlDeviceGetVgpuSchedulerState": _scheduler,
    "nvmlVgpuTypeGetMaxInstances": _types_max,
}
"""For each NVML function, the answer about a ``FakeNvmlDevice``."""


def _of_series(attribute: str) -> Answer:
    return lambda _device, found, *_: getattr(series_of(found), attribute)


TYPE_ANSWERS: dict[str, Answer] = {
    "nvmlVgpuTypeGetClass": _of_series("vgpu_class"),
    "nvmlVgpuTypeGetName": lambda _device, found: found.name,
    "nvmlVgpuTypeGetDeviceID": lambda _device, _found: (0x2235 << 16 | NVIDIA_VENDOR, 0x14A0 << 16 | NVIDIA_VENDOR),
    "nvmlVgpuTypeGetFramebufferSize": lambda _device, found: found.framebuffer_mib * MIB,
    "nvmlVgpuTypeGetNumDisplayHeads": _of_series("displays"),
    "nvmlVgpuTypeGetResolution": lambda _device, found: (series_of(found).width, series_of(found).height),
    "nvmlVgpuTypeGetLicense": _of_series("licences"),
    "nvmlVgpuTypeGetFrameRateLimit": _of_series("fps"),
    "nvmlVgpuTypeGetGpuInstanceProfileId": profile_id_of,
    "nvmlVgpuTypeGetCapabilities": lambda _device, _found, capability: int(
        capability == pynvml.NVML_VGPU_CAP_GPUDIRECT
    ),
}
"""For each NVML function, the answer about a ``VgpuTypeEntry`` on a ``FakeNvmlDevice``."""


def _vm_id(_device: FakeNvmlDevice, vgpu: FakeVgpu) -> tuple[bytes, int]:
    # pynvml does not decode this string, because it is part of a pair.
    vm_id = vgpu.simulated.vm_id
    is_uuid = vm_id.count("-") == UUID_DASHES
    return vm_id.encode(), int(pynvml.NVML_VGPU_VM_ID_UUID if is_uuid else pynvml.NVML_VGPU_VM_ID_DOMAIN_ID)


def _captures(_device: FakeNvmlDevice, vgpu: FakeVgpu) -> list[Any]:
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


def _capture_stats(_device: FakeNvmlDevice, vgpu: FakeVgpu) -> Any:
    count, fps, latency_us = encoder_stats(vgpu.captures)
    return pynvml.c_nvmlFBCStats_t(sessionsCount=count, averageFPS=fps, averageLatency=latency_us)


def _frame_rate_limit(_device: FakeNvmlDevice, vgpu: FakeVgpu) -> int:
    limit = vgpu.simulated.frame_rate_limit
    return FRAME_RATE_LIMIT_FPS if limit is None else limit


ACCOUNTED_MAX = 4000
"""The number of processes that accounting remembers for each vGPU."""


def _accounting_pids(_device: FakeNvmlDevice, vgpu: FakeVgpu) -> tuple[Any, Any]:
    pids = [process.pid for process in vgpu.processes] if vgpu.accounting else []
    # The binding allocates as many entries as NVML announces.
    return ctypes.c_uint(len(pids)), (ctypes.c_uint * ACCOUNTED_MAX)(*pids)


def _accounting_stats(_device: FakeNvmlDevice, vgpu: FakeVgpu, pid: int) -> Any:
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


def _metadata(device: FakeNvmlDevice, vgpu: FakeVgpu) -> Any:
    return pynvml.c_nvmlVgpuMetadata_t(
        version=METADATA_VERSION,
        guestInfoState=int(bool(vgpu.guest_driver)),
        guestDriverVersion=vgpu.guest_driver.encode(),
        hostDriverVersion=device.node.driver.encode(),
    )


INSTANCE_ANSWERS: dict[str, Answer] = {
    "nvmlVgpuInstanceGetVmID": _vm_id,
    "nvmlVgpuInstanceGetUUID": lambda _device, vgpu: vgpu.simulated.uuid,
    "nvmlVgpuInstanceGetMdevUUID": lambda _device, vgpu: vgpu.simulated.uuid,
    "nvmlVgpuInstanceGetVmDriverVersion": lambda _device, vgpu: vgpu.guest_driver or "Not Available",
    "nvmlVgpuInstanceGetFbUsage": lambda _device, vgpu: vgpu.used_bytes,
    "nvmlVgpuInstanceGetFBCStats": _capture_stats,
    "nvmlVgpuInstanceGetFBCSessions": _captures,
    "nvmlVgpuInstanceGetLicenseStatus": lambda _device, vgpu: int(vgpu.licensed),
    "nvmlVgpuInstanceGetType": lambda _device, vgpu: vgpu.simulated.type_id,
    "nvmlVgpuInstanceGetFrameRateLimit": _frame_rate_limit,
    "nvmlVgpuInstanceGetEncoderStats": lambda _device, vgpu: encoder_stats(vgpu.sessions),
    "nvmlVgpuInstanceGetEncoderSessions": lambda _device, vgpu: encoder_sessions(vgpu.sessions, vgpu.instance),
    "nvmlVgpuInstanceGetAccountingMode": lambda _device, vgpu: int(vgpu.accounting),
    "nvmlVgpuInstanceGetAccountingPids": _accounting_pids,
    "nvmlVgpuInstanceGetAccountingStats": _accounting_stats,
    "nvmlVgpuInstanceGetMetadata": _metadata,
    "nvmlVgpuInstanceGetGpuInstanceId": gpu_instance_of,
}
"""For each NVML function, the answer about a ``FakeVgpu`` on a ``FakeNvmlDevice``."""
