"""Simulated processes. Each serves a worker or a pool in this event loop, over real sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...actors.background import Background
from ...actors.process.channel import Channel
from ...actors.process.process import StartedProcess
from ...actors.process.program import serve_parent
from ...cluster.fleet.pool import ClientName, Pool
from ...cluster.fleet.serving import HostSession, ServedPool
from ...cluster.worker.program import WorkerSeat
from .fake_worker import in_thread, raise_defect

if TYPE_CHECKING:
    from ...cluster.fleet.messages import FleetSide


class _InThisLoop:
    """Serves one end of a socket pair in a task, in place of a process."""

    def __init__(self) -> None:
        self._tasks = Background(raise_defect)
        self._serving: list[asyncio.Task[None]] = []

    @property
    def started(self) -> int:
        return len(self._serving)

    def kill(self) -> None:
        self._serving[-1].cancel()

    def _start(self, serve: Callable[[socket.socket], Awaitable[None]]) -> StartedProcess:
        ours, theirs = socket.socketpair()
        serving = self._tasks.spawn("a process", _served(serve, theirs))
        self._serving.append(serving)
        loop = asyncio.get_running_loop()
        return StartedProcess(ours, lambda: loop.call_soon(serving.cancel), lambda: "it was killed by SIGKILL")


async def _served(serve: Callable[[socket.socket], Awaitable[None]], end: socket.socket) -> None:
    try:
        with suppress(asyncio.CancelledError):
            await serve(end)
    finally:
        end.close()


class FakeProcesses(_InThisLoop):
    """Replaces the function with which a ``MachineBackend`` starts the process of a worker."""

    def __call__(self) -> StartedProcess:
        """Start a task that serves a worker in place of a process."""
        return self._start(_serve_worker)


async def _serve_worker(end: socket.socket) -> None:
    seat = WorkerSeat(in_thread, lambda: False)
    try:
        await serve_parent(end, lambda _: seat, me="the worker")
    finally:
        end.close()
        with suppress(AttributeError):  # the worker may not have begun
            seat.host.close()  # end the worker's threads, which a real process would take with it


class FakeHosts(_InThisLoop):
    """Replaces ``start_host`` in a ``RemotePool``.

    Args:
        pools: the pools that successive hosts serve.
    """

    def __init__(self, pools: Iterable[Pool]) -> None:
        super().__init__()
        self._pools = iter(pools)
        self.names: list[str] = []
        self._lost: list[str] = []

    def __call__(self, name: ClientName) -> StartedProcess:
        """Start a task that serves the next of ``pools`` in place of a host process."""
        self.names.append(str(name))
        self._lost.append("")
        return self._start(partial(self._serve_pool, len(self._lost) - 1))

    def lose_ray(self) -> None:
        """Make the newest host lose its Ray; from then on, the host reports no errors until it is killed."""
        self._lost[-1] = "its Ray ended"

    async def _serve_pool(self, number: int, end: socket.socket) -> None:
        pool = next(self._pools)
        channel: Channel[FleetSide] = Channel(end)
        try:
            await HostSession(ServedPool(pool, lambda: self._lost[number]), channel).serve()
        finally:
            channel.close()
            await pool.aclose()
