"""Hosts without processes: each serves a pool in this event loop, over real sockets."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...cluster.fleet.client_name import ClientName
from ...cluster.fleet.pool import Pool
from ...cluster.fleet.serving import HostSession
from ...cluster.process.channel import Channel
from ...cluster.process.process import StartedProcess

if TYPE_CHECKING:
    from ...cluster.fleet.messages import FleetSide


class FakeHosts:
    """Stands in for ``start_host`` in a ``RemotePool``.

    Args:
        pools: what the hosts serve, one after the other.
    """

    def __init__(self, pools: Iterable[Pool]) -> None:
        self._pools = iter(pools)
        self.names: list[str] = []
        self._lost: list[str] = []
        self._serving: list[asyncio.Task[None]] = []

    @property
    def started(self) -> int:
        """How many hosts were started."""
        return len(self._serving)

    def __call__(self, name: ClientName) -> StartedProcess:
        """Start a host."""
        self.names.append(str(name))
        ours, theirs = socket.socketpair()
        number = self.started
        self._lost.append("")
        serving = asyncio.create_task(self._serve(theirs, number))
        self._serving.append(serving)
        return StartedProcess(
            ours, lambda: serving.get_loop().call_soon(serving.cancel), lambda: "it was killed by SIGKILL"
        )

    def kill(self) -> None:
        """Kill the newest host, and its pool with it."""
        self._serving[-1].cancel()

    def lose_ray(self) -> None:
        """Have the newest host find that its Ray is gone: it answers no more errors, and is to be killed."""
        self._lost[-1] = "its Ray ended"

    async def _serve(self, end: socket.socket, number: int) -> None:
        channel: Channel[FleetSide] = Channel(end)
        pool = next(self._pools)
        try:
            with suppress(asyncio.CancelledError):
                await HostSession(pool, channel, lambda: self._lost[number]).serve()
        finally:
            channel.close()
            await pool.aclose()
