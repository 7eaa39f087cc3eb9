"""One device's current state, as values: ``health_poll.py`` asks every 10 s, and the supervisor decides by it.

Percentages are as the device's driver counts them: ``vgpu/hosted.py`` says what a vGPU's refer to.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import DeviceUse, Health, MemoryUse

if TYPE_CHECKING:
    from ..vgpu.licence import Licence
    from ..vgpu.values import VgpuLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUse:
    """What codecfleet's processes use of a device, as its driver names them."""

    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    memory_bytes: Maybe[int]
    encoder_sessions: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """A whole GPU, a MIG slice or a vGPU at one poll; its names are as in ``DeviceReport``."""

    index: int
    uuid: Maybe[str]  # a slice's own UUID; health, throttling and licence are its GPU's
    pci_bus_id: Maybe[str]
    name: str
    is_slice: bool
    health: Health  # Xids since the last poll
    memory: Maybe[MemoryUse]
    throttle: Maybe[str]  # the reasons why clocks are held down ("none")
    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    encoder_sessions: Maybe[int]
    ours: Maybe[OwnUse]
    licence: "Maybe[Licence]"
    accounting: Maybe[bool]
    scheduler: Maybe[str]  # how a host divides the GPU among ``vgpus``
    vgpus: "tuple[VgpuLoad, ...]"
    creatable: dict[str, int]  # how many more vGPUs of each type its host can make now, by the type's name


_HIDDEN = Unavailable(
    Absence.NOT_FOUND,
    "the driver names none of our processes: they are of another pid namespace, or it names none at all",
)


def own_use(use: DeviceUse, pids: frozenset[int]) -> Maybe[OwnUse]:
    """Return what processes with these ids use.

    If the driver names none of them, their use is unknown: in a container it may name processes by the host's numbers.
    """
    if isinstance(use.processes, Unavailable):
        return use.processes
    mine = [process for process in use.processes if process.pid in pids]
    if not mine:
        return _HIDDEN
    sessions = use.encoder_sessions
    memory = [process.memory_bytes for process in mine if process.memory_bytes is not None]
    hidden = Unavailable(Absence.NOT_FOUND, "the driver does not report each process's memory")
    return OwnUse(
        decoder_percent=_percent(process.decoder_percent for process in mine),
        encoder_percent=_percent(process.encoder_percent for process in mine),
        memory_bytes=sum(memory) if len(memory) == len(mine) else hidden,
        encoder_sessions=sessions
        if isinstance(sessions, Unavailable)
        else sum(session.pid in pids for session in sessions),
    )


def _percent(values: Iterable[int | None]) -> Maybe[int]:
    sampled = [value for value in values if value is not None]
    return sum(sampled) if sampled else Unavailable(Absence.NOT_FOUND, "the driver has no sample of our processes")
