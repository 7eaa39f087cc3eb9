"""All that probing found out about one machine, as one frozen value that travels as msgpack or JSON."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

import msgpack
from pydantic import TypeAdapter, ValidationError

from ....errors import InputUnreadable
from ..cuda.choosing import NO_CHOICE, DriverChoice
from ..cuda.pynvvideocodec import PyNvVideoCodecReport
from ..cuda.report import CudaReport
from ..gpus.devices import NvmlReport
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import DeviceReport
from ..report.engines import Direction, Trial
from ..tegra.module import TegraReport
from ..vgpu.guest import VgpuGuestReport
from ..vgpu.host import VgpuHostReport
from .container import ContainerReport

SCHEMA_VERSION: Final = 3
"""Counts up with every change of what a report holds; a report of another version is refused, not guessed at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The machine around the devices. ``packages`` maps a package's name to its version, "" where it is missing."""

    name: str
    cores: int
    memory_bytes: int
    shared_memory_free_bytes: int
    kernel: str
    machine: str
    python: str
    packages: dict[str, str]
    machine_uuid: str = ""  # of a virtual machine, as its host knows it; "" where it may not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrials:
    """What one device's engines did.

    ``device`` is its UUID, or CUDA's number where it has none. ``kind`` names those that share a matrix: one of them
    was tried with every case, the others with one (``smoke``, and ``smoke_encode`` where trials were asked for afresh;
    None on the first). ``from_cache`` says that the matrix is an earlier run's.
    """

    device: str
    kind: str
    trials: tuple[Trial, ...]
    smoke: Trial | None = None
    smoke_encode: Trial | None = None
    from_cache: bool = False


@dataclass(frozen=True, slots=True)
class ProbeProblem:
    """A probe that did not come to its end, and why."""

    probe: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """One machine.

    ``vgpu_hosts`` and ``vgpu_guests`` are by the GPU's UUID, and hold only those that are one. ``simulated`` names the
    fleet of a machine that does not exist, "" for a real one. ``taken_at`` is in UTC, ISO 8601. ``cuda`` is the driver
    that workers load by ``driver_choice``, and so are the trials.
    """

    schema: int = SCHEMA_VERSION
    host: HostReport
    nvml: Maybe[NvmlReport]
    cuda: Maybe[CudaReport]
    container: Maybe[ContainerReport]
    pynvvideocodec: Maybe[PyNvVideoCodecReport]
    tegra: Maybe[TegraReport]
    vgpu_hosts: dict[str, VgpuHostReport]
    vgpu_guests: dict[str, VgpuGuestReport]
    software: tuple[Trial, ...]
    devices: tuple[DeviceTrials, ...]
    probe_problems: tuple[ProbeProblem, ...]
    simulated: str
    taken_at: str
    took_s: float
    driver_choice: DriverChoice = NO_CHOICE

    @property
    def gpus(self) -> tuple[DeviceReport, ...]:
        """The devices that NVML shows."""
        return () if isinstance(self.nvml, Unavailable) else self.nvml.devices

    @property
    def driver(self) -> str:
        """The driver's version, "" where it is unknown."""
        return "" if isinstance(self.nvml, Unavailable) else known(self.nvml.driver_version, "")

    @property
    def taken_utc(self) -> datetime | None:
        """When the report was taken, None where it does not say."""
        return datetime.fromisoformat(self.taken_at) if self.taken_at else None

    @property
    def software_encoders(self) -> str:
        """The names of the software encoders that work: "libx264, libx265"."""
        works = (trial for trial in self.software if trial.works and trial.case.direction is Direction.ENCODE)
        return ", ".join(dict.fromkeys(trial.implementation for trial in works))

    @property
    def trials_by_device(self) -> dict[str, DeviceTrials]:
        """What each device's engines did, by its UUID, or its number where it has none."""
        return {each.device: each for each in self.devices}


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A machine of a cluster that gave no report, and why."""

    name: str
    reason: str


_ABSENT_KEYS: Final = {"absence", "reason"}
_ABSENCES: Final = [absence.value for absence in Absence]


@cache
def _adapter() -> TypeAdapter[NodeReport]:
    # Made when first used: it costs more than everything else that a start imports from here.
    return TypeAdapter(NodeReport)


def to_json(report: NodeReport) -> dict[str, Any]:
    """Return the report as a JSON document: enums by value, tuples as lists."""
    document: dict[str, Any] = _adapter().dump_python(report, mode="json")
    return document


def from_json(document: Any) -> NodeReport:
    """Return the report that a document holds.

    Raises:
        InputUnreadable: it is not a report of this schema version.
    """
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA_VERSION:
        message = f"this is not a node report of schema {SCHEMA_VERSION}: its schema is {schema}"
        raise InputUnreadable(message, "Write and read it with the same version of codecfleet.")
    try:
        return _adapter().validate_python(_with_absences(document))
    except RecursionError:
        message = "this node report is nested deeper than any report is"
        raise InputUnreadable(message, "Take it again with codecfleet doctor --json.") from None
    except ValidationError as error:
        first = error.errors()[0]
        message = f"this node report is damaged at {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise InputUnreadable(message, "Take it again with codecfleet doctor --json.") from None


def _with_absences(document: Any) -> Any:
    """Rebuild what is absent first: in a field that may hold any text by name, it would pass for such a map."""
    if isinstance(document, list):
        return [_with_absences(item) for item in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == _ABSENT_KEYS and document["absence"] in _ABSENCES and isinstance(document["reason"], str):
        return Unavailable(Absence(document["absence"]), document["reason"])
    return {key: _with_absences(value) for key, value in document.items()}


def pack(report: NodeReport) -> bytes:
    """Return the report as msgpack."""
    packed: bytes = msgpack.packb(to_json(report))
    return packed


def unpack(packed: bytes) -> NodeReport:
    """Return the report that ``pack`` made.

    Raises:
        InputUnreadable: it is not a report of this schema version.
    """
    try:
        document = msgpack.unpackb(packed, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        document = None
    return from_json(document)
