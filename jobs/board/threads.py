"""Runs blocking calls in threads, with three ways to treat a cancellation."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from ...actors.task_owner import consume_exception

ResultT = TypeVar("ResultT")

_IN_PLACE: Final = ContextVar("_IN_PLACE", default=False)


@contextmanager
def in_place() -> Iterator[None]:
    """Run the calls of this module in the caller's thread, for an event loop that has nothing else to do.

    For most calls, a thread would take longer than the call itself. No call is cancelled while it runs.
    """
    token = _IN_PLACE.set(True)
    try:
        yield
    finally:
        _IN_PLACE.reset(token)


def in_place_context() -> Context:
    """Return a copy of the current context in which this module's calls run ``in_place``."""
    context = copy_context()
    context.run(_IN_PLACE.set, True)  # noqa: FBT003 - the library's signature
    return context


def is_in_loop() -> bool:
    """Return whether this thread runs an event loop, which a blocking call would stop."""
    with suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


async def in_thread(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call in a thread; if cancelled, do not wait for it."""
    if _IN_PLACE.get():
        return call(*args, **options)
    return await asyncio.to_thread(call, *args, **options)


async def shielded(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call in a thread; if cancelled, wait for its end, because the caller then removes its files."""
    if _IN_PLACE.get():
        return call(*args, **options)
    running = _begun(partial(call, *args, **options))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():  # a group of tasks cancels again if another of its tasks fails meanwhile
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise


async def uncancellable(call: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:
    """Run a blocking call that cannot be undone; cancellations during the call are ignored."""
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
    """Start a call in a thread; asyncio does not warn of its error if the caller is cancelled before seeing it."""
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    running.add_done_callback(consume_exception)
    return running
