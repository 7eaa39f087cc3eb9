"""Serves one pool to all programs that connect, until none has for a while."""

import asyncio
import os
import socket
from collections.abc import Callable

from ..client.pool import Pool
from ..host.meeting_place import Greeting, peer_of
from ..host.serving import PoolServer
from ..host.wire import WireChannel
from ..logs.actions import LogAction
from ..logs.writing import log
from .shared_pool import SharedPool


class Keeper:
    """Greets each program that connects to ``listener``, and serves it its part of ``pool``, which has started.

    Args:
        listener: a listening Unix socket; the keeper closes it.
        pool: closed at the end.
        greeting: what each program is told.
        lost: says why the pool's Ray is gone, "" while it is there.
        is_useless: says why the pool will never run anything again, "" while it may.
        leave: called once it is to end, while ``listener`` is still open.
    """

    def __init__(
        self,
        listener: socket.socket,
        pool: Pool,
        greeting: Greeting,
        *,
        lost: Callable[[], str] = str,
        is_useless: Callable[[], str] = str,
        leave: Callable[[], object] = bool,
    ) -> None:
        listener.settimeout(0)
        self._listener = listener
        self._pool = pool
        self._greeting = greeting
        self._lost = lost
        self._is_useless = is_useless
        self._leave = leave
        self._serving: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Have ``run`` end: programs that are connected lose what they run, as with a host that died."""
        self._over.set()

    async def run(self) -> None:
        """Serve until ``stop``, or until no program has been connected for the greeting's ``idle_s``."""
        self._rest()
        accepting = asyncio.create_task(self._accept())
        try:
            await self._over.wait()
        finally:
            accepting.cancel()
            self._leave()
            self._listener.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(accepting, *self._serving, return_exceptions=True)
            await self._pool.aclose()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            end, _ = await loop.sock_accept(self._listener)
            if peer_of(end)[1] != os.geteuid():
                end.close()
            elif self._is_useless():
                end.close()
                self.stop()
            else:
                self._begin(end)

    def _begin(self, end: socket.socket) -> None:
        if self._idle is not None:
            self._idle.cancel()
        serving = asyncio.create_task(self._serve(end))
        self._serving.add(serving)
        serving.add_done_callback(self._ended)

    def _ended(self, serving: "asyncio.Task[None]") -> None:
        self._serving.discard(serving)
        if not self._serving:
            self._rest()

    def _rest(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(self._greeting.idle_s, self.stop)

    async def _serve(self, end: socket.socket) -> None:
        pool, channel = SharedPool(self._pool), WireChannel(end)
        try:
            await asyncio.get_running_loop().sock_sendall(end, self._greeting.packed())
            await PoolServer(channel, pool, self._lost).run()
        except OSError:
            pass  # it is gone
        except Exception as error:  # noqa: BLE001 - a program whose messages cannot be read is dropped, and it alone
            log(LogAction.DEFECT, f"a program was dropped: {type(error).__name__}: {error}", error=error)
        finally:
            channel.close()
            await pool.aclose()
