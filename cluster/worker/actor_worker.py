"""The caller's side of a worker that is a Ray actor."""

from typing import Any

from ...actors.device.work import Constraints
from ...actors.worker.heartbeat import Heartbeat
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome
from ..ray.ray_words import first_line
from ..worker_names import CONTROL


class ActorWorker:
    """A ``Worker`` that calls a ``RayWorker`` through Ray's handle; Ray's errors are raised unchanged."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: Any) -> Outcome[Any]:
        outcome: Outcome[Any] = await self.actor.run.remote(run, packed_work, constraints, *blobs)
        return outcome

    def cancel(self, which: str | GoneClients) -> None:
        self.actor.cancel.options(concurrency_group=CONTROL).remote(which)

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        found: Heartbeat = await self.actor.heartbeat.options(concurrency_group=CONTROL).remote(term)
        return found

    def end(self) -> None:
        self.actor.end.options(concurrency_group=CONTROL).remote()

    async def version(self) -> str:
        """Return the worker's version of codecfleet. Workers of every release have this method."""
        found: str = await self.actor.version.options(concurrency_group=CONTROL).remote()
        return found

    async def death(self) -> str:
        """Wait until the worker has died; return why it died."""
        try:
            await self.actor.watch.options(concurrency_group=CONTROL).remote()
        except Exception as error:  # noqa: BLE001 - any error of Ray means that the process is gone
            return first_line(error)
        return "it ended by itself"
