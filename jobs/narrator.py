"""Saying where a job stands: its events, with the time since it began, and how long each stage took."""

import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from .channel import EventChannel
from .events import Event, Warned

__all__ = ["Narrator"]

ResultT = TypeVar("ResultT")


class Narrator:
    """The voice of one job; its clock begins with it.

    Args:
        job: its name.
        channel: who listens.
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

    async def say(self, kind: type[Event], **fields: Any) -> None:  # noqa: ANN401 - each event's own fields
        """Tell an event."""
        await self._channel.send(kind(job=self._job, at_s=round(self.elapsed_s, 3), **fields))

    async def say_waiting(self, reason: str) -> None:
        """Say why there is no worker, unless that is what was said last."""
        if reason and reason != self._waits_for:
            self._waits_for = reason
            await self.say(Warned, code="waiting", message=f"no worker yet: {reason}")

    async def staged(self, stage: str, work: Awaitable[ResultT]) -> ResultT:
        """Await a stage's work, and note how long it took."""
        began = time.monotonic()
        result = await work
        self.stages_s[stage] = round(time.monotonic() - began, 4)
        return result
