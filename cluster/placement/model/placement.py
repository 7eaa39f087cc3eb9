"""What ``place`` answers: frozen values, each with its reason."""

from dataclasses import dataclass

from ...probes.report.device_kinds import Route
from ...worker_names import NodeId
from .demand import EncoderKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Sessions of one job on one device (and, where the route needs it, its host's cores)."""

    job: str
    node: NodeId
    device: str
    route: Route
    sessions: int  # segments at a time
    fps: float  # source frames a second of all of them; 0 where it is unknown, as for a network
    cores: float  # of the host's processor
    memory_bytes: int  # of the device, without a process's context; of the host on the route ``cpu``
    kinds: tuple[EncoderKind, ...]
    reason: str  # a sentence


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job is not on some devices; without devices, why nothing at all could be placed for it."""

    job: str
    reason: str
    devices: tuple[str, ...] = ()  # in the inventory's order
    is_too_large: bool = False  # no host that could do it has the memory for one segment, even when idle


@dataclass(frozen=True, slots=True)
class Placement:
    """Where every job's segments run. Same input, same placement."""

    lanes: tuple[Lane, ...]
    refusals: tuple[Refusal, ...]  # of each job; where nothing could be placed for it, that comes first
