"""The result of ``place``: frozen values with reasons."""

from dataclasses import dataclass
from typing import NamedTuple

from ...probes.report.device_kinds import Route
from ...worker_names import NodeId
from .demand import EncoderKind


class Lane(NamedTuple):
    """Sessions of one job on one device, and on the host's cores if the route needs cores."""

    job: str
    node: NodeId
    device: str
    route: Route
    sessions: int  # how many segments run at a time
    fps: float  # source frames a second of all sessions together; 0 if unknown, as for a network
    cores: float  # cores of the host's processor that the sessions use
    memory_bytes: int  # device memory, without a process's context; host memory on the route ``cpu``
    kinds: tuple[EncoderKind, ...]
    reason: str  # why the job runs here, as a sentence


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a job is not on the named devices or, if none is named, why the job could not be placed."""

    job: str
    reason: str
    devices: tuple[str, ...] = ()  # the devices, in the inventory's order
    is_too_large: bool = False  # whether no capable host has enough memory for one segment, even when idle


@dataclass(frozen=True, slots=True)
class Placement:
    """Where every job's segments run. The same input gives the same placement."""

    lanes: tuple[Lane, ...]
    refusals: tuple[Refusal, ...]  # each job's refusals; if the job could not be placed, the first refusal says why
