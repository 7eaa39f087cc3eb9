"""Time for calls that hang: it passes only while no thread of this process can run.

A simulated call that hangs sleeps for ever. One that a busy machine delays can run, and waits for a core: to a clock on
the wall both take long, and here only the first does.
"""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codecfleet.actors.watchdog import CallWatch

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_S: Final = 0.02
_MOST_S: Final = 5 * LOOK_S
"""What one look counts at most: who looks may have waited for a core too."""


def is_quiet() -> bool:
    """Return whether every other thread of this process sleeps."""
    own = threading.get_native_id()
    return all(_sleeps(task) for task in Path("/proc/self/task").iterdir() if int(task.name) != own)


def _sleeps(task: Path) -> bool:
    try:
        return (
            task.joinpath("stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0] in "SZX"
        )
    except OSError:  # it has ended
        return True


class QuietClock:
    """Seconds that were quiet at two looks in a row. Only the thread called ``looker`` looks; others read."""

    def __init__(self, looker: str) -> None:
        self._looker = looker
        self._passed_s = 0.0
        self._looked_s = time.monotonic()
        self._was_quiet = False

    def __call__(self) -> float:
        """Return how many have passed."""
        if threading.current_thread().name == self._looker:
            now_s, now_quiet = time.monotonic(), is_quiet()
            if self._was_quiet and now_quiet:
                self._passed_s += min(now_s - self._looked_s, _MOST_S)
            self._looked_s, self._was_quiet = now_s, now_quiet
        return self._passed_s


def watch_quietly(watch: CallWatch, limit_s: float) -> None:
    """Have a watch give calls up after ``limit_s`` quiet seconds; called before any call is watched."""
    watch.call_s = watch.opening_s = limit_s
    watch.clock = QuietClock("codecfleet-watch")
    watch._wait = lambda rest, seconds: rest.wait(min(seconds, LOOK_S))


def wait_quietly(future: "Future[Any]", seconds: float) -> bool:
    """Wait until a future is done, or for that many quiet seconds; return whether it is done."""
    clock = QuietClock(threading.current_thread().name)
    while not future.done() and clock() < seconds:
        time.sleep(LOOK_S)
    return future.done()
