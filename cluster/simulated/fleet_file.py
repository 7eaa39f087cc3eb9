"""Reads simulated fleets from TOML files, whose keys are listed in ``configs/fleets/README.md``.

Values that a file leaves out come from the GPU's model in ``configs/hardware.toml``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ...errors import UsageError
from ..probes.gpus.hardware import MIB, GpuModel, Hardware, MigProfileFacts, VgpuTypeEntry, load_hardware
from ..probes.report.device_kinds import DeviceKind
from ..probes.report.engines import Engine, Trial
from ..toml_file import load_model
from .devices import SimulatedDevice, SimulatedFleet, SimulatedNode, SimulatedSlice, SimulatedVgpu

GIB = 1 << 30
_HELP = "configs/fleets/README.md lists the keys of a fleet file."

Count = Annotated[int, Field(ge=1, le=10_000)]
Gibibytes = Annotated[float, Field(gt=0, le=1_000_000)]


class Strict(BaseModel):
    """A table of a fleet file, in which unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Virtualization(StrEnum):
    """NVML's GPU virtualization modes, in the order of their numbers in NVML."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    GUEST = "guest"
    HOST = "host"


class VgpuEntry(Strict):
    """A vGPU on the GPU of a host.

    A type that ``configs/hardware.toml`` does not have needs an id and a frame buffer size.
    """

    instance: Annotated[int, Field(ge=0)]
    type_name: str
    type_id: int | None = None
    framebuffer_gib: Gibibytes | None = None
    vm: str
    licensed: bool = True
    licence_expires: AwareDatetime | None = None
    frame_rate_limit: int | None = None


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


class MachineEntry(Strict):
    """A machine, as a fleet file or an autoscaling file describes it."""

    cores: Annotated[int, Field(ge=1)]
    memory_gib: Gibibytes
    processor: str = "processor"
    speed: Annotated[float, Field(gt=0)] = 1.0
    driver: str = ""
    preemptible: bool = False
    tegra: str = ""
    devices: tuple[DeviceEntry, ...] = ()


class NodeEntry(MachineEntry):
    """``count`` equal machines; ``{n}`` in the name becomes each machine's number, from ``first`` on."""

    name: str
    count: Count = 1
    first: int = 1
    cordoned: str = ""


class FleetDocument(Strict):
    """A whole fleet file."""

    schema_version: Annotated[int, Field(alias="schema", ge=1, le=1)]
    name: str
    description: str
    source: str
    nodes: Annotated[tuple[NodeEntry, ...], Field(min_length=1)]


