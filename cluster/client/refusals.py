"""Work whose encoder session was refused for the number of sessions waits, instead of failing.

The supervisor learns of the refusal within a heartbeat, and grants fewer slots.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ...errors import SessionLimit

ResultT = TypeVar("ResultT")

WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Together a minute: sessions of a usual segment end in less."""


async def when_admitted(
    submit: Callable[[], Awaitable[ResultT]], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> ResultT:
    """Submit work until no session limit refuses it; its slot is free while it waits.

    Raises:
        SessionLimit: it was still refused after a minute.
        CodecfleetError: what ``submit`` raises otherwise.
    """
    for wait_s in WAITS_S:
        try:
            return await submit()
        except SessionLimit:
            await sleep(wait_s)
    return await submit()
