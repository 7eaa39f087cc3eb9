"""Simulated fleets: TOML files that describe machines that are not at hand, resolved to the last number.

``configs/fleets/README.md`` lists every key. What a file leaves out comes from ``configs/hardware.toml`` by the
model's name. The same files feed ``codecfleet plan --fleet``, the tests, and the fakes of NVML.
"""

from collections.abc import Iterator
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, Field

from ...errors import UsageError
from ..probes.gpus.hardware import MIB, GpuModel, Hardware, load_hardware
from ..probes.report.device_report import DeviceKind
from ..probes.report.engines import Engine, Trial
from ..toml_file import load_model
from .devices import SimulatedDevice, SimulatedFleet, SimulatedNode
from .fleet_parts import Gibibytes, Parts, Strict, VgpuEntry, made_uuid

GIB = 1 << 30
_HELP = "configs/fleets/README.md lists the keys of a fleet file."
_FOLDER = "fleets"

Count = Annotated[int, Field(ge=1, le=10_000)]


class Virtualization(StrEnum):
    """NVML's GPU virtualization modes."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    GUEST = "guest"
    HOST = "host"

    @property
    def number(self) -> int:
        """Return NVML's own number of the mode."""
        return list(Virtualization).index(self)


class DeviceEntry(Strict):
    """``count`` GPUs of one model."""

    model: str
    count: Count = 1
    name: str = ""
    engines: dict[Engine, Annotated[int, Field(ge=0)]] | None = None
    memory_gib: Gibibytes | None = None
    video_clock_mhz: Annotated[int, Field(gt=0)] | None = None
    mig: tuple[str | tuple[str, ...], ...] | None = None
    virtualization: Virtualization = Virtualization.NONE
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    licensed: bool | None = None
    licence_expires: AwareDatetime | None = None
    vgpus: tuple[VgpuEntry, ...] = ()
    vgpu_scheduler: str = "best effort"
    encoder_sessions_max: Annotated[int, Field(ge=0)] | None = None
    faults: dict[str, int] = Field(default_factory=dict)
    xids: tuple[int, ...] = ()


class NodeEntry(Strict):
    """``count`` machines that are alike; ``{n}`` in the name is counted from ``first``."""

    name: str
    count: Count = 1
    first: int = 1
    cores: Annotated[int, Field(ge=1)]
    memory_gib: Gibibytes
    processor: str = "processor"
    speed: Annotated[float, Field(gt=0)] = 1.0
    driver: str = ""
    preemptible: bool = False
    cordoned: str = ""
    tegra: str = ""
    devices: tuple[DeviceEntry, ...] = ()


class FleetDocument(Strict):
    """A whole file."""

    schema_version: Annotated[int, Field(alias="schema", ge=1, le=1)]
    name: str
    description: str
    source: str
    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]


