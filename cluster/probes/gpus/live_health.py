"""How one device is just now, as values: what ``health_poll.py`` asks every 10 s, and the supervisor decides by.

Percentages are as the device's driver counts them: ``vgpu/hosted.py`` says what a vGPU's are of.
What a device does not report is an ``Unavailable`` with its reason, never a zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import DeviceProcess, DeviceUse, Health, MemoryUse

if TYPE_CHECKING:
    from ..vgpu.licence import Licence
    from ..vgpu.values import VgpuLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUse:
    """What of a device's use is by processes of ours, as its driver names them."""

    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    memory_bytes: Maybe[int]
    encoder_sessions: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """A whole GPU, a MIG slice or a vGPU at one poll.

    ``uuid`` and ``pci_bus_id`` name it as ``DeviceReport`` does; of a slice ``uuid`` is the slice's, and what concerns
    the whole GPU (health, throttling, licence) is its GPU's. ``health.xids`` came after the last
    poll. ``throttle`` are the reasons why clocks are held down ("none"). ``ours`` is by process. ``scheduler`` is how
    a host shares the GPU out among ``vgpus``.
    """

    index: int
    uuid: Maybe[str]
    pci_bus_id: Maybe[str]
    name: str
    is_slice: bool
    health: Health
    memory: Maybe[MemoryUse]
    throttle: Maybe[str]
    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    encoder_sessions: Maybe[int]
    ours: Maybe[OwnUse]
    licence: "Maybe[Licence]"
    accounting: Maybe[bool]
    scheduler: Maybe[str]
    vgpus: "tuple[VgpuLoad, ...]" = ()
    creatable: dict[str, int] = field(default_factory=dict)
    """How many more vGPUs of each type its host can make now, by the type's name; {} where it hosts none."""


_HIDDEN = Unavailable(
    Absence.NOT_FOUND,
    "the driver names none of our processes: they are of another pid namespace, or it names none at all",
)


def own_use(use: DeviceUse, pids: frozenset[int]) -> Maybe[OwnUse]:
    """Return what processes with these ids use, or why that cannot be told.

    Where none of them is among those that the driver names, nothing is concluded: in a container the driver may name
    processes by the host's numbers, or none.
    """
    if isinstance(use.processes, Unavailable):
        return use.processes
    mine = [process for process in use.processes if process.pid in pids]
    if not mine:
        return _HIDDEN
    sessions = use.encoder_sessions
    return OwnUse(
        decoder_percent=_percent(process.decoder_percent for process in mine),
        encoder_percent=_percent(process.encoder_percent for process in mine),
        memory_bytes=_memory(mine),
        encoder_sessions=sessions
        if isinstance(sessions, Unavailable)
        else sum(session.pid in pids for session in sessions),
    )


def _percent(values: Iterable[int | None]) -> Maybe[int]:
    told = [value for value in values if value is not None]
    return sum(told) if told else Unavailable(Absence.NOT_FOUND, "the driver has no sample of our processes")


def _memory(mine: list[DeviceProcess]) -> Maybe[int]:
    told = [process.memory_bytes for process in mine if process.memory_bytes is not None]
    if len(told) < len(mine):
        return Unavailable(Absence.NOT_FOUND, "the driver does not report each process's memory")
    return sum(told)
