"""Serves one pool to all programs that connect, until none has for a while."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...background import Background
from ...logs.actions import LogAction
from ...logs.writing import log
from ...process.channel import Channel
from ..meeting_place import Greeting, peer_of
from ..pool import Pool
from ..serving import HostSession, KnownStatus

if TYPE_CHECKING:
    from ..messages import FleetSide


class Keeper:
    """Greets each program that connects to ``listener``, and serves it its part of ``pool``, which has started.

    Args:
        listener: a listening Unix socket; the keeper closes it.
        pool: closed at the end.
        greeting: what each program is told.
        lost: says why the pool's Ray is gone, "" while it is there.
        is_useless: says why the pool will never run anything again, "" while it may.
        leave: called once it is to end, while ``listener`` is still open.
        supervisor: the pool's, if it is in this process.
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
        supervisor: Callable[[], KnownStatus | None] = lambda: None,
    ) -> None:
        listener.settimeout(0)
        self._listener = listener
        self._pool = pool
        self._greeting = greeting
        self._lost = lost
        self._is_useless = is_useless
        self._leave = leave
        self._supervisor = supervisor
        self._sessions = Background(self._break)
        self._served = 0
        self._defect: BaseException | None = None
        self._over = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Have ``run`` end: programs that are connected lose what they run, as with a host that died."""
        self._over.set()

    async def run(self) -> None:
        """Serve until ``stop``, or until no program has been connected for the greeting's ``idle_s``."""
        self._rest()
        self._sessions.begin(self._accept(), "waiting for programs")
        try:
            await self._over.wait()
        finally:
            self._leave()
            self._listener.close()
            await self._sessions.end()
            await self._pool.aclose()
        if self._defect is not None:
            raise self._defect

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
        self._served += 1
        self._sessions.begin(self._serve(end), "a program")

    def _break(self, _task: str, error: BaseException) -> None:
        self._defect = error
        self.stop()

    def _rest(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(self._greeting.idle_s, self.stop)

    async def _serve(self, end: socket.socket) -> None:
        channel: Channel[FleetSide] = Channel(end, me="the warm fleet")
        try:
            with suppress(OSError):  # it is gone, which the channel finds too
                await asyncio.get_running_loop().sock_sendall(end, self._greeting.packed())
            await HostSession(self._pool, channel, self._lost, supervisor=self._supervisor).serve()
        except Exception as error:  # noqa: BLE001 - a program whose messages cannot be read is dropped, and it alone
            log(LogAction.DEFECT, f"a program was dropped: {type(error).__name__}: {error}", error=error)
        finally:
            channel.close()
            self._served -= 1
            if not self._served:
                self._rest()
