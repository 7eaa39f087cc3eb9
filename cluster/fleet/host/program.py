"""The host's program: starts its first worker before it loads anything else, and then serves a pool."""

import os
import sys

from ...process.process import WORKER, StartedProcess, start_program
from ...process.program import begin, run_to_the_end
from ...ray.ray_environment import may_begin_without_ray
from ..client_name import ClientName


class FirstWorker:
    """Starts workers' processes; the first one at once, as it takes as long to load as this process."""

    def __init__(self) -> None:
        self._spare: StartedProcess | None = start_program(WORKER)

    def __call__(self) -> StartedProcess:
        """Return the first process, or start another."""
        spare, self._spare = self._spare, None
        return spare or start_program(WORKER)


def first_worker(address: str | None, dlas: int) -> FirstWorker | None:
    """Return what starts workers where work may run here before there is a Ray; None elsewhere."""
    return None if dlas or not may_begin_without_ray(address) else FirstWorker()


def main() -> None:
    """Run a host. Its settings are ``[address, slots, dlas, [fleet, number], idle time in seconds]``.

    Without an idle time it serves the fleet that started it; with one it is a warm fleet.
    """
    end, (address, slots, dlas, name, idle_s) = begin()
    if idle_s is not None:
        _stand_alone()
    start_process = first_worker(address, dlas)
    from ..leases.connecting import connecting_pool  # noqa: PLC0415 - loaded beside the worker
    from .running import serve_many, serve_one  # noqa: PLC0415 - as above

    pool = connecting_pool(address, slots, dlas=dlas, name=ClientName(*name), start_process=start_process)
    run_to_the_end(serve_one(pool, end) if idle_s is None else serve_many(pool, idle_s, end))


def _stand_alone() -> None:
    """Depend on no folder: the names that programs send are absolute, and one in which a process is stays mounted."""
    sys.path[:] = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100 - "" is the folder it was started in
    os.chdir("/")
