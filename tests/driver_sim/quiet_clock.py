"""A clock for calls that hang: its time passes only while no other thread of this process can run.

A simulated call that hangs sleeps forever; a call that is delayed by a busy machine can run, but waits for a core. By
this clock only the first takes long.
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
"""The most that one check counts, because the checking thread may have waited for a core too."""


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
    """Counts the seconds between two checks that both found the process quiet. Only the thread ``looker`` checks."""

    def __init__(self, looker: str) -> None:
        self._looker = looker
        self._passed_s = 0.0
        self._looked_s = time.monotonic()
        self._was_quiet = False

    def __call__(self) -> float:
        """Return how many quiet seconds have been counted."""
        if threading.current_thread().name == self._looker:
            now_s, now_quiet = time.monotonic(), is_quiet()
            if self._was_quiet and now_quiet:
                self._passed_s += min(now_s - self._looked_s, _MOST_S)
            self._looked_s, self._was_quiet = now_s, now_quiet
        return self._passed_s


def watch_quietly(watch: CallWatch, limit_s: float) -> None:
    """Make a watch give up calls after ``limit_s`` quiet seconds. Call this before any call is watched."""
    watch.call_s = watch.opening_s = limit_s
    watch.clock = QuietClock("codecfleet-watch")
    watch._wait = lambda rest, seconds: rest.wait(min(seconds, LOOK_S))


def wait_quietly(future: "Future[Any]", seconds: float) -> bool:
    """Wait until a future is done, or for ``seconds`` quiet seconds; return whether the future is done."""
    clock = QuietClock(threading.current_thread().name)
    while not future.done() and clock() < seconds:
        time.sleep(LOOK_S)
    return future.done()
