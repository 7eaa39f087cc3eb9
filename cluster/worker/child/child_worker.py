"""A worker that is a child process of this one, seen from here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....actors.device.work import Constraints
from ....errors import CodecfleetError
from ...process.child import Child, ChildDied
from ...process.messages import beside
from ...process.process import StartedProcess
from ..heartbeat import Heartbeat, WorkerFacts
from ..outcome import Outcome, failed
from .requests import AbandonClients, AskFacts, AskProgress, AskState, Begin, CancelRun, OutcomeCame, RunPacked

if TYPE_CHECKING:
    from ..program import WorkerSeat


class WorkerDied(ChildDied):
    """The worker's process is gone, and what it ran is lost."""


class ChildWorker:
    """A ``Worker`` in a child process. There is one supervisor, so terms say nothing. Used from one event loop."""

    def __init__(self, process: StartedProcess) -> None:
        self._child: Child[WorkerSeat] = Child(process, died=WorkerDied)

    async def begin(self, slots: int, cores: int) -> WorkerFacts:
        """Have it work, with these numbers of slots and cores; the answer shows that our code is importable in it.

        Raises:
            WorkerDied: it ended before.
        """
        return await self._child.call(Begin(slots, cores))

    async def death(self) -> str:
        """Wait for its death; return why."""
        return await self._child.death()

    async def end(self) -> None:
        """Kill it, and wait until it is gone."""
        await self._child.end()

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        contents = tuple(map(beside, blobs))
        try:
            return await self._child.call(RunPacked(run, beside(packed_work), constraints, contents))
        except CodecfleetError as error:  # the result did not arrive
            return failed(error)

    def cancel(self, run: str) -> None:
        self._child.tell(CancelRun(run))

    def answered(self) -> None:
        self._child.tell(OutcomeCame())

    async def progress(self, job: str) -> Mapping[str, int]:
        return await self._child.call(AskProgress(job))

    async def facts(self, term: int = 0) -> WorkerFacts:
        del term
        return await self._child.call(AskFacts())

    async def heartbeat(self, term: int = 0) -> Heartbeat:
        del term
        return await self._child.call(AskState())

    async def abandon(self, client: str, term: int = 0) -> None:
        del term
        await self._child.call(AbandonClients(frozenset([client])))

    async def abandon_others(self, clients: frozenset[str], term: int = 0) -> None:
        del term
        await self._child.call(AbandonClients(clients, others=True))
