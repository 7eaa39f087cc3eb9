"""What ``place`` answers: frozen values, each with its reason."""

from dataclasses import dataclass
from enum import Enum

from ...worker_names import NodeId
from .demand import EncoderKind


class Route(Enum):
    """Which way the frames of a segment go; all of it on one host."""

    GPU = "gpu"  #: decoded by NVDEC, processed and encoded by NVENC, on one device
    HYBRID = "hybrid"  #: decoded by a GPU's NVDEC, encoded by its host's processor
    CPU = "cpu"  #: decoded and encoded by the processor
    UPLOAD = "upload"  #: decoded by the processor, encoded by NVENC
    DLA = "dla"  #: decoded by the processor, and given to a network on a DLA; nothing is encoded


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
