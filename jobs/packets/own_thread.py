"""One thread for one session: calls run in it one after the other, whether a caller waits or awaits.

A session of a driver belongs to one thread, and the caller's current CUDA device stays what it is.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from ...errors import UsageError

ResultT = TypeVar("ResultT")


class OwnThread:
    """A session with a thread of its own: use it with ``with`` or ``async with``, or ``close`` it.

    Args:
        name: what it is, for errors.
        last: the call that ends it.
    """

    def __init__(self, name: str, last: Callable[[], None]) -> None:
        self._name = name
        self._last = last
        self._thread: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix=f"codecfleet-{name}")
        self._process = os.getpid()

    def close(self) -> None:
        """Release it. Idempotent; in a fork of its process it does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None and os.getpid() == self._process:
            with thread:
                thread.submit(self._last).result()

    async def aclose(self) -> None:
        """Do as ``close``, awaited."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.aclose()

    def _call(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:  # noqa: ANN401 - passed on
        """Run a call, and wait for it; ``UsageError`` once closed."""
        return self._submitted(function, *args, **options).result()

    async def _awaited(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> ResultT:  # noqa: ANN401 - passed on
        """Run a call, and await it; one that is cancelled runs to its end, and its result is lost."""
        return await asyncio.shield(asyncio.wrap_future(self._submitted(function, *args, **options)))

    def _submitted(self, function: Callable[..., ResultT], *args: Any, **options: Any) -> Future[ResultT]:  # noqa: ANN401 - passed on
        thread = self._thread
        if os.getpid() != self._process:
            message = f"the {self._name} belongs to process {self._process}, not to its fork"
            raise UsageError(message, "Open another one.")
        try:
            if thread is not None:
                return thread.submit(function, *args, **options)
        except RuntimeError:  # another thread closed it just now, or the interpreter ends
            pass
        raise UsageError(f"the {self._name} is closed", "Open another one.")
