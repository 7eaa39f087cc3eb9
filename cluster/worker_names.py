"""The names of nodes, stations and workers, whose parts a program can read.

A worker's name is ``NODE/SEAT#NUMBER:EPOCH``. Its station has the same name without the epoch; the seat is that of a
``DeviceKind``. Stations for the second and later slices of a GPU are named ``NODE/gpu#NUMBER.PART``. "" means no node,
station or worker.
"""

from functools import lru_cache
from typing import Final, NamedTuple, NewType

from .probes.report.device_kinds import SEATS, DeviceKind

#: The concurrency group of all calls to a worker except those that run work. A separate thread answers these calls,
#: even while work runs
CONTROL: Final = "control"
WORKER_PREFIX: Final = "codecfleet-worker "  #: The prefix of a worker's name as a Ray actor

_DEVICE_SEATS: Final = tuple(kind.seat for kind in DeviceKind if not kind.is_processor)

NodeId = NewType("NodeId", str)  #: Ray's id of a node; without Ray, the name of this machine


class StationId(str):
    """The name of a station: ``NODE/SEAT#NUMBER``, and for a GPU's later slices ``.PART``."""

    __slots__ = ()

    @classmethod
    def of(cls, node: str, kind: DeviceKind, number: int, part: int = 0) -> "StationId":
        """Return the name of a station for devices of this kind; ``part`` is the slice of a GPU."""
        return cls(f"{node}/{kind.seat}#{number}" + (f".{part}" if part else ""))

    @property
    def node(self) -> NodeId:
        """The id of the station's node."""
        return _node_of(self)

    @property
    def local(self) -> str:
        """The name of the station on its node."""
        return self.rpartition("/")[2]

    @property
    def kind(self) -> DeviceKind:
        """The kind of device after which the seat is named. Raises KeyError if the name is empty."""
        return _parsed(self).kind

    @property
    def has_device(self) -> bool:
        """Whether the process of the station uses a device other than the CPU; False if the name is empty."""
        return self.local.startswith(_DEVICE_SEATS)

    @property
    def number(self) -> int:
        """The station's number among its node's stations with the same seat."""
        return _parsed(self).number

    @property
    def part(self) -> int:
        """The number of the GPU slice that the station uses."""
        return _parsed(self).part

    @property
    def bundle(self) -> "StationId":
        """The name of the station's bundle; all stations of a GPU's slices share the first one's bundle."""
        return StationId(self.removesuffix(f".{self.part}"))


class _Parts(NamedTuple):
    kind: DeviceKind
    number: int
    part: int


@lru_cache(maxsize=1 << 14)
def _parsed(station: StationId) -> _Parts:
    seat, _, numbers = station.local.partition("#")
    number, _, part = numbers.partition(".")
    return _Parts(SEATS[seat], int(number), int(part or 0))


@lru_cache(maxsize=1 << 14)
def _node_of(station: StationId) -> NodeId:
    return NodeId(station.rpartition("/")[0])


class WorkerId(str):
    """The name of a worker: the name of its station, and the epoch of the process."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type["WorkerId"], tuple[str]]:
        """Pickle faster than by default, because a large client's grants contain the names of hundreds of workers."""
        return WorkerId, (str(self),)

    @classmethod
    def of(cls, station: StationId, epoch: int) -> "WorkerId":
        """Return the name of the station's process with this epoch."""
        return cls(f"{station}:{epoch}")

    @property
    def station(self) -> StationId:
        """The name of the station that the process belongs to."""
        return _station_of(self)

    @property
    def epoch(self) -> int:
        """The number of this process among all processes that the cluster's supervisors have started."""
        return int(self.rpartition(":")[2])


@lru_cache(maxsize=1 << 14)
def _station_of(worker: WorkerId) -> StationId:
    return StationId(worker.rpartition(":")[0])


NO_WORKER: Final = WorkerId()
