"""The program of a worker that is a child process. It starts early, and the first request brings its settings."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from ...actors.process.program import begin, run_to_the_end, serve_parent
from ...actors.worker.heartbeat import WorkerFacts
from ...actors.worker.helper import Spawn
from ...actors.worker.host import WorkerHost
from ..machine import OomKills
from ..sandbox.confine import harden
from ..version import PYAV
from .helper_program import CPU, spawn_helper

_USUAL_WORK: Final = "codecfleet.actors.segment.encoding"
_NICENESS: Final = 15
"""The same niceness as Ray's workers have, so that the user's programs and the process that hands out work go first."""
_KILLED_FIRST: Final = "1000"
"""The same OOM score as Ray's workers have, so that the kernel kills a worker before the process that replaces it."""


class WorkerSeat:
    """Serves a worker's requests with its ``host``, which the first request creates."""

    host: WorkerHost

    def __init__(self, spawn_lone: Spawn, killed_for_memory: Callable[[], bool]) -> None:
        self._spawn_lone = spawn_lone
        self._killed_for_memory = killed_for_memory

    def begin(self, slots: int, cores: int) -> WorkerFacts:
        """Create the host, and return facts about it."""
        facts = WorkerFacts(os.getpid(), slots, cores=cores, pyav=PYAV)
        self.host = WorkerHost(facts, spawn_lone=self._spawn_lone, killed_for_memory=self._killed_for_memory)
        return facts


def main() -> None:
    """Serve the process that started this process."""
    end, _ = begin()
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the user's process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    import_module(_USUAL_WORK)  # this saves time later: the process would otherwise idle while the job is planned
    os.nice(_NICENESS)
    with suppress(OSError):  # /proc may not exist
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")
    seat = WorkerSeat(partial(spawn_helper, CPU), OomKills().explains_a_death)
    run_to_the_end(serve_parent(end, lambda _: seat, me="the worker"))
