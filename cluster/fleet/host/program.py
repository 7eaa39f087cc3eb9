"""The program of a host, which starts the workers before it loads anything else."""

import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from ....actors.process.process import StartedProcess, start_program
from ....actors.process.program import begin, run_to_the_end
from ...machine import cores, slots_of_processes
from ...ray.ray_environment import may_begin_without_ray

WORKER: Final = "codecfleet.cluster.worker.program"
"""The program of a worker that is a child process."""


def early_workers(address: str | None, slots: int | None, dlas: int) -> Callable[[], StartedProcess] | None:
    """Start this machine's workers, which load while this process loads.

    Return a function that returns one worker per call: first these, then new workers. Return None if work must wait for
    Ray.
    """
    if dlas or not may_begin_without_ray(address):
        return None
    waiting = deque(start_program(WORKER) for _ in slots_of_processes(slots or cores()))
    return lambda: waiting.popleft() if waiting else start_program(WORKER)


def main() -> None:
    """Run a host with the settings ``[address, slots, dlas, [fleet, number], idle time in seconds]``.

    A host with an idle time is a warm fleet; any other host serves the fleet that started the host.
    """
    end, (address, slots, dlas, name, idle_s) = begin()
    if idle_s is not None:
        _leave_folder()
    start_process = early_workers(address, slots, dlas)
    from ..leases.connecting import connecting_pool  # imported while the workers load
    from ..pool import ClientName
    from .running import serve_many, serve_one

    pool = connecting_pool(address, slots, dlas=dlas, name=ClientName(*name), start_process=start_process)
    run_to_the_end(serve_one(pool, end) if idle_s is None else serve_many(pool, idle_s, end))


def _leave_folder() -> None:
    """Leave the current folder, so that its file system can be unmounted; programs send absolute file names."""
    sys.path[:] = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is the current folder
    os.chdir("/")
