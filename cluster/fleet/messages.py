"""What a fleet and the host of its workers say to each other; and what anyone asks of a supervisor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ...actors.device.work import Blob
from ...actors.process.messages import Buffer, Request
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from ..worker_names import StationId, WorkerId
from .pool import Asked, PoolState
from .run import Doubt, RunProgress

if TYPE_CHECKING:
    from ..supervisor.status.history import History
    from ..supervisor.status.status import Status
    from .serving import HostSession

BEAT_S: Final = 0.25
"""How often a host says how it is, which also shows that it is alive."""
CLOSING_S: Final = 5.0
"""How long closing the pool may take: a cluster may be out of reach."""


@dataclass(frozen=True, slots=True)
class StartPool(Request["HostSession", None]):
    """Start the pool; ``FleetUnavailable`` if there is nothing to run on."""

    async def serve(self, server: "HostSession") -> None:
        await server.start()


@dataclass(frozen=True, slots=True)
class KeepBlob(Request["HostSession", None]):
    """Keep bytes that much work needs: the next of ``HostedWork.blobs``."""

    content: Buffer

    async def serve(self, server: "HostSession") -> None:
        server.blobs.append(Blob.of(bytes(memoryview(self.content))))


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A result, and where it was made."""

    result: Any
    worker: WorkerId
    file: str


@dataclass(frozen=True, slots=True)
class HostedWork(Request["HostSession", WorkDone]):
    """Run work; cancelled there if it is cancelled here."""

    run: int  # its number, by which it is named afterwards
    base: dict[str, Any]  # what a pool may read of the work
    packed: Buffer  # the work, pickled
    blobs: tuple[int, ...]  # the places of what it was pickled without

    async def serve(self, server: "HostSession") -> WorkDone:
        return await server.run(self)


@dataclass(frozen=True, slots=True)
class GiveUp(Request["HostSession", None]):
    """Give a run up, if it still runs."""

    run: int
    why: str

    async def serve(self, server: "HostSession") -> None:
        if self.run in server.runs:
            server.runs[self.run].give_up(self.why)


@dataclass(frozen=True, slots=True)
class SetDemand(Request["HostSession", None]):
    """Set what a job wants."""

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
class TellDoubt(Request["HostSession", None]):
    """Report a complaint about a device."""

    doubt: Doubt

    async def serve(self, server: "HostSession") -> None:
        server.take_doubt(self.doubt)


@dataclass(frozen=True, slots=True)
class Close(Request["HostSession", None]):
    """End what the fleet has at the host, and hang up."""

    async def serve(self, server: "HostSession") -> None:
        server.close()


class FleetSide(Protocol):
    """What hears of a host's state."""

    async def heard(self, beat: "Beat") -> None:
        """Take the state."""


@dataclass(frozen=True, slots=True)
class Beat(Request[FleetSide, None]):
    """The host's state; one that comes also shows that the host is alive."""

    state: PoolState | None  # None where it has not changed since the last one
    progress: Mapping[int, RunProgress]  # of the runs that have a worker, by number

    async def serve(self, server: FleetSide) -> None:
        await server.heard(self)


class SupervisorSide(Protocol):
    """What knows a supervisor: a warm fleet's host, or a process that asks a cluster's."""

    async def status(self) -> "Status | None":
        """Return its status; None where there is none."""

    async def history(self, stations: tuple[StationId, ...]) -> "History":
        """Return what stations did."""


@dataclass(frozen=True, slots=True)
class ReadStatus(Request[SupervisorSide, "Status | None"]):
    """Return the status of the supervisor; None where there is none."""

    async def serve(self, server: SupervisorSide) -> "Status | None":
        return await server.status()


@dataclass(frozen=True, slots=True)
class ReadHistory(Request[SupervisorSide, "History"]):
    """Return what stations did."""

    stations: tuple[StationId, ...]

    async def serve(self, server: SupervisorSide) -> "History":
        return await server.history(self.stations)
