"""Names of nodes, stations and workers: text to all that stores or sends them, parsed where text comes in.

A worker is ``NODE/SEAT#NUMBER:EPOCH``, its station that without the epoch; the seat is cpu, gpu or dla. A station that
takes a slice of a GPU is ``NODE/gpu#NUMBER.PART``, but for the first slice. "" is no worker, no station, no node.
"""

from enum import StrEnum
from typing import Final, NewType

CONTROL: Final = "control"  #: The concurrency group of a worker's calls but work: its own thread always answers
WORKER_PREFIX: Final = "codecfleet-worker "  #: The prefix of a worker's name as a Ray actor
WORKER: Final = "codecfleet.cluster.worker.program"  #: The program of a worker that is a child process

NodeId = NewType("NodeId", str)  #: Ray's id of a node, or this machine's name where there is no Ray


class Seat(StrEnum):
    """What a station's process works on."""

    CPU = "cpu"
    GPU = "gpu"  # a whole one, a slice or a vGPU
    DLA = "dla"


class StationId(str):
    """The name of a station."""

    __slots__ = ()

    @classmethod
    def of(cls, node: str, seat: Seat, number: int, part: int = 0) -> "StationId":
        """Return a station's name; ``part`` is the slice of a GPU."""
        return cls(f"{node}/{seat}#{number}" + (f".{part}" if part else ""))

    @property
    def node(self) -> NodeId:
        """Its node."""
        return NodeId(self.rpartition("/")[0])

    @property
    def local(self) -> str:
        """Its name on its node."""
        return self.rpartition("/")[2]

    @property
    def seat(self) -> Seat:
        """What its process works on; ``ValueError`` for no station."""
        return Seat(self.local.partition("#")[0])

    @property
    def has_device(self) -> bool:
        """Whether it is a GPU's, a slice's or a DLA's; False for no station."""
        return self.local.startswith((Seat.GPU, Seat.DLA))

    @property
    def number(self) -> int:
        """Its number among its node's stations of its seat."""
        return int(self.bundle.rpartition("#")[2])

    @property
    def part(self) -> int:
        """Which slice of its GPU it takes."""
        return int(self.local.partition(".")[2] or 0)

    @property
    def bundle(self) -> "StationId":
        """The name of its bundle: its own, or that of the first slice of its GPU."""
        return StationId(self.removesuffix(f".{self.part}"))


class WorkerId(str):
    """The name of a station's process."""

    __slots__ = ()

    @classmethod
    def of(cls, station: StationId, epoch: int) -> "WorkerId":
        """Return the name of the station's process with this epoch."""
        return cls(f"{station}:{epoch}")

    @property
    def station(self) -> StationId:
        """Its station."""
        return StationId(self.rpartition(":")[0])

    @property
    def epoch(self) -> int:
        """Which of its station's processes it is."""
        return int(self.rpartition(":")[2])


NO_WORKER: Final = WorkerId()
