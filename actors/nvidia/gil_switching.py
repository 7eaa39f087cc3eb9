"""Lets the threads that decode on a GPU exchange the GIL more often than Python's default."""

import sys
import threading
from typing import Final

SWITCH_INTERVAL_S: Final = 1e-4
"""How often a thread must offer the GIL. A dozen threads exchange it thousands of times a second: Python's default of 5
ms costs a quarter of the speed.
"""


class QuickSwitching:
    """Shortens Python's switch interval while at least one thread is inside, and then restores it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._usual_s = self._ours_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual_s = sys.getswitchinterval()
                sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._usual_s))
                self._ours_s = sys.getswitchinterval()
            self._inside += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            # The program may have chosen another interval meanwhile, which then stays.
            if not self._inside and sys.getswitchinterval() == self._ours_s:
                sys.setswitchinterval(self._usual_s)


QUICK_SWITCHING: Final = QuickSwitching()
"""This process's, for the pools of all its GPUs."""
