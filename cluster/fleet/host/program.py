"""The host's program: starts its workers before it loads anything else, and then serves a pool."""

import os
import sys
from collections import deque
from collections.abc import Callable

from ....actors.process.process import StartedProcess, start_program
from ....actors.process.program import begin, run_to_the_end
from ...machine import cores, slots_of_processes
from ...ray.ray_environment import may_begin_without_ray
from ...worker_names import WORKER
from ..pool import ClientName


def early_workers(address: str | None, slots: int | None, dlas: int) -> Callable[[], StartedProcess] | None:
    """Return what starts workers where work may run here before there is a Ray; None elsewhere.

    All processes of the machine are started now, as they take as long to load as this one.
    """
    if dlas or not may_begin_without_ray(address):
        return None
    waiting = deque(start_program(WORKER) for _ in slots_of_processes(slots or cores()))
    return lambda: waiting.popleft() if waiting else start_program(WORKER)


def main() -> None:
    """Run a host. Its settings are ``[address, slots, dlas, [fleet, number], idle time in seconds]``.

    Without an idle time it serves the fleet that started it; with one it is a warm fleet.
    """
    end, (address, slots, dlas, name, idle_s) = begin()
    if idle_s is not None:
        _stand_alone()
    start_process = early_workers(address, slots, dlas)
    from ..leases.connecting import connecting_pool  # loaded beside the workers
    from .running import serve_many, serve_one

    pool = connecting_pool(address, slots, dlas=dlas, name=ClientName(*name), start_process=start_process)
    run_to_the_end(serve_one(pool, end) if idle_s is None else serve_many(pool, idle_s, end))


def _stand_alone() -> None:
    """Depend on no folder: the names that programs send are absolute, and one in which a process is stays mounted."""
    sys.path[:] = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is the folder it was started in
    os.chdir("/")
