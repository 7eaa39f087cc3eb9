"""A job's own events: sent with the time since the job began, and with the duration of each stage."""

import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from .channel import EventChannel
from .events import Event, Warned

ResultT = TypeVar("ResultT")


class JobEvents:
    """Sends the events of one job; its clock starts when it is created.

    Args:
        job: its name.
        channel: where its listeners are.
    """

    def __init__(self, job: str, channel: EventChannel) -> None:
        self._job = job
        self._channel = channel
        self._began = time.monotonic()
        self.stages_s: dict[str, float] = {}
        self._waits_for = ""

    @property
    def elapsed_s(self) -> float:
        """How long the job has run."""
        return time.monotonic() - self._began

    async def emit(self, kind: type[Event], **fields: Any) -> None:  # noqa: ANN401 - each event's own fields
        """Send an event."""
        await self._channel.send(kind(job=self._job, at_s=round(self.elapsed_s, 3), **fields))

    async def emit_waiting(self, reason: str) -> None:
        """Say why there is no worker, unless that was the last reason given."""
        if reason and reason != self._waits_for:
            self._waits_for = reason
            await self.emit(Warned, code="waiting", message=f"no worker yet: {reason}")

    async def timed(self, stage: str, work: Awaitable[ResultT]) -> ResultT:
        """Await a stage's work and record how long it took."""
        began = time.monotonic()
        result = await work
        self.stages_s[stage] = round(time.monotonic() - began, 4)
        return result
