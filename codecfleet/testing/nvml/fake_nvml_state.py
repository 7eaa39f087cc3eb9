"""The state of a fake NVML device, which a test may change while it runs."""

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn

import pynvml

from ...cluster.probes.report import CodecSession, DeviceProcess, Engine
from ...cluster.simulated.devices import SimulatedDevice, SimulatedNode, SimulatedSlice, SimulatedVgpu

Answer = Callable[..., Any]
"""Answers calls of one NVML function. It takes what the call is about (a device, a slice, or a device and its vGPU or
vGPU type) and the call's other arguments.
"""

ARCHITECTURE_NUMBERS = {
    "kepler": 2,
    "maxwell": 3,
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ga100": 7,
    "ga10x": 7,
    "orin": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
    "thor": 10,
    "rubin": 13,
}


def refuse(code: int) -> NoReturn:
    """Raise the exception that pynvml has for a return code."""
    raise pynvml.NVMLError(code)


def address_of(pointer: Any) -> int:
    """Return the address in a pynvml handle."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def engine_counts(engines: Mapping[Engine, int], *, shared: bool) -> dict[str, int]:
    """Return counts of engines under the names of NVML's structures."""
    kinds = {"Decoder": Engine.NVDEC, "Encoder": Engine.NVENC, "Jpeg": Engine.NVJPG, "Ofa": Engine.OFA}
    counts = {f"{name}Count": engines.get(engine, 0) for name, engine in kinds.items()}
    return {f"shared{name}" if shared else name[0].lower() + name[1:]: count for name, count in counts.items()}


@dataclass(slots=True)
class FakeFbcSession:
    """A frame buffer capture session in the virtual machine of a vGPU, in NVML's units."""

    session: int
    pid: int
    width: int = 1920
    height: int = 1080
    fps: int = 60
    latency_us: int = 900


@dataclass(slots=True)
class FakeVgpu:
    """A vGPU that runs on a host's device. A test may set everything but ``simulated``."""

    simulated: SimulatedVgpu
    used_bytes: int = 0
    guest_driver: str = ""
    sm_percent: int = 0
    memory_percent: int = 0
    encoder_percent: int = 0
    decoder_percent: int = 0
    sessions: list[CodecSession] = field(default_factory=list)
    captures: list[FakeFbcSession] = field(default_factory=list)
    processes: list[DeviceProcess] = field(default_factory=list)
    accounting: bool = False
    licensed: bool = True

    @property
    def instance(self) -> int:
        """The number of the vGPU, which NVML's functions take as an argument."""
        return self.simulated.instance


@dataclass(slots=True)
class FakeSlice:
    """A MIG device; ``gpm_percent`` is the use of each engine, by the engine's name."""

    simulated: SimulatedSlice
    device: "FakeNvmlDevice"
    used_bytes: int = 0
    gpm_percent: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FakeGpuInstance:
    """A GPU instance of MIG, whose compute instances are MIG devices."""

    device: "FakeNvmlDevice"
    number: int
    slices: tuple[FakeSlice, ...]


@dataclass(slots=True)
class FakeNvmlDevice:
    """A device and its use. A running test may set everything but the first three fields."""

    simulated: SimulatedDevice
    node: SimulatedNode
    index: int
    gpu_percent: int = 0
    memory_percent: int = 0
    encoder_percent: int = 0
    decoder_percent: int = 0
    used_bytes: int = 0
    processes: list[DeviceProcess] = field(default_factory=list)
    sessions: list[CodecSession] = field(default_factory=list)
    ecc_uncorrected: int = 0
    recovery_action: int = 0
    remapping_pending: int = 0
    clock_reasons: int = int(pynvml.nvmlClocksEventReasonGpuIdle)
    lost_code: int = 0
    licensed: bool | None = None
    licence_expires: datetime | None = None
    faults: dict[str, int] = field(default_factory=dict)
    slices: list[FakeSlice] = field(default_factory=list)
    vgpus: list[FakeVgpu] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)
    """Events that were not fetched yet, as pairs of NVML type and data."""

    @classmethod
    def of(cls, simulated: SimulatedDevice, node: SimulatedNode, index: int) -> "FakeNvmlDevice":
        """Return a device in the state that ``simulated`` describes, with its slices, vGPUs and pending Xid errors."""
        device = cls(simulated, node, index, faults=dict(simulated.faults))
        device.licensed, device.licence_expires = simulated.licensed, simulated.licence_expires
        device.slices = [FakeSlice(piece, device) for piece in simulated.slices]
        device.vgpus = [FakeVgpu(vgpu, guest_driver=node.driver, licensed=vgpu.licensed) for vgpu in simulated.vgpus]
        device.events = [(int(pynvml.nvmlEventTypeXidCriticalError), xid) for xid in simulated.xids]
        return device

    @property
    def gpu_instances(self) -> tuple[FakeGpuInstance, ...]:
        """The GPU instances of the device, by number."""
        numbers = sorted({piece.simulated.gpu_instance for piece in self.slices})
        return tuple(
            FakeGpuInstance(self, number, tuple(each for each in self.slices if each.simulated.gpu_instance == number))
            for number in numbers
        )

    @property
    def is_guest(self) -> bool:
        """Whether the device is a vGPU, as the guest sees it."""
        return self.simulated.kind.is_guest or self.simulated.virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU

    @property
    def is_host(self) -> bool:
        """Whether the device can host vGPUs."""
        return bool(self.simulated.virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU)

    @property
    def is_geforce(self) -> bool:
        """Whether the device is a consumer GPU, which reports less than other GPUs."""
        return "geforce" in self.simulated.name.lower()

    @property
    def is_igpu(self) -> bool:
        """Whether the device is part of a Tegra SoC."""
        return self.simulated.kind.is_integrated

    @property
    def architecture(self) -> int:
        """NVML's number for the architecture of the device."""
        unknown = int(pynvml.NVML_DEVICE_ARCH_UNKNOWN)
        return ARCHITECTURE_NUMBERS.get(self.simulated.architecture.lower(), unknown)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability of the device."""
        major, _, minor = self.simulated.compute_capability.partition(".")
        return int(major or 0), int(minor or 0)
