"""Runs a job's command, and ends it when its driver no longer holds the job.

The driver sends a deadline with each renewed lease, well before the end of the lease. If no new deadline arrives,
because the driver, its store or the network hangs, the guard ends the command before another driver can claim the job.
The guard is a separate process, so that it works while the driver is stopped. It is small, and imports little.
"""

import os
import select
import signal
import sys
import time
from typing import Final

from ...actors.process.running import Running, start_command

STOP: Final = b"stop"
"""The line that makes the guard send SIGTERM to the command; every other line is a deadline, in seconds of ``clock``.
"""
FENCED: Final = 75
"""The exit code if the command was killed at its deadline; no command of codecfleet exits with it."""
NOT_STARTED: Final = 71
"""The exit code if the system could not start the command, in which case another try may succeed; no command of
codecfleet exits with it.
"""
STOP_S: Final = 10.0
"""How long a job that is asked to stop may take."""
HOLD, CLAIM = signal.SIGUSR1, signal.SIGUSR2
"""The signal after which a driver claims no job, and the signal after which it claims jobs again."""
LOOK_S: Final = 1.0
"""How often to look at the clock, because a timeout does not count the time in which the machine is suspended."""
PROGRAM: Final = (
    "import sys; from codecfleet.actors.process.running import end_with; end_with(int(sys.argv.pop(1))); "
    "from codecfleet.__main__ import main; sys.exit(main())"
)
"""The Python program that runs a command of codecfleet; the kernel kills it when its guard ends."""


def clock() -> float:
    """Return seconds of a clock that all processes of this machine share, and that cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Guard:
    """Waits for a command to end, and obeys its driver's orders on the descriptor ``orders`` until then."""

    def __init__(self, orders: int, ends_s: float) -> None:
        self._orders = orders
        self._ends_s = ends_s  # the deadline
        self._unread = b""

    def run(self, command: list[str], failure: int) -> int:
        """Run the command, which inherits the descriptor ``failure``.

        Returns FENCED, NOT_STARTED, or the command's exit code as a shell reports it.
        """
        if clock() >= self._ends_s:
            return FENCED
        try:
            process = start_command(command, prints=1, inherited=(failure,))
        except OSError as error:
            os.write(1, f"codecfleet: error: the job could not be started: {error}\n".encode())
            return NOT_STARTED
        process.end.close()
        with process:
            while not select.select([process.death], [], [], 0)[0]:
                left_s = self._ends_s - clock()
                if left_s <= 0:
                    process.kill()
                    return FENCED
                ready, _, _ = select.select([process.death, self._orders], [], [], min(left_s, LOOK_S))
                if self._orders in ready:
                    self._take_orders(process)
            code = process.wait()
        return code if code >= 0 else 128 - code

    def _take_orders(self, process: Running) -> None:
        if not (read := os.read(self._orders, 4096)):
            self._ends_s = 0.0  # the driver is dead, or wants the command killed
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            if line == STOP:
                process.send_signal(signal.SIGTERM)
            else:
                self._ends_s = float(line)


def main() -> None:
    """Guard a command. The arguments are its deadline, the descriptor for its failure, and the command's words."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # only the driver's orders count; the command would inherit SIG_IGN
    ends_s, failure, *arguments = sys.argv[1:]
    command = [sys.executable, "-P", "-u", "-c", PROGRAM, str(os.getpid()), *arguments]
    sys.exit(Guard(0, float(ends_s)).run(command, int(failure)))


if __name__ == "__main__":
    main()
