"""A session with its own thread, because drivers bind a session to a thread. Callers may block or await."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, Self, TypeVar

from ...errors import UsageError

CallP = ParamSpec("CallP")
ResultT = TypeVar("ResultT")


class OwnThread:
    """A session with its own thread; ``last`` is called in that thread at the end.

    Use ``with``, ``async with`` or ``close``.
    """

    def __init__(self, name: str, last: Callable[[], None]) -> None:
        self._name = name
        self._last = last
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix=f"codecfleet-{name}")
        self._process = os.getpid()

    def close(self) -> None:
        """Release the session. Idempotent. Does nothing in a fork of the session's process."""
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._process:
            with thread:
                thread.submit(self._last).result()

    async def aclose(self) -> None:
        """Run ``close`` without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _call(self, function: Callable[CallP, ResultT], *args: CallP.args, **options: CallP.kwargs) -> ResultT:
        """Run a call, and wait for it. Raises UsageError: the session is closed."""
        return self._submitted(function, *args, **options).result()

    async def _awaited(self, function: Callable[CallP, ResultT], *args: CallP.args, **options: CallP.kwargs) -> ResultT:
        """Run a call, and await it. A cancelled call runs to its end, but its result is lost."""
        return await asyncio.shield(asyncio.wrap_future(self._submitted(function, *args, **options)))

    def _submitted(
        self, function: Callable[CallP, ResultT], *args: CallP.args, **options: CallP.kwargs
    ) -> Future[ResultT]:
        thread = self._thread
        if os.getpid() != self._process:
            message = f"the {self._name} belongs to process {self._process}, not to its fork"
            raise UsageError(message, "Open another one.")
        try:
            if thread is not None:
                return thread.submit(function, *args, **options)
        except RuntimeError:  # another thread has just closed the session, or the interpreter is ending
            pass
        raise UsageError(f"the {self._name} is closed", "Open another one.")