def built_in_fleets() -> dict[str, Path]:
    """Return the fleets that come with the package, by name."""
    folder = Path(str(files(f"{__name__.split('.')[0]}.configs").joinpath(_FOLDER)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_fleet(path: str | Path, hardware: Hardware | None = None) -> SimulatedFleet:
    """Return the fleet that a file describes; ``path`` may also be the name of one that comes with the package.

    Raises:
        UsageError: the file cannot be read, is not TOML, has a key or value that makes no sense, or names a model or
            MIG profile that ``configs/hardware.toml`` does not have.
    """
    built_in = built_in_fleets()
    place = built_in[str(path)] if str(path) in built_in and not Path(path).is_file() else Path(path)
    missing = f"Give a file, or one of {', '.join(built_in)}."
    document = load_model("fleet", place, FleetDocument, missing=missing, wrong=_HELP)
    resolver = _Resolver(str(path), document.name, hardware or load_hardware())
    nodes = tuple(node for entry in document.nodes for node in resolver.nodes(entry))
    names = [node.name for node in nodes]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        message = f"the fleet {path}: two nodes are called {twice}"
        raise UsageError(message, "Put {n} into the name of nodes that are counted.")
    return SimulatedFleet(name=document.name, description=document.description, source=document.source, nodes=nodes)


class _Resolver:
    """Fills in what a file leaves out. Devices of a kind share one tuple of trials."""

    def __init__(self, path: str, fleet: str, hardware: Hardware) -> None:
        self._path = path
        self._fleet = fleet
        self._hardware = hardware
        self._trials: dict[object, tuple[Trial, ...]] = {}

    def nodes(self, entry: NodeEntry) -> Iterator[SimulatedNode]:
        for number in range(entry.first, entry.first + entry.count):
            name = entry.name.replace("{n}", str(number))
            gpus = [device for each in entry.devices for device in [each] * each.count]
            devices = [self._device(gpu, name, index, entry.tegra) for index, gpu in enumerate(gpus)]
            yield SimulatedNode(
                name=name,
                cores=entry.cores,
                memory_bytes=int(entry.memory_gib * GIB),
                driver=entry.driver,
                devices=(*devices, _processor(entry, name)),
                preemptible=entry.preemptible,
                cordoned=entry.cordoned,
                tegra=entry.tegra,
                speed=entry.speed,
            )

    def _device(self, entry: DeviceEntry, node: str, index: int, tegra: str) -> SimulatedDevice:
        model = self._hardware.gpus.get(entry.model)
        if model is None:
            message = f"the fleet {self._path}: no GPU model is called {entry.model}"
            raise UsageError(message, f"Known are {', '.join(self._hardware.gpus)}.")
        engines = {**model.engines, **(entry.engines or {})}
        guest = entry.virtualization is Virtualization.GUEST
        uuid = made_uuid("GPU", self._fleet, node, index)
        architecture = self._hardware.architectures[model.architecture]
        parts = self._parts_of(entry, model, uuid)
        clock = entry.video_clock_mhz or model.video_clock_mhz
        return SimulatedDevice(
            kind=DeviceKind.VGPU if guest else DeviceKind.IGPU if model.igpu or tegra else DeviceKind.GPU,
            uuid=uuid,
            name=entry.name or model.names[0],
            architecture=architecture.nvml,
            compute_capability=architecture.compute_capability,
            pci_bus_id=f"00000000:{index + 1:02X}:00.0",
            memory_bytes=model.memory_mib * MIB if entry.memory_gib is None else int(entry.memory_gib * GIB),
            max_video_clock_mhz=None if guest else clock,
            engines=engines,
            trials=self._trials_of(entry.name or model.names[0], model, engines),
            mig_enabled=entry.mig is not None,
            mig_capable=bool(model.mig),
            slices=parts.slices(entry.mig or ()),
            virtualization=entry.virtualization.number,
            vgpus=parts.vgpus(entry.vgpus),
            vgpu_scheduler=entry.vgpu_scheduler,
            share=entry.share,
            licensed=guest if entry.licensed is None and guest else entry.licensed,
            licence_expires=entry.licence_expires,
            encoder_sessions_max=entry.encoder_sessions_max,
            faults=entry.faults,
            xids=entry.xids,
        )

    def _parts_of(self, entry: DeviceEntry, model: GpuModel, uuid: str) -> Parts:
        name = entry.name or model.names[0]
        return Parts(
            where=f"the fleet {self._path}: {entry.model}",
            uuid=uuid,
            memory_mib=model.memory_mib,
            profiles=self._hardware.mig.get(model.mig, {}),
            vgpu_types={
                found.name: found for found in self._hardware.vgpu_types_of(name, mig_enabled=entry.mig is not None)
            },
        )

    def _trials_of(self, name: str, model: GpuModel, engines: dict[Engine, int]) -> tuple[Trial, ...]:
        key = (name, tuple(sorted((engine.value, count) for engine, count in engines.items())))
        if key not in self._trials:
            self._trials[key] = self._hardware.trials_of(name, model, engines)
        return self._trials[key]


def _processor(entry: NodeEntry, node: str) -> SimulatedDevice:
    return SimulatedDevice(
        kind=DeviceKind.CPU,
        uuid=f"{node}/cpu",
        name=entry.processor,
        architecture="",
        compute_capability="",
        pci_bus_id="",
        memory_bytes=int(entry.memory_gib * GIB),
        max_video_clock_mhz=None,
        engines={Engine.CPU: entry.cores},
    )
