"""Finds the processes of a round, and sends signals to them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import psutil

from tests.live_processes import is_live

MARK = "CHAOS_ROUND"
"""In the environment of a round's driver and of all that it starts."""


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes of a round's driver that still run."""
    return [found for found in having(MARK, mark) if is_live(found)]


def having(name: str, value: str) -> Iterator[psutil.Process]:
    """Yield all processes with a variable in their environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(name) == value:
                yield process


def below(process: int) -> list[psutil.Process]:
    """Return the descendants of a process."""
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(process).children(recursive=True))
    return []


def named(name: str, processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the processes with a name in their command, by their numbers."""
    found = []
    for process in processes:
        with suppress(psutil.Error):
            command = process.cmdline()
            if name in " ".join(command[:6]) and not any("orphan_reaper" in word for word in command):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def signalled(number: int, victims: Sequence[psutil.Process], choice: float) -> bool:
    """Send a signal to the victim that a number in 0..1 chooses; return False if there is none."""
    if not victims:
        return False
    with suppress(psutil.NoSuchProcess):
        victims[int(choice * len(victims))].send_signal(number)
        return True
    return False
