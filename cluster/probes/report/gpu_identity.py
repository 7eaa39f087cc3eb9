"""Names of GPUs, slices and vGPUs. A *unit* is what Ray counts as one GPU: one device, or all slices of a GPU.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA Multi-Instance GPU User Guide, "CUDA Device
Enumeration"; vGPU Management SDK guide, 3.3.2 (a vGPU's UUID is random); Ray's ``NvidiaGPUAcceleratorManager``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .absence import Maybe, Unavailable, known
from .device_report import DeviceReport, MigReport

GUEST = "vgpu"
_UNIQUE = ("GPU-", "MIG-")
_EVERYTHING_HIDDEN = ("", "NoDevFiles")


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A device's names."""

    identity: str  # the device's name on its machine
    visible: str  # the device's name in CUDA_VISIBLE_DEVICES


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """A MIG device: one compute instance of a GPU instance."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGpu:
    """The NVML number and the names of a GPU; unknown names are ""."""

    index: int
    uuid: str = ""
    bus_id: str = ""
    is_guest: bool = False
    is_cut: bool = False  # whether the GPU is in MIG mode; work then runs on its slices
    slices: tuple[NamedSlice, ...] = ()
    trouble: str = ""  # why the GPU cannot be used; "" if it can be used

    @property
    def identity(self) -> str:
        """The GPU's name on the machine: its permanent UUID, or else its PCI bus id, or else its number in NVML."""
        if self.uuid and not self.is_guest:
            return self.uuid
        return self.bus_id or str(self.index)

    @property
    def parts(self) -> tuple[DevicePart, ...]:
        """The devices to which work can be pinned: the GPU itself or its slices."""
        if self.is_cut:
            return tuple(DevicePart(piece.uuid, piece.uuid) for piece in self.slices)
        return (DevicePart(self.identity, self.uuid or str(self.index)),)


def is_geforce(name: str) -> bool:
    """Whether the GPU is a GeForce card, which cannot use compat packages and has a limit on encoder sessions."""
    return "GeForce" in name


def on_node(node: str, identity: str) -> str:
    """Return a device's identity in the cluster: its UUID or else ``NODE/IDENTITY``."""
    if not identity or identity.startswith((*_UNIQUE, f"{node}/")):
        return identity
    return f"{node}/{identity}"


def named_gpu(
    index: int, uuid: Maybe[str], bus_id: Maybe[str], virtualization: Maybe[str], mig: Maybe[MigReport]
) -> NamedGpu:
    """Return the names of a GPU, from NVML's answers."""
    slices = None if isinstance(mig, Unavailable) or not mig.enabled else mig.slices
    return NamedGpu(
        index=index,
        uuid=known(uuid, ""),
        bus_id=known(bus_id, ""),
        is_guest=known(virtualization, "") == GUEST,
        is_cut=slices is not None,
        slices=tuple(
            NamedSlice(each.uuid, each.gpu_instance, known(each.compute_instance, 0)) for each in slices or ()
        ),
    )


def named(report: DeviceReport) -> NamedGpu:
    """Return the names of a GPU that was probed."""
    return named_gpu(report.index, report.uuid, report.pci_bus_id, report.virtualization, report.mig)


@dataclass(frozen=True, slots=True)
class Units:
    """The units that Ray can assign on a node."""

    units: tuple[tuple[str, ...], ...]  # the identities of each unit's devices, in Ray's order
    hidden: dict[str, str]  # why Ray cannot assign a device, by the device's identity
    counts_slices: bool  # whether Ray counts each slice as a GPU

    @property
    def parts_max(self) -> int:
        """The number of devices in the largest unit, but at least 1."""
        return max(map(len, self.units), default=1) or 1


