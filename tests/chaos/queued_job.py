"""The job of a queue that is under attack, as the queue and the job's journal describe it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from codecfleet.cluster.queue.store import JobStore
from codecfleet.cluster.queue.values import QueuedJob
from codecfleet.errors import QueueUnavailable
from tests.queue_progress import segments_of

from .schedule import SEGMENTS

LOOK_S: Final = 0.05
ASK_S: Final = 0.25


@dataclass
class WatchedJob:
    """A submitted job. One thread asks the queue and another reads the journal, since the database may hang."""

    store: JobStore
    output: Path
    job: QueuedJob  #: as last seen
    done: int = 0  #: finished segments
    moves: list[tuple[float, int]] = field(default_factory=list)  #: when, on the monotonic clock, it had how many
    is_closed: bool = False
    news: threading.Condition = field(default_factory=threading.Condition)
    threads: list[threading.Thread] = field(default_factory=list)

    def watch(self) -> "WatchedJob":
        """Look until the job is over, or ``close``."""
        for look, every_s in ((self._ask, ASK_S), (self.read, LOOK_S)):
            self.threads.append(threading.Thread(target=self._repeat, args=(look, every_s), daemon=True))
            self.threads[-1].start()
        return self

    def _repeat(self, look: Callable[[], object], every_s: float) -> None:
        while not self.is_over and not self.is_closed:
            look()
            time.sleep(every_s)

    def close(self) -> None:
        """Look no more."""
        self.is_closed = True
        for thread in self.threads:
            thread.join()

    @property
    def is_over(self) -> bool:
        """Whether the queue has recorded the job's end."""
        return self.job.state.is_over

    @property
    def is_published(self) -> bool:
        """Whether there is nothing left to strike."""
        return self.is_over or self.output.exists()

    def wait_for_segments(self, count: int, until_s: float) -> bool:
        """Wait until ``count`` segments are finished; return False if the job was over earlier, or time is up."""
        with self.news:
            self.news.wait_for(
                lambda: self.done >= count or self.is_published, timeout=max(0.0, until_s - time.monotonic())
            )
        return self.done >= count and not self.is_published

    def next_s(self, done: int) -> float | None:
        """Return when it had more than that many finished segments; None if it never had."""
        return next((at_s for at_s, count in self.moves if count > done), None)

    def wait(self, until_s: float) -> QueuedJob:
        """Return the job when it is over or time is up."""
        with self.news:
            self.news.wait_for(lambda: self.is_over, timeout=max(0.0, until_s - time.monotonic()))
        return self.job

    def read(self) -> int:
        """Read the journal; return how many segments are finished."""
        is_published, found = self.output.exists(), segments_of(self.output)
        with self.news:
            done = self.done
            if is_published:
                done = SEGMENTS
            elif found is not None:
                ((done, _),) = found.values() or ((done, 0),)
            if done > self.done:
                self.moves.append((time.monotonic(), done))
                self.done = done
                self.news.notify_all()
            return self.done

    def _ask(self) -> None:
        with suppress(QueueUnavailable):
            job = self.store.job(self.job.job_id)
            with self.news:
                self.job = job
                self.news.notify_all()
