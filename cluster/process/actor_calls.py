"""Calls of workers that are not Ray's actors, in the words of those that are."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class ActorMethod:
    """A worker's method that is called the way Ray's actors' are: ``await worker.run.remote(...)``."""

    def __init__(self, call: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._call = call

    def options(self, **_options: object) -> "ActorMethod":
        """Return it: there are no concurrency groups."""
        return self

    def remote(self, *arguments: object) -> "asyncio.Task[Any]":
        """Begin the call; it need not be awaited."""
        task = asyncio.create_task(self._call(*arguments))
        task.add_done_callback(_consume)
        return task


def _consume(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
