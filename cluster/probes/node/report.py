"""The report on one machine: a frozen value that can be sent as JSON."""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from ....errors import InputUnreadable
from ..cuda.choosing import NO_CHOICE, DriverChoice
from ..cuda.pynvvideocodec import PyNvVideoCodecReport
from ..cuda.report import CudaReport
from ..gpus.devices import NvmlReport
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import DeviceReport
from ..report.engines import Direction, Engine, Trial
from ..tegra.module import TegraReport
from ..vgpu.host import VgpuHostReport
from .container import ContainerReport

SCHEMA_VERSION: Final = 4
"""Incremented when fields of the report change; reports of another version are refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The machine, without its devices."""

    name: str
    cores: int
    memory_bytes: int
    kernel: str
    machine: str
    python: str
    packages: dict[str, str]  #: package versions by name; "" if a package is missing
    machine_uuid: str = ""  #: the UUID of a virtual machine, which its host also knows; "" if it cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTrials:
    """The results of the trials on one device."""

    device: str  #: the UUID of the device; without a UUID, CUDA's number
    kind: str  #: devices of one kind share the trials of one device; the others try only one frame each
    trials: tuple[Trial, ...]
    #: the decoding of one frame on this device; None if all trials ran on it, no case works, or there was no time
    smoke: Trial | None = None
    smoke_encode: Trial | None = None  #: the encoding of one frame on this device, if fresh trials were requested
    from_cache: bool = False  #: whether the trials are from an earlier run

    def of(self, engine: Engine) -> tuple[Trial, ...]:
        """Return the trials of one engine."""
        return tuple(trial for trial in self.trials if trial.engine is engine)


@dataclass(frozen=True, slots=True)
class ProbeProblem:
    """A probe that did not finish, and the reason."""

    probe: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The report on one machine."""

    schema: int = SCHEMA_VERSION
    host: HostReport
    nvml: Maybe[NvmlReport]
    cuda: Maybe[CudaReport]  #: the driver that workers load (``driver_choice``) and with which the trials ran
    container: Maybe[ContainerReport]
    pynvvideocodec: Maybe[PyNvVideoCodecReport]
    tegra: Maybe[TegraReport]
    vgpu_hosts: dict[str, VgpuHostReport]  #: reports on GPUs that host vGPUs, by UUID
    software: tuple[Trial, ...]
    devices: tuple[DeviceTrials, ...]
    probe_problems: tuple[ProbeProblem, ...]
    simulated: str  #: the fleet file of a simulated machine; "" for a real machine
    taken_at: str  #: when the report was made, in UTC and ISO 8601
    took_s: float
    driver_choice: DriverChoice = NO_CHOICE

    @property
    def gpus(self) -> tuple[DeviceReport, ...]:
        """The devices that NVML lists."""
        return () if isinstance(self.nvml, Unavailable) else self.nvml.devices

    @property
    def driver(self) -> str:
        """The driver's version; "" if unknown."""
        return "" if isinstance(self.nvml, Unavailable) else known(self.nvml.driver_version, "")

    @property
    def taken_utc(self) -> datetime | None:
        """When the report was taken; None if unknown."""
        return datetime.fromisoformat(self.taken_at) if self.taken_at else None

    @property
    def software_encoders(self) -> str:
        """The names of the software encoders that work: "libx264, libx265"."""
        works = [trial for trial in self.software if trial.works and trial.case.direction is Direction.ENCODE]
        return ", ".join(dict.fromkeys(trial.implementation for trial in works))

    @property
    def trials_by_device(self) -> dict[str, DeviceTrials]:
        """The trials of each device, by ``DeviceTrials.device``."""
        return {each.device: each for each in self.devices}


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node of a cluster that sent no report, and the reason."""

    name: str
    reason: str


_ABSENT_KEYS: Final = {"absence", "reason"}
_ABSENCES: Final = [absence.value for absence in Absence]


@cache
def _adapter() -> TypeAdapter[NodeReport]:
    # Created on first use, because creating it is slow.
    return TypeAdapter(NodeReport)


def to_json(report: NodeReport) -> dict[str, Any]:
    """Return the report as a JSON document: enums by value, tuples as lists."""
    document: dict[str, Any] = _adapter().dump_python(report, mode="json")
    return document


def from_json(document: Any) -> NodeReport:
    """Return the report in a document. Raises InputUnreadable: the document is not a report of this schema version."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA_VERSION:
        message = f"this is not a node report of schema {SCHEMA_VERSION}: its schema is {schema}"
        raise InputUnreadable(message, "Write and read the report with the same version of codecfleet.")
    try:
        return _adapter().validate_python(_with_absences(document))
    except RecursionError:
        message = "this node report is damaged: it is nested too deeply"
    except ValidationError as error:
        first = error.errors()[0]
        message = f"this node report is damaged at {'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise InputUnreadable(message, "Make a new report with codecfleet doctor --json.")


def _with_absences(document: Any) -> Any:
    """Rebuild absences; pydantic would read an absence as a map of strings in a field that allows such maps."""
    if isinstance(document, list):
        return [_with_absences(item) for item in document]
    if not isinstance(document, dict):
        return document
    if document.keys() == _ABSENT_KEYS and document["absence"] in _ABSENCES and isinstance(document["reason"], str):
        return Unavailable(Absence(document["absence"]), document["reason"])
    return {key: _with_absences(value) for key, value in document.items()}


def pack(report: NodeReport) -> bytes:
    """Return the report as bytes."""
    return _adapter().dump_json(report)


def unpack(packed: bytes) -> NodeReport:
    """Return the report that ``pack`` made.

    Raises InputUnreadable: the bytes are not a report of this schema version.
    """
    try:
        document = json.loads(packed)
    except (ValueError, RecursionError):
        document = None
    return from_json(document)
