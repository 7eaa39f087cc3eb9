"""A job's events, kept in order: every listener hears the whole story, whenever it begins to listen."""

import asyncio
from collections.abc import AsyncIterator

from .events import Event, Progress

__all__ = ["EventChannel"]


class EventChannel:
    """One writer, any number of listeners. Progress that newer progress overtook is skipped; nothing else is."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._closed = False
        self._changed = asyncio.Condition()

    async def send(self, event: Event) -> None:
        """Add an event and wake the listeners."""
        async with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    async def close(self) -> None:
        """Say that nothing follows; listeners end once they have heard everything."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def listen(self) -> AsyncIterator[Event]:
        """Yield every event from the first on, except progress that newer progress has overtaken."""
        heard = 0
        while True:
            async with self._changed:
                while heard == len(self._events) and not self._closed:
                    await self._changed.wait()
                fresh = self._events[heard:]
                heard = len(self._events)
            if not fresh:
                return
            latest = max((n for n, event in enumerate(fresh) if isinstance(event, Progress)), default=-1)
            for number, event in enumerate(fresh):
                if not isinstance(event, Progress) or number == latest:
                    yield event
