"""Running blocking calls in threads, with three answers to "and if the job is cancelled meanwhile?"."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from ...actors.task_owner import consume_exception

ResultT = TypeVar("ResultT")

_IN_PLACE: Final = ContextVar("_IN_PLACE", default=False)


@contextmanager
def in_place() -> Iterator[None]:
    """Have what is begun inside run blocking calls where it runs itself: in a loop that does nothing else meanwhile.

    There a thread for each call costs more than most calls; and no call is cancelled while it runs.
    """
    token = _IN_PLACE.set(True)
    try:
        yield
    finally:
        _IN_PLACE.reset(token)


async def in_thread(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call in a thread; when cancelled, leave it to end on its own."""
    if _IN_PLACE.get():
        return call(*args, **options)
    return await asyncio.to_thread(call, *args, **options)


async def shielded(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call in a thread; when cancelled, wait for it first: it holds files that will be removed."""
    if _IN_PLACE.get():
        return call(*args, **options)
    running = _begun(partial(call, *args, **options))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


async def uncancellable(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call that cannot be taken back: a cancellation that comes meanwhile comes too late."""
    if _IN_PLACE.get():
        return call(*args, **options)
    running = _begun(partial(call, *args, **options))
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            if (current := asyncio.current_task()) is not None:
                current.uncancel()
    return running.result()


def _begun(call: Callable[[], ResultT]) -> asyncio.Future[ResultT]:
    """Begin a call in a thread; its caller waits for it, but may be cancelled before it sees an error."""
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    running.add_done_callback(consume_exception)
    return running
