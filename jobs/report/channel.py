"""A job's events, kept in order: every listener gets all of them, whenever it begins to listen."""

import asyncio
from collections.abc import AsyncIterator

from .events import Event, Progress


class EventChannel:
    """One writer, any number of listeners. Progress that newer progress overtook is skipped; nothing else is."""

    def __init__(self) -> None:
        self._events: list[tuple[int, Event]] = []
        self._sent = 0
        self._closed = False
        self._changed = asyncio.Condition()

    async def send(self, event: Event) -> None:
        """Add an event and wake the listeners."""
        async with self._changed:
            if isinstance(event, Progress) and self._events and isinstance(self._events[-1][1], Progress):
                # Overtaken before anything else happened: the memory of a job does not grow with its duration.
                self._events.pop()
            self._sent += 1
            self._events.append((self._sent, event))
            self._changed.notify_all()

    async def close(self) -> None:
        """Say that nothing follows; listeners end once they have received everything."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def listen(self) -> AsyncIterator[Event]:
        """Yield every event from the first on, except progress that newer progress has overtaken."""
        seen = 0
        while True:
            async with self._changed:
                while seen == self._sent and not self._closed:
                    await self._changed.wait()
                fresh = [event for number, event in self._events if number > seen]
                seen = self._sent
            if not fresh:
                return
            latest = max((n for n, event in enumerate(fresh) if isinstance(event, Progress)), default=-1)
            for number, event in enumerate(fresh):
                if not isinstance(event, Progress) or number == latest:
                    yield event
