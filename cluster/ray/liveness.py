"""Watches the processes of a private Ray, notices when they die, and wakes suspended processes."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..awake_clock import AwakeClock

SUSPENDED_S: Final = 5.0
"""How long a process may be suspended while this process runs. After Ctrl-Z and `fg`, all processes continue within
milliseconds."""
WAKES_MAX: Final = 3
_GAP_MAX_S: Final = 2.0
_ENDED = "ZX"
_SUSPENDED = "T"


class Liveness:
    """Watches the processes of a Ray node that this process started. The node needs all these processes."""

    def __init__(
        self,
        processes: Iterable[int] = (),
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[int], None] = lambda process: os.kill(process, signal.SIGCONT),
    ) -> None:
        self._processes = frozenset(filter(state_of, processes))
        self._clock = AwakeClock(_GAP_MAX_S, clock)
        self._wake = wake
        self._since_s: float | None = None
        self._wakes = 0

    def why_ended(self) -> str:
        """Return why this Ray is lost; "" while it runs. Call this about once a second."""
        states = {process: state_of(process) for process in self._processes}
        if not all(states.values()):
            return "one of its processes died"
        suspended = [process for process, state in states.items() if state == _SUSPENDED]
        now_s = self._clock()
        if not suspended or self._since_s is None:
            self._since_s = now_s if suspended else None
        elif now_s - self._since_s >= SUSPENDED_S:
            if self._wakes >= WAKES_MAX:
                return "one of its processes keeps being suspended (SIGSTOP)"
            self._wakes, self._since_s = self._wakes + 1, now_s
            self.wake(suspended)
        return ""

    def wake(self, processes: Iterable[int] | None = None) -> None:
        """Resume processes, by default all; a suspended process cannot shut down."""
        for process in self._processes if processes is None else processes:
            with suppress(ProcessLookupError):
                self._wake(process)


def state_of(process: int) -> str:
    """Return the state of a child process, as in proc_pid_stat(5); "" if the process has ended."""
    with suppress(OSError):
        # The name in parentheses may contain any characters; the state and the parent follow it.
        state, parent = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        return state if int(parent) == os.getpid() and state not in _ENDED else ""
    return ""
