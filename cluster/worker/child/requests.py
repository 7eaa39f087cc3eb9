"""What a worker's process is asked by the process that started it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....actors.device.work import Constraints
from ...process.messages import Buffer, Request
from ..heartbeat import Heartbeat, WorkerFacts
from ..outcome import Outcome

if TYPE_CHECKING:
    from ..program import WorkerSeat


@dataclass(frozen=True, slots=True)
class Begin(Request["WorkerSeat", WorkerFacts]):
    """The first request: be a worker."""

    slots: int  #: pieces of work at once
    cores: int  #: how many are reserved for it

    async def serve(self, server: "WorkerSeat") -> WorkerFacts:
        return await server.begin(self.slots, self.cores)


@dataclass(frozen=True, slots=True)
class RunPacked(Request["WorkerSeat", Outcome[Any]]):
    """Run packed work."""

    run: str  #: its name
    packed_work: Buffer
    constraints: Constraints
    blobs: tuple[Buffer, ...]

    async def serve(self, server: "WorkerSeat") -> Outcome[Any]:
        blobs = map(bytes, self.blobs)
        return await server.worker.run(self.run, bytes(self.packed_work), self.constraints, *blobs)


@dataclass(frozen=True, slots=True)
class CancelRun(Request["WorkerSeat", None]):
    """End a run early."""

    run: str

    async def serve(self, server: "WorkerSeat") -> None:
        await server.worker.cancel(self.run)


@dataclass(frozen=True, slots=True)
class OutcomeCame(Request["WorkerSeat", None]):
    """The last outcome of a worker that is broken has come."""

    async def serve(self, server: "WorkerSeat") -> None:
        await server.worker.answered()


@dataclass(frozen=True, slots=True)
class AskProgress(Request["WorkerSeat", Mapping[str, int]]):
    """Tell the frames done of a job, by label."""

    job: str

    async def serve(self, server: "WorkerSeat") -> Mapping[str, int]:
        return await server.worker.progress(self.job)


@dataclass(frozen=True, slots=True)
class AskFacts(Request["WorkerSeat", WorkerFacts]):
    """Tell its identity."""

    async def serve(self, server: "WorkerSeat") -> WorkerFacts:
        return await server.worker.facts()


@dataclass(frozen=True, slots=True)
class AskState(Request["WorkerSeat", Heartbeat]):
    """Tell its state."""

    async def serve(self, server: "WorkerSeat") -> Heartbeat:
        return await server.worker.heartbeat()


@dataclass(frozen=True, slots=True)
class AbandonClients(Request["WorkerSeat", None]):
    """Cancel every run of these clients; or of all others."""

    clients: frozenset[str]
    others: bool = False

    async def serve(self, server: "WorkerSeat") -> None:
        if self.others:
            await server.worker.abandon_others(self.clients)
            return
        for client in self.clients:
            await server.worker.abandon(client)
