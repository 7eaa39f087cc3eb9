"""The driver of a queue that a node keeps as a child process: its jobs run on the node's cluster."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from ...actors.backoff import Backoff
from ...actors.process.running import Prints, Running, how_it_ended, start_command
from ..fleet_variables import KEEPER
from ..queue.guard import CLAIM, HOLD, PROGRAM, STOP_S

AGAIN: Final = Backoff(first_s=1.0, most_s=60.0)
STEADY_S: Final = 60.0
"""If a driver has run for this long, the wait before its next restart is the shortest again."""
HAND_BACK_S: Final = STOP_S + 5
"""How long a driver may take to stop its jobs and hand them back."""
LAST_LINES_S: Final = 1.0
"""How long the lines of a dead driver may take to arrive."""
_SAID_BY: Final = "codecfleet: "


def driver_command(words: Sequence[str]) -> list[str]:
    """Return the command of a driver with these options; the kernel kills the driver when its starting thread ends."""
    return [sys.executable, "-P", "-u", "-c", PROGRAM, str(os.getpid()), "driver", *words]


class _Wish(Enum):
    """Whether the driver is to run."""

    NOT_YET = "not yet"
    RUNS = "runs"
    HOLDS = "holds"  #: a driver that runs claims no job, and no driver starts, until ``allow`` is called
    RESTS = "rests"  #: no driver runs until ``allow`` is called
    ENDS = "ends"


class OwnDriver:
    """Runs the driver from ``joined`` to ``stop``, except between ``rest`` and ``allow``; restarts it whenever it ends.

    Between ``hold`` and ``allow``, a running driver claims no job, and a stopped driver is not started.

    Without a ``command``, there is no driver, and the methods do nothing. One thread calls every method, and the driver
    ends with that thread. ``tell`` is called with each line that the driver prints.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], object]) -> None:
        self._command = command
        self._environment = environment
        self._tell = tell
        self._wish = _Wish.NOT_YET if command else _Wish.ENDS
        self._process: Running | None = None
        self._reader: threading.Thread | None = None
        self.keeper = ""  #: the name of this process's socket, which receives orders for the driver
        self._failures = 0
        self._began_s = 0.0
        self._due_s = 0.0  # when the driver is to be started
        self._killed_s: float | None = None  # when the driver is to be killed; None if it was not asked to end

    @property
    def deaths(self) -> list[int]:
        """A list with the descriptor that becomes readable when the driver ends; an empty list while no driver runs."""
        return [] if self._process is None else [self._process.death]

    def joined(self) -> None:
        """Make the next ``tend`` start the driver, as the node has joined; no effect after ``hold`` or ``rest``."""
        if self._wish is _Wish.NOT_YET:
            self._wish = _Wish.RUNS

    @property
    def its_keeper(self) -> Mapping[str, str]:
        """The environment variable with ``keeper``, for processes that give the driver orders; {} without a driver."""
        return {KEEPER: self.keeper} if self._command else {}

    def allow(self) -> None:
        """Let the driver claim jobs; if it does not run, make the next ``tend`` start it. Idempotent."""
        if self._wish in {_Wish.HOLDS, _Wish.RESTS}:
            self._wish, self._due_s = _Wish.RUNS, time.monotonic()
            self._tell("the node takes work again, so the driver claims jobs")
            self._send(CLAIM)

    def hold(self) -> None:
        """Keep the driver from claiming jobs and, if it does not run, from starting, until ``allow``. Idempotent."""
        if self._wish in {_Wish.NOT_YET, _Wish.RUNS, _Wish.RESTS}:
            self._tell("the node is cordoned, so the driver claims no job")
            self._wish = _Wish.HOLDS
            self._send(HOLD)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._killed_s is None:
            self._process.send_signal(number)

    def tend(self) -> float | None:
        """Start a driver that is due, or kill one that is late; return when to call this again, on the monotonic clock.

        None means that no call is due before the driver ends or another method is called.
        """
        now_s = time.monotonic()
        if self._process is not None and (code := self._process.code()) is not None:
            self._over(code, now_s)
        if self._process is None and self._wish is _Wish.RUNS and now_s >= self._due_s:
            self._begin(now_s)
        if self._process is None:
            return self._due_s if self._wish is _Wish.RUNS else None
        if self._killed_s is not None and now_s >= self._killed_s:
            self.kill()
            return None
        return self._killed_s

    def rest(self) -> None:
        """Ask the driver to hand back its jobs and end; only ``allow`` starts it again. Idempotent."""
        if self._wish in {_Wish.NOT_YET, _Wish.RUNS, _Wish.HOLDS}:
            self._tell("the node drains, so the driver hands back its jobs and rests")
            self._end(_Wish.RESTS)

    def stop(self) -> None:
        """Ask the driver to hand back its jobs and end; no driver starts after that. Idempotent."""
        if self._wish is not _Wish.ENDS:
            self._end(_Wish.ENDS)

    def _end(self, wish: _Wish) -> None:
        self._wish = wish
        if self._process is not None and self._killed_s is None:
            self._killed_s = time.monotonic() + HAND_BACK_S
            self._process.terminate()

    def kill(self) -> None:
        """Kill the driver and its jobs."""
        if self._process is not None:
            self._process.kill_group()

    def reaped(self, process: int, status: int) -> None:
        """Record the exit status of a child process that other code has waited for."""
        if self._process is not None and self._process.pid == process:
            self._process.reaped(status)

    def _begin(self, now_s: float) -> None:
        self._began_s, self._killed_s = now_s, None
        try:
            around = {**self._environment, **self.its_keeper}
            self._process = start_command(self._command, prints=Prints.ALL_SENT, environment=around)
        except OSError as error:
            self._wait(f"the driver did not start: {error}", now_s)
            return
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: Running) -> None:
        with process.end, process.end.makefile("r", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                self._tell(line.strip().removeprefix(_SAID_BY))

    def _over(self, code: int, now_s: float) -> None:
        if self._process is not None and self._reader is not None:
            self._reader.join(LAST_LINES_S)
            self._process.close()
        self._process = None
        if self._killed_s is None:
            self._wait(f"the driver ended: {how_it_ended(code, '')}", now_s)

    def _wait(self, why: str, now_s: float) -> None:
        self._failures = 1 if now_s - self._began_s >= STEADY_S else self._failures + 1
        wait_s = AGAIN.wait_s(self._failures)
        self._due_s = now_s + wait_s
        self._tell(f"{why}; it starts again in {wait_s:g} s" if self._wish is _Wish.RUNS else why)
