"""Decides how often heartbeats are read, and which workers that do not answer count as dead."""

from collections.abc import Iterable, Mapping
from typing import Final

from ...worker_names import WorkerId

INTERVAL_S: Final = 2.0
READS_MAX_PER_S: Final = 400
"""This many reads take about half a core of the supervisor, so the workers of larger fleets are read less often."""
TOGETHER_FACTOR: Final = 2
"""The limit for an answer is multiplied by this if most workers are late; it must then be less than ``fence_s``."""


def interval_s(workers: int) -> float:
    """Return how often the heartbeats of this many workers are read."""
    return max(INTERVAL_S, workers / READS_MAX_PER_S)


def are_late_together(late: Iterable[WorkerId], workers: int) -> bool:
    """Return whether most workers are late, on several nodes: then the supervisor or the network is slow, not they."""
    found = set(late)
    return 2 * len(found) > workers and len({worker.station.node for worker in found}) > 1


def silent_workers(waited_s: Mapping[WorkerId, float], workers: int, limit_s: float) -> list[WorkerId]:
    """Return which of ``workers`` workers count as dead; ``waited_s`` is how long each unanswered read has waited."""
    late = [worker for worker, each_s in waited_s.items() if each_s >= limit_s]
    if are_late_together(late, workers):
        limit_s *= TOGETHER_FACTOR
    return [worker for worker in late if waited_s[worker] >= limit_s]
