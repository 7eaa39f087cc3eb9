"""Waiting for an output that another process holds, and never without end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ...errors import OutputInUse
from ..join.owner import LEASE_S, RENEWED_EVERY_S

IN_USE_S: Final = LEASE_S + RENEWED_EVERY_S
"""How long to wait for the process that holds an output: until the lease of a machine that died has ended.

A killed process of this machine holds it until the kernel has cleaned up, which takes seconds on a busy machine.
"""
_POLL_S: Final = 0.25
ResultT = TypeVar("ResultT")


async def when_free(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Await ``call``, again and again while another process holds the output, for ``IN_USE_S`` at most.

    Raises:
        OutputInUse: it still does.
    """
    for _ in range(int(IN_USE_S / _POLL_S)):
        with suppress(OutputInUse):
            return await call()
        await asyncio.sleep(_POLL_S)
    return await call()
