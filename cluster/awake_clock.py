"""Time in which this process ran, for deadlines on others.

Ctrl-Z, a suspended machine or a frozen container stop a process, but not the monotonic clock: everybody else would seem
to have been silent.
"""

import time
from collections.abc import Callable


class AwakeClock:
    """Monotonic seconds; two readings further apart than ``gap_max_s`` count as that far apart.

    Args:
        gap_max_s: more than the time between two readings of a process that runs.
    """

    def __init__(self, gap_max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap_max_s = gap_max_s
        self._clock = clock
        self._read_s = self._now_s = clock()

    def __call__(self) -> float:
        """Return the seconds, which began at the monotonic clock's."""
        read_s = self._clock()
        self._now_s += min(read_s - self._read_s, self._gap_max_s)
        self._read_s = read_s
        return self._now_s
