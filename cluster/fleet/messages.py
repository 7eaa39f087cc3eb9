"""What a fleet and its host send each other, and the questions for a supervisor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...actors.device.work import Blob
from ...actors.process.messages import Buffer, Request
from ..device_fault import DeviceFault
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from ..worker_names import StationId, WorkerId
from .pool import Asked, PoolState
from .run import RunProgress

if TYPE_CHECKING:
    from ..supervisor.status.history import History
    from ..supervisor.status.status import Status
    from .serving import HostSession

BEAT_S: Final = 0.25
"""How often a host reports its state; the reports also show that the host is alive."""
CLOSING_S: Final = 5.0
"""How long the pool may take to close; its cluster may be out of reach."""


@dataclass(frozen=True, slots=True)
class StartPool(Request["HostSession", None]):
    """Start the pool. Raises FleetUnavailable: no worker can start."""

    async def serve(self, server: "HostSession") -> None:
        await server.start()


@dataclass(frozen=True, slots=True)
class KeepBlob(Request["HostSession", None]):
    """Store a blob of work; blobs are numbered in order of arrival."""

    content: Buffer

    async def serve(self, server: "HostSession") -> None:
        server.blobs.append(Blob.of(bytes(memoryview(self.content))))


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The result of work, and its origin: the worker, and the name of the input."""

    result: Any
    worker: WorkerId
    file: str


@dataclass(frozen=True, slots=True)
class HostedWork(Request["HostSession", WorkDone]):
    """Run work; cancelling the call cancels the work."""

    run: int  # the run's number in other messages
    base: dict[str, Any]  # this field, ``packed`` and ``blobs`` hold the parts of a ``Work``
    packed: Buffer  # the pickled work
    blobs: tuple[int, ...]  # the numbers of the work's blobs

    async def serve(self, server: "HostSession") -> WorkDone:
        return await server.run(self)


@dataclass(frozen=True, slots=True)
class GiveUp(Request["HostSession", None]):
    """Replace the worker of a run, unless the run has ended; see ``WorkRun.give_up``."""

    run: int
    why: str

    async def serve(self, server: "HostSession") -> None:
        if self.run in server.runs:
            server.runs[self.run].give_up(self.why)


@dataclass(frozen=True, slots=True)
class SetDemand(Request["HostSession", None]):
    """Set a job's demand."""

    job: str
    demand: Asked | None

    async def serve(self, server: "HostSession") -> None:
        server.set_demand(self.job, self.demand)


@dataclass(frozen=True, slots=True)
class AskPreview(Request["HostSession", PlacementPreview]):
    """Return where a job would be placed."""

    demand: Demand

    async def serve(self, server: "HostSession") -> PlacementPreview:
        return await server.pool.preview(self.demand)


@dataclass(frozen=True, slots=True)
class TellFault(Request["HostSession", None]):
    """Report a fault of a device that a job found."""

    fault: DeviceFault

    async def serve(self, server: "HostSession") -> None:
        server.tell_fault(self.fault)


@dataclass(frozen=True, slots=True)
class Close(Request["HostSession", None]):
    """End all work of the fleet, and disconnect."""

    async def serve(self, server: "HostSession") -> None:
        server.close()


class FleetSide(Protocol):
    """Receives a host's state."""

    async def heard(self, beat: "Beat") -> None:
        """Receive a new state."""


@dataclass(frozen=True, slots=True)
class Beat(Request[FleetSide, None]):
    """The host's state."""

    state: PoolState | None  # the pool's state; None if it has not changed
    progress: Mapping[int, RunProgress]  # the progress of each run that has a worker, by the run's number

    async def serve(self, server: FleetSide) -> None:
        await server.heard(self)


class SupervisorSide(Protocol):
    """A process that can ask a supervisor: the host of a warm fleet, or a client of a cluster."""

    async def status(self) -> "Status | None":
        """Return the supervisor's status; None without a supervisor."""

    async def history(self, stations: tuple[StationId, ...]) -> "History":
        """Return the recent work of stations."""


@dataclass(frozen=True, slots=True)
class ReadStatus(Request[SupervisorSide, "Status | None"]):
    """Return the supervisor's status; None without a supervisor."""

    async def serve(self, server: SupervisorSide) -> "Status | None":
        return await server.status()


@dataclass(frozen=True, slots=True)
class ReadHistory(Request[SupervisorSide, "History"]):
    """Return the recent work of stations."""

    stations: tuple[StationId, ...]

    async def serve(self, server: SupervisorSide) -> "History":
        return await server.history(self.stations)
