"""A worker that is a Ray actor, seen from its callers."""

from collections.abc import Mapping
from typing import Any

from ...actors.device.work import Constraints
from ..worker_names import CONTROL
from .heartbeat import Heartbeat, WorkerFacts
from .outcome import Outcome


class ActorWorker:
    """A ``Worker`` behind Ray's handle of a ``RayWorker``; Ray's errors are raised as they are."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: Any) -> Outcome[Any]:
        outcome: Outcome[Any] = await self.actor.run.remote(run, packed_work, constraints, *blobs)
        return outcome

    def cancel(self, run: str) -> None:
        self.actor.cancel.options(concurrency_group=CONTROL).remote(run)

    def answered(self) -> None:
        self.actor.answered.options(concurrency_group=CONTROL).remote()

    async def progress(self, job: str) -> Mapping[str, int]:
        frames: Mapping[str, int] = await self.actor.progress.options(concurrency_group=CONTROL).remote(job)
        return frames

    async def version(self) -> str:
        """Return its version of codecfleet."""
        found: str = await self.actor.version.options(concurrency_group=CONTROL).remote()
        return found

    async def facts(self, term: int = 0) -> WorkerFacts:
        found: WorkerFacts = await self.actor.facts.options(concurrency_group=CONTROL).remote(term)
        return found

    async def heartbeat(self, term: int = 0) -> Heartbeat:
        found: Heartbeat = await self.actor.heartbeat.options(concurrency_group=CONTROL).remote(term)
        return found

    async def abandon(self, client: str, term: int = 0) -> None:
        await self.actor.abandon.options(concurrency_group=CONTROL).remote(client, term)

    async def abandon_others(self, clients: frozenset[str], term: int = 0) -> None:
        await self.actor.abandon_others.options(concurrency_group=CONTROL).remote(clients, term)

    async def watch(self) -> None:
        """Wait for its death, which Ray raises."""
        await self.actor.watch.options(concurrency_group=CONTROL).remote()
