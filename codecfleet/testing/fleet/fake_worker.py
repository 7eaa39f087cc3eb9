"""A simulated worker process: the real worker's code in threads of this process."""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from ...actors.device.interface import SessionCounts
from ...actors.device.work import Constraints
from ...actors.device.worker import WorkerCore
from ...cluster.process.process import StartedProcess
from ...cluster.worker.heartbeat import Heartbeat, WorkerFacts
from ...cluster.worker.helper_program import serve
from ...cluster.worker.outcome import Outcome
from ...cluster.worker.ray_worker import RayWorker

ReplyT = TypeVar("ReplyT")

_DEAD = "the worker process died"


class FakeWorker:
    """A ``Worker`` in this process. After ``kill`` every call, also one under way, raises ConnectionError."""

    def __init__(self, slots: int) -> None:
        self._worker = RayWorker(slots, spawn_lone=in_thread)
        self._dead = asyncio.Event()
        self._told: set[asyncio.Task[None]] = set()

    def kill(self) -> None:
        """Die."""
        self._dead.set()

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        return await self._alive(self._worker.run(run, packed_work, constraints, *blobs))

    def cancel(self, run: str) -> None:
        self._tell(self._worker.cancel(run))

    def answered(self) -> None:
        self._tell(self._worker.answered())

    async def progress(self, job: str) -> Mapping[str, int]:
        return await self._alive(self._worker.progress(job))

    async def facts(self, term: int = 0) -> WorkerFacts:
        return await self._alive(self._worker.facts(term))

    async def heartbeat(self, term: int = 0) -> Heartbeat:
        return await self._alive(self._worker.heartbeat(term))

    async def abandon(self, client: str, term: int = 0) -> None:
        await self._alive(self._worker.abandon(client, term))

    async def abandon_others(self, clients: frozenset[str], term: int = 0) -> None:
        await self._alive(self._worker.abandon_others(clients, term))

    def _tell(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        self._told.add(task)
        task.add_done_callback(self._told.discard)

    async def _alive(self, call: Coroutine[Any, Any, ReplyT]) -> ReplyT:
        reply, death = asyncio.ensure_future(call), asyncio.ensure_future(self._dead.wait())
        try:
            await asyncio.wait({reply, death}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                raise ConnectionError(_DEAD)
            return reply.result()
        finally:
            reply.cancel()
            death.cancel()


def in_thread(slots: int) -> StartedProcess:
    """Start a thread in the place of a process in which work runs alone."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        core = WorkerCore(slots)
        with theirs:
            asyncio.run(serve(theirs, core, SessionCounts))
        core.close()

    def kill() -> None:
        with suppress(OSError):
            ours.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=run, name="codecfleet-lone", daemon=True).start()
    return StartedProcess(ours, kill, lambda: "it was killed by SIGKILL")
