"""Passes on a job's events, in order and with times. Every listener gets all events, even if it starts late."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ...actors.tracing import span
from ...cluster.grouping import counted
from ...cluster.logs.actions import LogAction
from ...cluster.logs.entry import LogIds
from ...cluster.logs.writing import log
from ...errors import redacted
from . import events
from .events import Event, Progress

ResultT = TypeVar("ResultT")


class EventChannel:
    """A channel with one writer and any number of listeners. Only outdated progress is skipped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._events: list[tuple[int, Event]] = []
        self._sent = 0
        self._closed = False
        self._changed = asyncio.Condition()
        self._clock = clock
        self._opened_s = clock()

    @property
    def elapsed_s(self) -> float:
        """The time since the channel was made, from which the times of events count."""
        return self._clock() - self._opened_s

    async def send(self, event: Event) -> None:
        """Add an event and wake the listeners."""
        async with self._changed:
            if isinstance(event, Progress) and self._events and isinstance(self._events[-1][1], Progress):
                # This replaces the previous progress event, so that a job's memory does not grow with its duration.
                self._events.pop()
            self._sent += 1
            self._events.append((self._sent, event))
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether the event that ends a job was sent."""
        return bool(self._events) and isinstance(self._events[-1][1], events.Done | events.Failed)

    async def close(self) -> None:
        """End the channel; listeners end once they have received everything."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def listen(self) -> AsyncIterator[Event]:
        """Yield every event from the beginning, except outdated progress."""
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


class JobEvents:
    """Sends the events of one job."""

    def __init__(self, job: str, channel: EventChannel) -> None:
        self._job = job
        self._channel = channel
        self._began = time.monotonic()
        self.stages_s: dict[str, float] = {}
        self.traceparent = ""  #: the job's span, which is the parent of its stages' spans; "" if there is none
        self._waits_for = ""

    @property
    def elapsed_s(self) -> float:
        """The time since the job began to run."""
        return time.monotonic() - self._began

    async def emit(self, kind: type[Event], **fields: Any) -> None:  # noqa: ANN401 - each event's own fields
        """Send an event, with addresses redacted."""
        shown = {name: redacted(value) if isinstance(value, str) else value for name, value in fields.items()}
        event = kind(job=self._job, at_s=round(self._channel.elapsed_s, 3), **shown)
        log_event(event)
        await self._channel.send(event)

    async def emit_waiting(self, reason: str) -> None:
        """Report why there is no worker, unless the last report gave the same reason."""
        if reason and reason != self._waits_for:
            self._waits_for = reason
            await self.emit(events.Warned, code="waiting", message=f"no worker yet: {reason}")

    async def timed(self, stage: str, work: Awaitable[ResultT]) -> ResultT:
        """Report the beginning of a stage, await the stage's work, and record its duration."""
        began = time.monotonic()
        try:
            await self.emit(events.StageStarted, stage=stage)
        except asyncio.CancelledError:
            if isinstance(work, Coroutine):
                work.close()
            raise
        with span(stage, self.traceparent, job=self._job):
            result = await work
        self.stages_s[stage] = round(time.monotonic() - began, 4)
        return result


def log_event(event: Event) -> None:
    """Log an event for operators: a plan, resumed work, a warning, a retry or second run, a finished segment or output.

    ``Job`` logs failures.
    """
    match event:
        case events.Planned():
            line = f"{counted(event.segments, 'segment')}, {counted(event.frames, 'frame')} to {event.encoder}"
            _log(LogAction.JOB_PLANNED, line, event)
        case events.JournalOpened() if event.restored:
            _log(LogAction.JOB_RESUMED, f"{counted(event.restored, 'segment')} finished by an earlier run", event)
        case events.Warned():
            _log(LogAction.JOB_WARNED, f"{event.message} [{event.code}]", event)
        case events.SegmentStarted() if event.is_second or event.attempt > 1:
            action = LogAction.SEGMENT_DOUBLED if event.is_second else LogAction.SEGMENT_RETRIED
            late = "is late, and runs a second time elsewhere"
            line = f"segment {event.segment} {late if event.is_second else f'begins its try {event.attempt}'}"
            _log(action, line, event, event.segment, event.attempt)
        case events.SegmentFinished():
            line = f"segment {event.segment} is done: {counted(event.frames, 'frame')} in {event.wall_s:.1f} s"
            _log(LogAction.SEGMENT_DONE, line, event, event.segment)
        case events.Done():
            report = event.report
            line = f"{report.output} is published: {counted(report.frames, 'frame')} in {event.at_s:.1f} s"
            _log(LogAction.JOB_DONE, line, event)


def _log(action: LogAction, line: str, event: Event, segment: int | None = None, attempt: int | None = None) -> None:
    log(action, line, LogIds(job=event.job, segment=segment, attempt=attempt))
