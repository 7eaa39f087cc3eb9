"""A worker that is a child process, and the requests that it serves."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...actors.device.work import Constraints
from ...actors.process.child import Child
from ...actors.process.messages import Buffer, Request, beside
from ...actors.process.process import StartedProcess
from ...actors.worker.heartbeat import Heartbeat, WorkerFacts
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome, failed
from ...errors import CodecfleetError

if TYPE_CHECKING:
    from .program import WorkerSeat


@dataclass(frozen=True, slots=True)
class Begin(Request["WorkerSeat", WorkerFacts]):
    """The first request, which makes the process a worker."""

    slots: int  #: how many tasks the worker runs at the same time
    cores: int  #: how many cores are reserved for the worker

    async def serve(self, server: "WorkerSeat") -> WorkerFacts:
        return server.begin(self.slots, self.cores)


@dataclass(frozen=True, slots=True)
class RunPacked(Request["WorkerSeat", Outcome[Any]]):
    """Run packed work, and return its outcome."""

    run: str  #: the run's name
    packed_work: Buffer
    constraints: Constraints
    blobs: tuple[Buffer, ...]

    async def serve(self, server: "WorkerSeat") -> Outcome[Any]:
        return await server.host.run(self.run, bytes(self.packed_work), self.constraints, *map(bytes, self.blobs))


@dataclass(frozen=True, slots=True)
class CancelRuns(Request["WorkerSeat", None]):
    """Cancel one run, or all runs of clients that are gone."""

    which: str | GoneClients

    async def serve(self, server: "WorkerSeat") -> None:
        server.host.cancel(self.which)


@dataclass(frozen=True, slots=True)
class AskHeartbeat(Request["WorkerSeat", Heartbeat]):
    """Return the worker's state."""

    term: int | None

    async def serve(self, server: "WorkerSeat") -> Heartbeat:
        return await server.host.heartbeat(self.term)


class ChildWorker:
    """A ``Worker`` in a child process. Use it from one event loop."""

    def __init__(self, process: StartedProcess) -> None:
        self._child: Child[WorkerSeat] = Child(process)

    async def begin(self, slots: int, cores: int) -> WorkerFacts:
        """Make the process a worker. An answer proves that the process can import codecfleet. Raises ChildDied."""
        return await self._child.call(Begin(slots, cores))

    async def death(self) -> str:
        """Wait until the worker has died; return why it died."""
        return await self._child.death()

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        contents = tuple(map(beside, blobs))
        try:
            return await self._child.call(RunPacked(run, beside(packed_work), constraints, contents))
        except CodecfleetError as error:  # the result did not arrive
            return failed(error)

    def cancel(self, which: str | GoneClients) -> None:
        self._child.tell(CancelRuns(which))

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        return await self._child.call(AskHeartbeat(term))

    def end(self) -> None:
        self._child.kill("it was ended on request")
