"""Protects open channels and event loops from forks of their process.

A fork shares channels and loops with its parent, so the fork's clean-up could end the parent's calls, or remove sockets
from the parent's event loop. A fork therefore gets inert files with the same descriptors.
"""

import asyncio
import os
import select
import selectors
import socket
from pathlib import Path
from typing import Final
from weakref import WeakSet

_ENDS: Final[WeakSet[socket.socket]] = WeakSet()
_LOOPS: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


def keep_from_children(*ends: socket.socket) -> None:
    """Keep forks from using the running event loop and these sockets."""
    _LOOPS.add(asyncio.get_running_loop())
    _ENDS.update(ends)


def _part() -> None:
    for end in _ENDS:
        if end.fileno() >= 0:
            with Path(os.devnull).open("r+b", buffering=0) as nothing:
                os.dup2(nothing.fileno(), end.fileno(), inheritable=False)
    for loop in _LOOPS:
        selector = getattr(loop, "_selector", None)  # a private attribute, which other kinds of loops lack
        if isinstance(selector, selectors.EpollSelector) and not loop.is_closed():
            with select.epoll() as fresh:
                os.dup2(fresh.fileno(), selector.fileno(), inheritable=False)


os.register_at_fork(after_in_child=_part)
