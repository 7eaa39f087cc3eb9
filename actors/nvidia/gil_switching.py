"""Lets the threads that decode on a GPU exchange the GIL more often than Python's default."""

import sys
import threading
from typing import Final

SWITCH_INTERVAL_S: Final = 1e-4
"""How often a thread must offer the GIL. A dozen threads exchange it thousands of times a second: Python's default of 5
ms costs a quarter of the speed.
"""
_HALF_MICROSECOND_S: Final = 5e-7


class QuickSwitching:
    """Shortens Python's switch interval while at least one thread is inside, and then restores it. Thread-safe."""

    def __init__(self) -> None:
        # Reentrant, because the garbage collector may give a session back here.
        self._lock = threading.RLock()
        self._inside = 0
        self._usual_s = self._ours_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual_s = sys.getswitchinterval()
                _set_interval(min(SWITCH_INTERVAL_S, self._usual_s))
                self._ours_s = sys.getswitchinterval()
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            # The program may have chosen another interval meanwhile, which then stays.
            if not self._inside and sys.getswitchinterval() == self._ours_s:
                _set_interval(self._usual_s)


def _set_interval(seconds: float) -> None:
    """Set Python's switch interval; Python cuts it to whole microseconds, so that 50 us would become 49 us."""
    sys.setswitchinterval(seconds + _HALF_MICROSECOND_S)


QUICK_SWITCHING: Final = QuickSwitching()
"""This process's, for the pools of all its GPUs."""
