"""A simulated worker process: the code of the real worker, run in this process."""

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ...actors.device.interface import SessionCounts
from ...actors.device.work import Constraints
from ...actors.device.worker import WorkerCore
from ...actors.process.process import StartedProcess
from ...actors.task_owner import TaskOwner
from ...actors.worker.heartbeat import Heartbeat, WorkerFacts
from ...actors.worker.helper_host import serve_worker
from ...actors.worker.host import WorkerHost
from ...actors.worker.orders import GoneClients
from ...actors.worker.outcome import Outcome

ReplyT = TypeVar("ReplyT")

_DEAD = "the worker process died"


def host_in_process(slots: int) -> WorkerHost:
    """Return the host of a worker in this process; work that runs alone runs in threads."""
    return WorkerHost(WorkerFacts(os.getpid(), slots), spawn_lone=in_thread, killed_for_memory=lambda: False)


class FakeWorker:
    """A ``Worker`` in this process. After ``end``, all calls raise ConnectionError, even those in progress."""

    def __init__(self, slots: int) -> None:
        self._host = host_in_process(slots)
        self._dead = asyncio.Event()

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        return await self._alive(self._host.run(run, packed_work, constraints, *blobs))

    def cancel(self, which: str | GoneClients) -> None:
        self._host.cancel(which)

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        return await self._alive(self._host.heartbeat(term))

    def end(self) -> None:
        self._dead.set()

    async def _alive(self, call: Coroutine[Any, Any, ReplyT]) -> ReplyT:
        async with TaskOwner() as owner:
            reply, death = owner.start(call, "a call"), owner.start(self._dead.wait(), "the worker's death")
            await asyncio.wait({reply, death}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                raise ConnectionError(_DEAD)
            return reply.result()


def raise_defect(name: str, error: BaseException) -> None:
    """Fail the test if the task of a fake fails."""
    raise AssertionError(f"{name} failed") from error


def in_thread(slots: int) -> StartedProcess:
    """Start a thread in place of a process for work that runs alone."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        core = WorkerCore(slots)
        with theirs:
            asyncio.run(serve_worker(theirs, core, SessionCounts))
        core.close()

    def kill() -> None:
        with suppress(OSError):
            ours.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=run, name="codecfleet-lone", daemon=True).start()
    return StartedProcess(ours, kill, lambda: "it was killed by SIGKILL")
