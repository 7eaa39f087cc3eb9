"""The running warm fleet: from the start of its pool to the last file that it removes."""

import asyncio
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from ....errors import CodecfleetError
from ..leases.connected_pool import ConnectedPool
from ..meeting_place import Greeting, MeetingPlace, code_name, locked_place
from ..warm import greeted
from .keeper import Keeper
from .running import end_with_ray


def run(pool: ConnectedPool, idle_s: float, starter: socket.socket) -> None:
    """Serve ``pool`` to its end, and end this process; ``starter`` hears once that it is ready, or of another."""
    code = 1
    try:
        asyncio.run(_run(pool, idle_s, starter))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the last line is told to the user
        traceback.print_exc()
        if isinstance(error, CodecfleetError):
            print(error, file=sys.stderr)  # noqa: T201 - as above
    sys.stderr.flush()
    os._exit(code)  # the interpreter's own exit would wait for threads, and for a Ray that may be gone


async def _run(pool: ConnectedPool, idle_s: float, starter: socket.socket) -> None:
    name = code_name()
    with locked_place() as place:  # until it listens: another that starts meanwhile waits, and finds it
        if (other := greeted(place, name)) is not None:
            other.end.close()
            _tell(starter, other.process, other.greeting, is_new=False)
            return
        await pool.start()
        listener, inode = place.listen(name), place.inode(name)
    greeting, leave = Greeting(_version(), pool.slots, idle_s), partial(_leave, name, inode)
    keeper = Keeper(listener, pool, greeting, lost=pool.lost, is_useless=pool.spent, leave=leave)
    end_with_ray(pool.lost, leave)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, keeper.stop)
    _tell(starter, os.getpid(), greeting, is_new=True)
    await keeper.run()


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
