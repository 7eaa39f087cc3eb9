"""The program that runs the jobs of a queue in a file in the background of this machine, and removes their records."""

import os
from pathlib import Path

from ...actors.process.program import begin, run_to_the_end
from ...cluster.queue.background import keep_driving
from ...cluster.queue.driver import Driver
from ...cluster.queue.sqlite import SqliteStore


def main() -> None:
    """Run a driver until it is idle; the settings are [queue, jobs at once, lease in s, idle time in s]."""
    end, (queue, at_once, lease_s, idle_s) = begin()
    os.chdir("/")
    path = Path(queue)
    store = SqliteStore(path)

    def driver() -> Driver:
        return Driver(store, remove_record, at_once=at_once, lease_s=lease_s, idle_s=idle_s)

    run_to_the_end(keep_driving(path, store, driver, end))


def remove_record(place: str) -> None:
    """Remove the record of a job whose end the queue has."""
    from . import found_work  # noqa: PLC0415 - importing it takes a second, and ``submit`` waits for this program

    found_work.remove_record(place)
