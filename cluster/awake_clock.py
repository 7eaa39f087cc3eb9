"""A clock that stops while this process is stopped, for deadlines of other processes.

Ctrl-Z, a suspended machine or a frozen container stops a process, but not the monotonic clock. By the monotonic clock,
all other processes would seem to have been silent meanwhile.
"""

import time
from collections.abc import Callable


class AwakeClock:
    """Monotonic seconds. A longer gap between two readings than ``gap_max_s`` counts as ``gap_max_s``."""

    def __init__(self, gap_max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap_max_s = gap_max_s
        self._clock = clock
        self._read_s = self._now_s = clock()

    def __call__(self) -> float:
        """Return the seconds; the first reading is that of the monotonic clock."""
        read_s = self._clock()
        self._now_s += min(read_s - self._read_s, self._gap_max_s)
        self._read_s = read_s
        return self._now_s
