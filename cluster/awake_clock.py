"""A clock that stops while this process is stopped, for deadlines of other processes.

The monotonic clock runs on while Ctrl-Z, a suspended machine or a frozen container stops this process. By that
clock, every other process would seem to have been silent all that time.
"""

import time
from collections.abc import Callable


class AwakeClock:
    """Monotonic seconds; if more than ``gap_max_s`` passes between two readings, only ``gap_max_s`` counts."""

    def __init__(self, gap_max_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap_max_s = gap_max_s
        self._clock = clock
        self._read_s = self._now_s = clock()

    def __call__(self) -> float:
        """Return the clock's seconds; the first reading equals the monotonic clock."""
        read_s = self._clock()
        self._now_s += min(read_s - self._read_s, self._gap_max_s)
        self._read_s = read_s
        return self._now_s
