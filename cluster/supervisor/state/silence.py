"""Decides how often heartbeats are read, and which workers that do not answer count as dead."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...worker_names import WorkerId

INTERVAL_S: Final = 2.0
READS_MAX_PER_S: Final = 400
"""This many reads a second use about half a core of the supervisor, so larger fleets are read less often."""
TOGETHER_FACTOR: Final = 2
"""If most workers are late, the limit for an answer is multiplied by this; the product must be below ``fence_s``."""


def interval_s(workers: int) -> float:
    """Return how often the heartbeats of this many workers are read."""
    return max(INTERVAL_S, workers / READS_MAX_PER_S)


def are_late_together(late: Iterable[WorkerId], workers: int) -> bool:
    """Return whether most workers are late, on several nodes: the supervisor or the network is then the cause."""
    found = set(late)
    return 2 * len(found) > workers and len({worker.station.node for worker in found}) > 1


def silent_workers(waited_s: Mapping[WorkerId, float], workers: int, limit_s: float) -> list[WorkerId]:
    """Return the workers that count as dead, of ``workers`` in all; ``waited_s`` is the age of each unanswered read."""
    late = [worker for worker, each_s in waited_s.items() if each_s >= limit_s]
    if are_late_together(late, workers):
        limit_s *= TOGETHER_FACTOR
    return [worker for worker in late if waited_s[worker] >= limit_s]
