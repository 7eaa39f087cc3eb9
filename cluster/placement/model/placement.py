"""What ``place`` answers: frozen values, each with its reason."""

from dataclasses import dataclass
from enum import Enum

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
    """``sessions`` segments of one job at a time, on one device (and, where the route needs it, its host's cores).

    ``fps`` is what all its sessions together are expected to give, in source frames a second; 0 where it is unknown, as
    for a network. ``cores`` is what it takes of the host's processor. ``memory_bytes`` is what its sessions take of the
    device's memory, or of the host's on the route ``cpu``; the context of a process on a device comes once on top.
    ``reason`` reads as a sentence.
    """

    job: str
    node: str
    device: str
    route: Route
    sessions: int
    fps: float
    cores: float
    memory_bytes: int
    kinds: tuple[EncoderKind, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job is not on some devices: all of ``devices`` for the same ``reason``, in the inventory's order.

    Without devices it says why nothing at all could be placed for the job. ``is_too_large``: every device that could do
    it is on a host whose memory is too small for one segment, even when idle.
    """

    job: str
    reason: str
    devices: tuple[str, ...] = ()
    is_too_large: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Where every job's segments run. Same input, same placement."""

    lanes: tuple[Lane, ...]
    refusals: tuple[Refusal, ...]
    """For each job and each device that it does not run on, why; where nothing could be placed, that comes first."""