@dataclass(frozen=True, slots=True)
class ShownGpus:
    """A machine's GPUs in NVML's order, with CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES of the Ray node."""

    gpus: tuple[NamedGpu, ...]
    cuda: str | None = None
    container: str | None = None

    @property
    def given(self) -> tuple[NamedGpu, ...]:
        """The GPUs and slices that this container may use.

        Device plugins name devices by UUID. Numbers in NVIDIA_VISIBLE_DEVICES are ignored, because they are numbers on
        the host.
        """
        entries = [entry.strip() for entry in (self.container or "").split(",")]
        wanted = [entry for entry in entries if entry.startswith(_UNIQUE)]
        given = [narrowed for gpu in self.gpus if (narrowed := _narrowed(gpu, wanted)) is not None]
        return tuple(given) or self.gpus

    @property
    def count(self) -> int:
        """How many GPUs Ray counts with this CUDA_VISIBLE_DEVICES."""
        return len(self._offered())

    @property
    def parts(self) -> tuple[DevicePart, ...]:
        """The devices of all units, in Ray's order."""
        return tuple(part for unit in self._offered() for part in unit)

    def units(self, count: int) -> Units:
        """Return the units that Ray can assign if it counts ``count`` GPUs."""
        gpus = self.given
        counts_slices = self.cuda is None and 0 < len(gpus) < count
        offered = self._offered()
        if counts_slices:
            offered = tuple((part,) for parts in offered for part in parts)
        units = tuple(tuple(part.identity for part in parts) for parts in offered[:count])
        return Units(units, self._hidden({name for unit in units for name in unit}, count), counts_slices)

    def _offered(self) -> tuple[tuple[DevicePart, ...], ...]:
        if self.cuda is None:
            return tuple(gpu.parts for gpu in self.given)
        return tuple(_offered(self.cuda, self.given))

    def _hidden(self, offered: set[str], count: int) -> dict[str, str]:
        given = {part.identity for gpu in self.given for part in gpu.parts}
        everything = [part.identity for gpu in self.gpus for part in gpu.parts]
        why = f"Ray was started with only {count} of its node's GPUs, and this is not one of them"
        if self.cuda is not None:
            why = f'it is hidden from Ray by CUDA_VISIBLE_DEVICES, which is "{self.cuda}" on its node'
        elsewhere = "it is hidden from its container by NVIDIA_VISIBLE_DEVICES"
        return {name: why if name in given else elsewhere for name in everything if name not in offered}

    @property
    def for_ray(self) -> str | None:
        """The CUDA_VISIBLE_DEVICES with which Ray counts each slice as a GPU; None if there are no slices."""
        slices = {piece.uuid for gpu in self.gpus for piece in gpu.slices}
        has_slices = any(part.identity in slices for part in self.parts)
        return ",".join(part.visible for part in self.parts) if has_slices else None


def _narrowed(gpu: NamedGpu, wanted: Sequence[str]) -> NamedGpu | None:
    if gpu.uuid in wanted:
        return gpu
    slices = tuple(piece for piece in gpu.slices if piece.uuid in wanted or _old_name(gpu, piece) in wanted)
    return replace(gpu, slices=slices) if slices else None


def _offered(visible: str, gpus: Sequence[NamedGpu]) -> Iterator[tuple[DevicePart, ...]]:
    """Yield the devices of each entry of CUDA_VISIBLE_DEVICES; like CUDA, stop at an invalid or repeated entry."""
    seen: set[DevicePart] = set()
    for entry in () if visible in _EVERYTHING_HIDDEN else visible.split(","):
        parts = _named_by(entry.strip(), gpus)
        if parts is None or not seen.isdisjoint(parts):
            return
        seen.update(parts)
        yield parts


def _named_by(entry: str, gpus: Sequence[NamedGpu]) -> tuple[DevicePart, ...] | None:
    """Return the devices that an entry names; None if the entry names no GPU, or several."""
    if entry.isdigit():
        return gpus[int(entry)].parts if int(entry) < len(gpus) else None
    if not entry.startswith(_UNIQUE):
        return None
    slices = [
        DevicePart(piece.uuid, piece.uuid)
        for gpu in gpus
        for piece in gpu.slices
        if piece.uuid.startswith(entry) or _old_name(gpu, piece) == entry
    ]
    wholes = [gpu.parts for gpu in gpus if gpu.uuid.startswith(entry)]
    found = [*((piece,) for piece in slices), *wholes]
    return found[0] if len(found) == 1 else None


def _old_name(gpu: NamedGpu, piece: NamedSlice) -> str:
    """Return the name of a slice in the spelling of drivers before R470."""
    return f"MIG-{gpu.uuid}/{piece.gpu_instance}/{piece.compute_instance}"


def unit_given(entry: str, gpus: Sequence[NamedGpu], *, counts_slices: bool = False) -> tuple[DevicePart, ...] | None:
    """Return the devices of the unit that Ray assigned; None if it does not exist, () if MIG is on without slices."""
    if entry.isdigit() and (counts_slices or int(entry) >= len(gpus)):
        parts = [part for gpu in gpus for part in gpu.parts]
        return tuple(parts[int(entry) : int(entry) + 1]) or None
    return _named_by(entry, gpus)
