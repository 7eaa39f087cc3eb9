"""Which running work is given up early, because its node ends before it could finish. Pure; times are in seconds."""

from collections.abc import Iterable
from typing import Final

MARGIN_S: Final = 3.0
"""The end of a notice belongs to the supervisor, which ends the workers then."""
LONGEST_KEPT: Final = 0.9
"""How much of the longest time of a job's work counts after a shorter one: the work of one job differs."""


class WorkTimes:
    """When each piece of work began, and how long those of its job took."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[str, float]] = {}
        self._longest: dict[str, float] = {}

    def began(self, task: int, job: str, now_s: float) -> None:
        """Take note that a worker begins ``task``."""
        self._began[task] = job, now_s

    def ended(self, task: int, now_s: float, *, well: bool) -> None:
        """Take note that ``task`` has ended; twice is once."""
        job, began_s = self._began.pop(task, ("", now_s))
        if well and job:
            self._longest[job] = max(now_s - began_s, self._longest.get(job, 0.0) * LONGEST_KEPT)

    def forget(self, job: str) -> None:
        """Drop what is known of a job that is over."""
        self._longest.pop(job, None)

    def doomed(self, tasks: Iterable[int], left_s: float, now_s: float) -> list[int]:
        """Return which of these cannot finish within ``left_s``, as far as their jobs' earlier work tells."""
        found = []
        for task in tasks:
            job, began_s = self._began.get(task, ("", now_s))
            needed_s = self._longest.get(job, 0.0) - (now_s - began_s)
            if job in self._longest and needed_s > left_s - MARGIN_S:
                found.append(task)
        return found
