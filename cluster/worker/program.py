"""The program of a worker that is a child process: the worker of ``ray_worker.py``, without Ray.

It waits for its settings first, so that it may be started before they are known.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from ..process.program import begin, run_to_the_end, serve_parent
from ..sandbox.confine import harden
from .heartbeat import WorkerFacts
from .ray_worker import RayWorker

_USUAL_WORK: Final = "codecfleet.actors.segment.encoding"
"""What most work is."""
_NICENESS: Final = 15
"""As Ray's workers: what hands out their work, and what the user does, comes first."""
_KILLED_FIRST: Final = "1000"
"""The kernel's OOM killer takes a worker before the process that can replace it; as Ray's workers."""


class WorkerSeat:
    """What a worker's process serves: the ``worker`` that the first request has it make."""

    worker: RayWorker

    def __init__(self, make: Callable[[int, int], RayWorker]) -> None:
        self._make = make

    async def begin(self, slots: int, cores: int) -> WorkerFacts:
        """Make the worker, and return its identity."""
        self.worker = self._make(slots, cores)
        return await self.worker.facts()


def main() -> None:
    """Serve the process that started this one."""
    end, _ = begin()
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's process handles it
    import_module(_USUAL_WORK)  # the job is being planned meanwhile
    os.nice(_NICENESS)
    with suppress(OSError):  # without /proc none is preferred
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")
    server = WorkerSeat(lambda slots, cores: RayWorker(slots, cores=cores))
    run_to_the_end(serve_parent(end, lambda _: server, me="the worker"))
