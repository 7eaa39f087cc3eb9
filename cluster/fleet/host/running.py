"""The running host: serves its pool to one fleet, or to all programs that connect."""

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from ....actors.background import Background
from ....actors.process.channel import Channel
from ....errors import CodecfleetError
from ...logs.actions import LogAction
from ...logs.writing import log
from ...version import VERSION
from ..leases.leased_pool import LeasedPool
from ..meeting_place import Greeting, code_name, leave, locked_place, peer_of
from ..messages import BEAT_S, CLOSING_S
from ..serving import HostSession, ServedPool
from ..warm import greeted

if TYPE_CHECKING:
    from ..messages import FleetSide


async def serve_one(pool: LeasedPool, end: socket.socket) -> None:
    """Serve ``pool`` to the fleet that started this process, until that fleet closes the pool or dies."""
    end_with_ray(lambda: pool.lost)
    try:
        await HostSession(_served(pool), Channel(end, me="the fleet's host")).serve()
    finally:
        with suppress(TimeoutError):  # connections that are not closed in time end with this process
            async with asyncio.timeout(CLOSING_S):
                await pool.aclose()


async def serve_many(pool: LeasedPool, idle_s: float, starter: socket.socket) -> None:
    """Serve as the user's warm fleet until asked to end, or until no program has been connected for ``idle_s``.

    If a warm fleet of this code already runs, only report its process to ``starter``.
    """
    name = code_name()
    try:
        with locked_place() as place:  # held until this fleet listens, so that no second fleet starts
            if (other := greeted(place, name)) is not None:
                other.end.close()
                _tell(starter, other.process, other.greeting, is_new=False)
                return
            await pool.start()
            listener, inode = place.listen(name), place.inode(name)
        greeting, end = Greeting(VERSION or "unknown", pool.state.slots, idle_s), partial(leave, name, inode)
        server = WarmServer(listener, _served(pool), greeting, end)
        end_with_ray(lambda: pool.lost, end)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, server.stop)
        _tell(starter, os.getpid(), greeting, is_new=True)
        await server.run()
    except CodecfleetError as error:
        _exit(str(error))


class WarmServer:
    """Greets each program that connects to ``listener``, and lets the program use a started pool.

    At the end, calls ``leave`` and closes the listener and the pool.
    """

    def __init__(
        self, listener: socket.socket, served: ServedPool, greeting: Greeting, leave: Callable[[], object] = bool
    ) -> None:
        listener.settimeout(0)
        self._listener = listener
        self._served = served
        self._greeting = greeting
        self._leave = leave
        self._sessions = Background(self._break)
        self._programs = 0
        self._defect: BaseException | None = None
        self._over = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Make ``run`` return; connected programs lose their running work, as they do when a host dies."""
        self._over.set()

    async def run(self) -> None:
        """Serve until ``stop`` is called, or until no program has been connected for the greeting's ``idle_s``."""
        self._wait_idle()
        self._sessions.spawn("waiting for programs", self._accept())
        try:
            await self._over.wait()
        finally:
            self._leave()
            self._listener.close()
            await self._sessions.end()
            await self._served.pool.aclose()
        if self._defect is not None:
            raise self._defect

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            end, _ = await loop.sock_accept(self._listener)
            if peer_of(end)[1] != os.geteuid():
                end.close()
            elif self._served.spent():
                end.close()
                self.stop()
            else:
                if self._idle is not None:
                    self._idle.cancel()
                self._programs += 1
                self._sessions.spawn("a program", self._serve(end))

    def _break(self, _task: str, error: BaseException) -> None:
        self._defect = error
        self.stop()

    def _wait_idle(self) -> None:
        self._idle = asyncio.get_running_loop().call_later(self._greeting.idle_s, self.stop)

    async def _serve(self, end: socket.socket) -> None:
        channel: Channel[FleetSide] = Channel(end, me="the warm fleet")
        try:
            with suppress(OSError):  # the channel also reports the end of the program
                await asyncio.get_running_loop().sock_sendall(end, self._greeting.packed())
            await HostSession(self._served, channel).serve()
        except Exception as error:  # noqa: BLE001 - unreadable messages affect only the program that sent them
            log(LogAction.DEFECT, f"a program was disconnected: {type(error).__name__}: {error}", error=error)
        finally:
            channel.close()
            self._programs -= 1
            if not self._programs:
                self._wait_idle()


def end_with_ray(lost: Callable[[], str], last_act: Callable[[], object] = bool) -> None:
    """When Ray has ended, call ``last_act`` and exit, because the event loop may hang in Ray for a minute."""

    def watch() -> None:
        while not (reason := lost()):
            time.sleep(BEAT_S)
        _exit(reason, last_act)

    threading.Thread(target=watch, name="codecfleet-watch", daemon=True).start()


def _exit(reason: str, last_act: Callable[[], object] = bool) -> NoReturn:
    sys.stderr.write(f"{reason}\n")  # the last line of stderr is shown to the user
    sys.stderr.flush()
    last_act()
    os._exit(1)


def _served(pool: LeasedPool) -> ServedPool:
    return ServedPool(pool, lambda: pool.lost, lambda: pool.spent, lambda: pool.client.supervisor)


def _tell(starter: socket.socket, process: int, greeting: Greeting, *, is_new: bool) -> None:
    with starter, suppress(OSError):  # the starter may be gone
        starter.sendall(json.dumps({"process": process, "is_new": is_new, "greeting": greeting}).encode())
