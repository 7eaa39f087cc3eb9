"""A device's current state. ``health_poll.py`` reads it every 10 s, and the supervisor acts on it.

Percentages are as the driver reports them; ``vgpu/hosted.py`` explains what they mean for a vGPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import DeviceUse, Health, MemoryUse

if TYPE_CHECKING:
    from ..vgpu.instances import VgpuLoad
    from ..vgpu.licence import Licence


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnUse:
    """How much the processes of codecfleet use a device, as the driver reports it."""

    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    memory_bytes: Maybe[int]
    encoder_sessions: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The state of a whole GPU, a MIG slice or a vGPU at one poll.

    A slice has the health, throttling and licence of its GPU.
    """

    index: int
    uuid: Maybe[str]
    pci_bus_id: Maybe[str]
    name: str
    is_slice: bool
    health: Health  # Xid errors since the last poll
    memory: Maybe[MemoryUse]
    throttle: Maybe[str]  # why clocks are held down; "none" if they are not held down
    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    encoder_sessions: Maybe[int]
    ours: Maybe[OwnUse]  # the use by codecfleet's processes
    licence: "Maybe[Licence]"
    accounting: Maybe[bool]
    scheduler: Maybe[str]  # how a vGPU host divides the GPU among ``vgpus``
    vgpus: "tuple[VgpuLoad, ...]"  # running vGPUs
    creatable: dict[str, int]  # how many more vGPUs of each type can be created now, by the name of the type


_HIDDEN = Unavailable(
    Absence.NOT_FOUND,
    "the driver does not list codecfleet's processes, perhaps because they are in another pid namespace",
)


def own_use(use: DeviceUse, pids: frozenset[int]) -> Maybe[OwnUse]:
    """Return how much the processes with these ids use the device.

    The use is unknown if the driver lists none of the ids; in a container, the driver may list the host's ids.
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
    none = Unavailable(Absence.NOT_FOUND, "the driver has no sample of codecfleet's processes")
    return sum(sampled) if sampled else none
