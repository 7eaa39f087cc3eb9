"""Workers' processes without processes: each serves a worker in this event loop, over real sockets."""

import asyncio
import socket
from contextlib import suppress

from ...cluster.process.process import StartedProcess
from ...cluster.process.program import serve_parent
from ...cluster.worker.program import WorkerSeat
from ...cluster.worker.ray_worker import RayWorker
from .fake_worker import in_thread


class FakeProcesses:
    """Stands in for what starts a worker's process in a ``ConnectedPool`` or ``MachineBackend``."""

    def __init__(self) -> None:
        self._serving: list[asyncio.Task[None]] = []

    @property
    def started(self) -> int:
        """How many were started."""
        return len(self._serving)

    def __call__(self) -> StartedProcess:
        """Start one."""
        ours, theirs = socket.socketpair()
        serving = asyncio.create_task(_serve(theirs))
        self._serving.append(serving)
        loop = asyncio.get_running_loop()
        return StartedProcess(ours, lambda: loop.call_soon(serving.cancel), lambda: "it was killed by SIGKILL")

    def kill(self) -> None:
        """Kill the newest."""
        self._serving[-1].cancel()


async def _serve(end: socket.socket) -> None:
    workers: list[RayWorker] = []

    def make(slots: int, cores: int) -> RayWorker:
        workers.append(RayWorker(slots, cores=cores, spawn_lone=in_thread))
        return workers[-1]

    try:
        with suppress(asyncio.CancelledError):
            await serve_parent(end, lambda _: WorkerSeat(make), me="the worker")
    finally:
        end.close()
        # Its threads, which a process would take with it.
        for worker in workers:
            await worker.abandon_others(frozenset())
