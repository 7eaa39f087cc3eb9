"""Functions for a started program: to begin, to serve the process that started it, and to end."""

import asyncio
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn

from .channel import Channel
from .process import BUILD
from .running import end_with


def begin() -> tuple[socket.socket, list[Any]]:
    """Return this program's end of the channel, and its settings.

    From now on the kernel ends the program with the thread that started it, unless it was started to outlive the
    thread.
    """
    build, starter, program, *settings = json.loads(sys.argv[1])
    if starter:
        end_with(starter)
    if build != BUILD:
        sys.exit("codecfleet was replaced while this process ran: start it again")
    sys.argv[:] = program
    end = socket.socket(fileno=os.dup(0))
    with Path(os.devnull).open("rb", buffering=0) as nothing:
        os.dup2(nothing.fileno(), 0)  # child processes do not read from the channel
    return end, settings


async def serve_parent(
    end: socket.socket, server: Callable[[Channel[Any]], object], *, me: str = "the process"
) -> None:
    """Serve the process that started this one until that process is gone.

    ``server`` gets the channel, and returns the object that answers requests; ``me`` is as for ``Channel``.
    """
    channel: Channel[Any] = Channel(end, me=me)
    channel.serves = server(channel)
    if trouble := await channel.run():
        raise ConnectionError(trouble)


def run_to_the_end(program: Coroutine[Any, Any, object]) -> NoReturn:
    """Run a program in an event loop, and end this process without the interpreter's exit, which waits for threads."""
    code = 1
    try:
        asyncio.run(program)
        code = 0
    except BaseException:  # noqa: BLE001 - the process that started this one reads the last line of output
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
