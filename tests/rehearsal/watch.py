"""What happens to the jobs while they run: progress of each, and what the tenants use."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from codecfleet import Queue, QueuedJob, QueueState
from codecfleet.errors import QueueUnavailable
from tests.queue_progress import redone, segments_of

LOOK_S: Final = 0.25


@dataclass
class Watch:
    """Looks at the queue and at the journals beside the outputs, until all jobs are over."""

    queue: Queue
    folder: Path  #: of the outputs
    began_s: float = field(default_factory=time.monotonic)
    jobs: tuple[QueuedJob, ...] = ()  #: as last seen
    segments: dict[str, tuple[int, int]] = field(default_factory=dict)  #: finished ones and all, by output
    moves: dict[str, list[float]] = field(default_factory=dict)  #: when an output got another segment, or was done
    claims: dict[tuple[str, int], float] = field(default_factory=dict)  #: when an attempt was first seen
    fair: tuple[float, dict[str, float]] = (0.0, {})  #: the last time when all tenants had jobs queued; their use

    @property
    def over(self) -> int:
        """How many jobs have ended."""
        return sum(job.state.is_over for job in self.jobs)

    @property
    def now_s(self) -> float:
        """The time since the beginning."""
        return time.monotonic() - self.began_s

    async def run(self) -> None:
        """Look until all jobs are over."""
        while not self.jobs or self.over < len(self.jobs):
            await asyncio.to_thread(self._look_at_journals)
            with suppress(QueueUnavailable):  # its server may be stopped
                await self._look_at_queue()
            await asyncio.sleep(LOOK_S)

    def _look_at_journals(self) -> None:
        if (found := segments_of(self.folder)) is None:
            return
        for output in found | self.segments:
            if found.get(output, (-1, 0))[0] != self.segments.get(output, (0, 0))[0]:
                self.moves.setdefault(output, []).append(self.now_s)
        self.segments = found

    async def _look_at_queue(self) -> None:
        self.jobs = await self.queue.list()
        for job in self.jobs:
            self.claims.setdefault((job.job_id, job.attempt), self.now_s)
        tenants = await self.queue.tenants()
        if all(tenant.queued for tenant in tenants):
            self.fair = self.now_s, {tenant.name: tenant.use.used_s for tenant in tenants}

    def running(self) -> list[QueuedJob]:
        """Return the running jobs."""
        return [job for job in self.jobs if job.state is QueueState.RUNNING]

    def begun(self) -> list[QueuedJob]:
        """Return the running jobs that have a journal."""
        return [job for job in self.running() if job.command.arguments[2] in self.segments]

    def in_the_middle(self) -> list[QueuedJob]:
        """Return the running jobs with a finished segment, and two that have not begun."""
        middle = {output for output, (done, segments) in self.segments.items() if 0 < done <= segments - 3}
        return [job for job in self.running() if job.command.arguments[2] in middle]

    def moved_s(self, job: QueuedJob, after_s: float) -> float | None:
        """Return when a job got another segment, or was done, after a time."""
        return next((at_s for at_s in self.moves.get(job.command.arguments[2], ()) if at_s > after_s), None)

    async def redone(self) -> int:
        """Return how many segments were started again so far."""
        printed = [(await self.queue.output(job.job_id)).text for job in await self.queue.list()]
        return sum(map(redone, printed))
