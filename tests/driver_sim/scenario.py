"""Writes the scenario file that the simulated driver reads: a machine of a fleet file, and its faults.

``scenario.h`` describes how the libraries use the file. Every device's name ends in "(simulated)".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import Direction, Engine, Trial
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.nvml.fake_nvml_mig import placements_of, profiles_of
from codecfleet.testing.nvml.fake_nvml_state import FakeNvmlDevice
from codecfleet.testing.nvml.fake_nvml_vgpu import gpu_instance_of, profile_id_of, series_of, types_of

__all__ = ["SIMULATED", "Action", "Fault", "Scenario", "machine"]

SIMULATED = " (simulated)"
DEFAULT_DRIVER = "580.126.20"
_ENGINES = (Engine.NVDEC, Engine.NVENC, Engine.NVJPG, Engine.OFA, Engine.DLA)
_CUDA_OF_BRANCH = {
    615: 13040,
    610: 13030,
    595: 13020,
    590: 13010,
    580: 13000,
    575: 12090,
    570: 12080,
    565: 12070,
    560: 12060,
    555: 12050,
    550: 12040,
    545: 12030,
    535: 12020,
    530: 12010,
    525: 12000,
}


class Action(Enum):
    """The effect of a fault on the call that it hits."""

    STATUS = "status"  #: the call returns ``value``, a status of its own library
    HANG = "hang"  #: it never returns
    EXIT = "exit"  #: the process ends with the exit code ``value``
    LOSE = "lose"  #: the device is lost: this and all later calls on the device fail with that error
    BREAK = "break"  #: CUDA is broken for its process: this and all later calls in the process fail with that error
    XID = "xid"  #: NVML reports the Xid event ``value``, and the call continues
    SHORT = "short"  #: NVENC cuts the bitstream short, NVDEC leaves the picture out
    CORRUPT = "corrupt"  #: NVDEC decodes the picture with an error
    SLOW = "slow"  #: the call takes ``value`` milliseconds longer
    ANSWER = "answer"  #: an NVML query for one number, or for several with this number first, returns ``value``


_WITH_VALUE = frozenset({Action.STATUS, Action.EXIT, Action.XID, Action.SLOW, Action.ANSWER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: ``action`` hits the ``call``-th call of ``function`` on ``device``.

    ``device`` is NVML's index in the scenario, whatever is visible to CUDA; None means any device. Each fault counts
    calls from 1; None means every call, and ``onwards`` includes all later calls. ``function`` is the C name without
    its version ("cuMemAlloc", "cuvidDecodePicture", "NvEncEncodePicture", "nvmlDeviceGetUUID", "cudlaSubmitTask"); or
    "cuvidDecodePicture@320x176", for pictures of that size only.
    """

    function: str
    action: Action
    value: int | None = None
    device: int | None = None
    call: int | None = None
    onwards: bool = False

    def __post_init__(self) -> None:
        if (self.value is not None) is not (self.action in _WITH_VALUE):
            message = f"a fault that does {self.action.value!r} takes {'a' if self.value is None else 'no'} value"
            raise ValueError(message)

    @property
    def line(self) -> str:
        """The line of the scenario file."""
        device = "*" if self.device is None else str(self.device)
        calls = "*" if self.call is None else f"{self.call}+" if self.onwards else str(self.call)
        value = "" if self.value is None else f" {self.value}"
        return f"fault {self.function} {device} {calls} {self.action.value}{value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A machine, its driver, its faults, and how long its engines take for a picture (0: as long as software takes).

    If ``driver`` or ``cuda_version`` (13000 is 13.0) is left out, it comes from the machine.
    """

    machine: SimulatedNode
    faults: tuple[Fault, ...] = ()
    driver: str = ""
    cuda_version: int = 0
    decode_picture_us: int = 0
    encode_picture_us: int = 0

    def text(self) -> str:
        """Return the scenario file."""
        return "\n".join((*self._lines(), ""))

    def write(self, path: Path) -> None:
        """Write the scenario file."""
        path.write_text(self.text(), encoding="utf-8")

    def _lines(self) -> Iterator[str]:
        driver = self.driver or self.machine.driver or DEFAULT_DRIVER
        yield f"node {self.machine.name}"
        yield f"driver {driver}"
        yield f"cuda_version {self.cuda_version or _cuda_of(driver)}"
        if self.machine.tegra:
            yield f"tegra {self.machine.tegra}"
        gpus = [device for device in self.machine.devices if device.kind is not DeviceKind.CPU]
        for index, device in enumerate(gpus):
            yield f"device {index}"
            yield from _device_lines(FakeNvmlDevice.of(device, self.machine, index))
            yield f"decode_picture_us {self.decode_picture_us}"
            yield f"encode_picture_us {self.encode_picture_us}"
        for index, device in enumerate(gpus):
            for function, code in device.faults.items():
                yield Fault(function=function, action=Action.STATUS, value=code, device=index).line
        yield from (fault.line for fault in self.faults)


def machine(fleet: str | Path, name: str = "") -> SimulatedNode:
    """Return a machine of a fleet file: the one with this name, or the first.

    Raises:
        UsageError: there is no such fleet, or it cannot be read.
        LookupError: the fleet has no machine with this name.
    """
    nodes = load_fleet(fleet).nodes
    found = next((node for node in nodes if name in ("", node.name)), None)
    if found is None:
        message = f"the fleet {fleet} has no machine {name}"
        raise LookupError(message)
    return found


def _cuda_of(driver: str) -> int:
    branch = int(driver.split(".", maxsplit=1)[0])
    return next(version for least, version in sorted(_CUDA_OF_BRANCH.items(), reverse=True) if branch >= least)


def _device_lines(fake: FakeNvmlDevice) -> Iterator[str]:
    device = fake.simulated
    yield f"name {device.name.removesuffix(SIMULATED)}{SIMULATED}"
    yield f"uuid {device.uuid}"
    yield f"pci_bus_id {device.pci_bus_id}"
    yield f"architecture {device.architecture}"
    yield f"compute_capability {device.compute_capability}"
    yield f"memory_bytes {device.memory_bytes}"
    if device.max_video_clock_mhz is not None:
        yield f"video_clock_max_mhz {device.max_video_clock_mhz}"
    yield f"engines {_counts(device.engines)}"
    yield f"integrated {int(device.kind is DeviceKind.IGPU)}"
    yield f"mig_enabled {int(device.mig_enabled)}"
    yield f"mig_capable {int(device.mig_capable)}"
    yield f"virtualization {device.virtualization}"
    yield f"vgpu_scheduler {device.vgpu_scheduler}"
    if device.encoder_sessions_max is not None:
        yield f"encoder_sessions_max {device.encoder_sessions_max}"
    if device.licensed is not None:
        yield f"licensed {int(device.licensed)}"
    if device.licence_expires is not None:
        yield f"licence_expires {_moment(device.licence_expires)}"
    yield from (_capability_line(trial) for trial in device.trials if trial.works)
    yield from _mig_lines(fake)
    yield from _vgpu_lines(fake)
    yield from (f"xid {xid}" for xid in device.xids)


def _counts(engines: Mapping[Engine, int]) -> str:
    return " ".join(str(engines.get(engine, 0)) for engine in _ENGINES)


def _capability_line(trial: Trial) -> str:
    case = trial.case
    direction = "encode" if case.direction is Direction.ENCODE else "decode"
    size = f"{trial.max_width or 0} {trial.max_height or 0}"
    return f"capability {direction} {case.codec.value} {case.chroma.replace(':', '')} {case.bit_depth} {size}"


def _mig_lines(fake: FakeNvmlDevice) -> Iterator[str]:
    slices = fake.simulated.slices
    profiles = profiles_of(fake)
    for each in profiles:
        places = f"{each.size} {len(each.starts)} {' '.join(map(str, each.starts))}"
        numbers = f"{each.kind} {each.profile_id} {each.slices} {each.most} {each.memory_bytes} {places}"
        yield f"profile {each.name} {numbers} {_counts(each.engines)}"
    lain = placements_of(profiles, slices)
    for part in slices:
        start, size = lain[part.gpu_instance]
        compute = f"{part.compute_instance} {part.compute_slices or part.gpu_slices}"
        numbers = f"{part.gpu_instance} {compute} {start} {size} {part.memory_bytes}"
        yield f"slice {part.uuid} {part.profile} {part.name} {numbers} {_counts(part.engines)}"


def _vgpu_lines(fake: FakeNvmlDevice) -> Iterator[str]:
    for each in types_of(fake) if fake.is_host else ():
        series = series_of(each)
        shown = f"{series.displays} {series.width} {series.height} {series.fps} {profile_id_of(fake, each)}"
        words = f"{series.vgpu_class} {series.licences} {each.name}"
        yield f"supported_vgpu {each.number} {each.most} {each.framebuffer_mib << 20} {shown} {words}"
    for running in fake.vgpus:
        vgpu = running.simulated
        limit = -1 if vgpu.frame_rate_limit is None else vgpu.frame_rate_limit
        numbers = f"{vgpu.instance} {vgpu.type_id} {vgpu.framebuffer_bytes} {int(vgpu.licensed)} {limit}"
        yield f"vgpu {numbers} {gpu_instance_of(fake, running)} {vgpu.uuid}"
        yield f"vgpu_vm {vgpu.vm_id}"
        yield f"vgpu_type {vgpu.type_name}"
        if vgpu.licence_expires is not None:
            yield f"vgpu_expires {_moment(vgpu.licence_expires)}"


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