def built_in_fleets() -> dict[str, Path]:
    """Return the paths of the package's fleet files, by the names of the fleets."""
    folder = Path(str(files(f"{__name__.split('.')[0]}.configs").joinpath("fleets")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_fleet(path: str | Path) -> SimulatedFleet:
    """Return the fleet in a file, or the package's fleet of this name.

    Raises UsageError: the file cannot be read, is not TOML, or has an unknown key, value, model or MIG profile.
    """
    built_in = built_in_fleets()
    place = built_in[str(path)] if str(path) in built_in and not Path(path).is_file() else Path(path)
    missing = f"Give a file, or one of {', '.join(built_in)}."
    document = load_model("fleet", place, FleetDocument, missing=missing, wrong=_HELP)
    resolver = _Resolver(f"the fleet {path}", document.name, load_hardware())
    nodes = tuple(node for entry in document.nodes for node in resolver.nodes(entry))
    name, count = Counter(node.name for node in nodes).most_common(1)[0]
    if count > 1:
        message = f"the fleet {path}: two nodes are called {name}"
        raise UsageError(message, "Put {n} into the name of an entry that has a count.")
    return SimulatedFleet(name=document.name, description=document.description, source=document.source, nodes=nodes)


def resolved_machine(name: str, machine: MachineEntry, *, where: str, hardware: Hardware) -> SimulatedNode:
    """Return a machine with its missing values filled in; error messages begin with ``where``.

    Raises UsageError if ``hardware`` lacks the machine's model or MIG profile.
    """
    fields = machine.model_dump(include=set(MachineEntry.model_fields))
    return next(_Resolver(where, name, hardware).nodes(NodeEntry.model_validate({"name": name, **fields})))


class _Resolver:
    """Fills in the missing values of a file. Equal devices share one tuple of trials."""

    def __init__(self, where: str, fleet: str, hardware: Hardware) -> None:
        self._where = where
        self._fleet = fleet
        self._hardware = hardware
        self._trials: dict[object, tuple[Trial, ...]] = {}

    def nodes(self, entry: NodeEntry) -> Iterator[SimulatedNode]:
        memory_bytes = int(entry.memory_gib * GIB)
        same = entry.model_dump(include={"cores", "driver", "preemptible", "cordoned", "tegra", "speed"})
        gpus = [device for each in entry.devices for device in [each] * each.count]
        for number in range(entry.first, entry.first + entry.count):
            name = entry.name.replace("{n}", str(number))
            devices = [self._device(gpu, name, index, entry.tegra) for index, gpu in enumerate(gpus)]
            processor = SimulatedDevice(
                kind=DeviceKind.CPU,
                uuid=f"{name}/cpu",
                name=entry.processor,
                memory_bytes=memory_bytes,
                engines={Engine.CPU: entry.cores},
            )
            yield SimulatedNode(name=name, memory_bytes=memory_bytes, devices=(*devices, processor), **same)

    def _device(self, entry: DeviceEntry, node: str, index: int, tegra: str) -> SimulatedDevice:
        model = self._hardware.gpus.get(entry.model)
        if model is None:
            message = f"{self._where}: no GPU model is called {entry.model}"
            raise UsageError(message, f"Use one of {', '.join(self._hardware.gpus)}.")
        name = entry.name or model.names[0]
        engines = {**model.engines, **(entry.engines or {})}
        guest = entry.virtualization is Virtualization.GUEST
        uuid = _made_uuid("GPU", self._fleet, node, index)
        architecture = self._hardware.architectures[model.architecture]
        vgpu_types = self._hardware.vgpu_types_of(name, mig_enabled=entry.mig is not None)
        parts = _Parts(
            where=f"{self._where}: {entry.model}",
            uuid=uuid,
            memory_mib=model.memory_mib,
            profiles=self._hardware.mig.get(model.mig, {}),
            vgpu_types={found.name: found for found in vgpu_types},
        )
        return SimulatedDevice(
            kind=DeviceKind.VGPU if guest else DeviceKind.IGPU if model.igpu or tegra else DeviceKind.GPU,
            uuid=uuid,
            name=name,
            architecture=architecture.nvml,
            compute_capability=architecture.compute_capability,
            pci_bus_id=f"00000000:{index + 1:02X}:00.0",
            memory_bytes=model.memory_mib * MIB if entry.memory_gib is None else int(entry.memory_gib * GIB),
            max_video_clock_mhz=None if guest else entry.video_clock_mhz or model.video_clock_mhz,
            engines=engines,
            trials=self._trials_of(name, model, engines),
            mig_enabled=entry.mig is not None,
            mig_capable=bool(model.mig),
            slices=parts.slices(entry.mig or ()),
            virtualization=list(Virtualization).index(entry.virtualization),
            vgpus=parts.vgpus(entry.vgpus),
            licensed=guest if entry.licensed is None and guest else entry.licensed,
            **entry.model_dump(
                include={"vgpu_scheduler", "share", "licence_expires", "encoder_sessions_max", "faults", "xids"}
            ),
        )

    def _trials_of(self, name: str, model: GpuModel, engines: dict[Engine, int]) -> tuple[Trial, ...]:
        key = (name, frozenset(engines.items()))
        if key not in self._trials:
            self._trials[key] = self._hardware.trials_of(name, model, engines)
        return self._trials[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Resolves the parts of one GPU; error messages begin with ``where``, the file and the model."""

    where: str
    uuid: str
    memory_mib: int
    profiles: Mapping[str, MigProfileFacts]
    vgpu_types: Mapping[str, VgpuTypeEntry]

    def slices(self, instances: Iterable[str | tuple[str, ...]]) -> tuple[SimulatedSlice, ...]:
        """Return the MIG devices of GPU instances.

        An instance is described by a profile, or by the names of its compute instances.
        """
        named = [(each,) if isinstance(each, str) else each for each in instances]
        shares = [[_compute_instance(name) for name in names] for names in named]
        for names in shares:
            if len({profile for profile, _ in names}) != 1:
                self._refuse("has a GPU instance whose compute instances name several profiles, or none")
        self._check([names[0][0] for names in shares])
        return tuple(part for number, names in enumerate(shares) for part in self._instance(number, names))

    def _check(self, taken: list[str]) -> None:
        for profile in taken:
            if profile not in self.profiles:
                self._refuse(f"has no MIG profile {profile}", f"It has {', '.join(self.profiles) or 'none'}.")
            most = self.profiles[profile].most
            if taken.count(profile) > most:
                self._refuse(f"has room for at most {most} of {profile}")
        slices, whole = sum(map(_gpu_slices, taken)), max(map(_gpu_slices, self.profiles), default=0)
        if slices > whole:
            self._refuse(f"has {whole} compute slices, but its MIG instances need {slices}")
        memory_mib = sum(self.profiles[profile].memory_mib for profile in taken)
        if memory_mib > self.memory_mib:
            self._refuse(f"has {self.memory_mib} MiB of memory, but its MIG instances need {memory_mib}")

    def _instance(self, number: int, names: list[tuple[str, int | None]]) -> Iterator[SimulatedSlice]:
        profile = names[0][0]
        whole, facts = _gpu_slices(profile), self.profiles[profile]
        taken = sum(whole if share is None else share for _, share in names)
        if taken > whole or any(share == 0 for _, share in names):
            self._refuse(f"has {whole} compute slices in a {profile}, but its compute instances need {taken}")
        for place, (_, share) in enumerate(names):
            yield SimulatedSlice(
                uuid=_made_uuid("MIG", self.uuid, profile, number, *([place] if place else [])),
                gpu_instance=number + 1,
                profile=profile,
                memory_bytes=facts.memory_mib * MIB,
                engines=facts.engine_counts(),
                compute_instance=place,
                compute_slices=None if share == whole else share,
            )

    def vgpus(self, entries: tuple[VgpuEntry, ...]) -> tuple[SimulatedVgpu, ...]:
        """Return the GPU's vGPUs."""
        for name, count in Counter(entry.type_name for entry in entries).items():
            if name in self.vgpu_types and count > self.vgpu_types[name].most:
                self._refuse(f"has room for at most {self.vgpu_types[name].most} of {name}")
        return tuple(self._vgpu(entry) for entry in entries)

    def _vgpu(self, entry: VgpuEntry) -> SimulatedVgpu:
        known = self.vgpu_types.get(entry.type_name)
        number = entry.type_id if known is None or entry.type_id is not None else known.number
        size = None if known is None else known.framebuffer_mib * MIB
        size = int(entry.framebuffer_gib * GIB) if entry.framebuffer_gib is not None else size
        if number is None or size is None:
            known_types = f", or one of {', '.join(self.vgpu_types)}" if self.vgpu_types else ""
            advice = f"Give its type_id and framebuffer_gib{known_types}."
            self._refuse(f"has no known vGPU type {entry.type_name}", advice)
        return SimulatedVgpu(
            type_id=number,
            uuid=_made_uuid("", self.uuid, entry.vm, entry.instance).removeprefix("-"),
            vm_id=entry.vm,
            framebuffer_bytes=size,
            **entry.model_dump(include={"instance", "type_name", "licensed", "licence_expires", "frame_rate_limit"}),
        )

    def _refuse(self, said: str, advice: str = "Remove some of them.") -> NoReturn:
        raise UsageError(f"{self.where} {said}", advice)


def _compute_instance(name: str) -> tuple[str, int | None]:
    """Return the profile and the compute slices of a GPU instance: None for all of "3g.20gb", 1 for "1c.3g.20gb"."""
    share, dot, profile = name.partition("c.")
    return (profile, int(share)) if dot and share.isdigit() else (name, None)


def _gpu_slices(profile: str) -> int:
    """Return the GPU slices of an instance, for example 3 for "3g.20gb"."""
    return int(profile.partition("g.")[0])


def _made_uuid(prefix: str, *parts: object) -> str:
    """Return a UUID that depends only on ``parts``."""
    text = sha256("/".join(map(str, parts)).encode()).hexdigest()
    return f"{prefix}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
