"""The running host: a pool, served to one fleet, or to all programs that connect."""

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
from importlib.metadata import PackageNotFoundError, version

from ....errors import CodecfleetError
from ...process.channel import Channel
from ..leases.leased_pool import LeasedPool
from ..meeting_place import Greeting, MeetingPlace, code_name, locked_place
from ..messages import BEAT_S, CLOSING_S
from ..serving import HostSession
from ..warm import greeted
from .keeper import Keeper


async def serve_one(pool: LeasedPool, end: socket.socket) -> None:
    """Serve ``pool`` to the fleet that started this process, until it closes it or is gone."""
    end_with_ray(lambda: pool.lost)
    try:
        await HostSession(pool, Channel(end, me="the fleet's host"), lambda: pool.lost).serve()
    finally:
        with suppress(TimeoutError):  # what does not end by itself ends with this process
            async with asyncio.timeout(CLOSING_S):
                await pool.aclose()


async def serve_many(pool: LeasedPool, idle_s: float, starter: socket.socket) -> None:
    """Be the user's warm fleet to its end; ``starter`` hears once that it is ready, or of another."""
    try:
        await _serve_many(pool, idle_s, starter)
    except CodecfleetError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201 - the user sees the last line
        os._exit(1)


async def _serve_many(pool: LeasedPool, idle_s: float, starter: socket.socket) -> None:
    name = code_name()
    with locked_place() as place:  # until it listens: another that starts meanwhile waits, and finds it
        if (other := greeted(place, name)) is not None:
            other.end.close()
            _tell(starter, other.process, other.greeting, is_new=False)
            return
        await pool.start()
        listener, inode = place.listen(name), place.inode(name)
    greeting, leave = Greeting(_version(), pool.state.slots, idle_s), partial(_leave, name, inode)
    keeper = Keeper(
        listener,
        pool,
        greeting,
        lost=lambda: pool.lost,
        is_useless=lambda: pool.spent,
        leave=leave,
        supervisor=lambda: pool.supervisor,
    )
    end_with_ray(lambda: pool.lost, leave)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, keeper.stop)
    _tell(starter, os.getpid(), greeting, is_new=True)
    await keeper.run()


def end_with_ray(lost: Callable[[], str], last_act: Callable[[], object] = bool) -> None:
    """Have this process end once its Ray is gone, after ``last_act``; the event loop may hang in Ray for a minute."""

    def watch() -> None:
        while not (reason := lost()):
            time.sleep(BEAT_S)
        print(reason, file=sys.stderr, flush=True)  # noqa: T201 - the user sees the last line
        last_act()
        os._exit(1)

    threading.Thread(target=watch, name="codecfleet-watch", daemon=True).start()


def _tell(starter: socket.socket, process: int, greeting: Greeting, *, is_new: bool) -> None:
    with starter, suppress(OSError):  # it was interrupted meanwhile
        starter.sendall(json.dumps({"process": process, "is_new": is_new, "greeting": greeting}).encode())


def _leave(name: str, inode: int) -> None:
    """Remove our socket, and the directory with the last one; a fleet that is just starting there keeps it."""
    with suppress(OSError, CodecfleetError), MeetingPlace.open(make=False) as place:
        if place.inode(name) == inode:
            place.remove(name)
        if place.lock(waits=False):
            place.remove_if_empty()


def _version() -> str:
    try:
        return version("codecfleet")
    except PackageNotFoundError:
        return "unknown"
