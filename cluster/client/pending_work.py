"""Work that waits for its result, and why it failed where its worker was not to answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ...actors.device.work import Work
from ...errors import ObjectStoreFull, WorkerLost, WorkerOutOfMemory, WorkError
from ..ray.ray_failures import LossScope
from ..worker.outcome import Outcome

AFTER_A_DEATH: Final = "The pool starts another process; the same work may be submitted again."
_AFTER_AN_OOM: Final = "Its work may be submitted again; --workers N runs fewer pieces at a time."
_NO_ROOM: Final = (
    "Free space where Ray's files lie (RAY_TMPDIR, else /tmp), on the worker's machine and on the fleet's own."
)


@dataclass(frozen=True, slots=True)
class PendingWork:
    """One piece of work, packed, and the future that its submitter awaits."""

    work: Work[Any]
    packed: bytes
    blobs: tuple[Any, ...]
    result: asyncio.Future[Any]

    def settle(self, outcome: Outcome[Any], worker: str = "") -> None:
        """Deliver the outcome of ``worker``, unless the submitter has given up."""
        if self.result.done():
            return
        if outcome.error is None:
            self.result.set_result(outcome.result)
        else:
            outcome.error.where = worker
            self.result.set_exception(outcome.error)

    def failed(self, failure: LossScope, reason: str) -> WorkError:
        """Return the error for a failure in Ray other than the worker's death."""
        if failure is LossScope.RESULT:
            return WorkerLost(f"the result of {self.work.label} was lost: {reason}", AFTER_A_DEATH)
        if failure is LossScope.ROOM:
            return ObjectStoreFull(f"Ray has no room for the result of {self.work.label}: {reason}", _NO_ROOM)
        return WorkError(f"{self.work.label} failed in transit: {reason}", "Its result must pickle.")


class Deaths:
    """What dead workers died of: one kill for memory explains the loss of all that a worker ran.

    Args:
        killed_for_memory: says of each death of a worker whether the kernel's OOM killer explains it.
    """

    def __init__(self, killed_for_memory: Callable[[], bool]) -> None:
        self._killed_for_memory = killed_for_memory
        self._out_of_memory: dict[str, bool] = {}

    def ran_out_of_memory(self, worker: str) -> None:
        """Take note that a worker died for want of memory."""
        self._out_of_memory[worker] = True

    def error(self, worker: str, reason: str) -> WorkerLost:
        """Return the error of work that a dead worker held; the first of it finds out whether memory was short."""
        if worker not in self._out_of_memory:
            self._out_of_memory[worker] = self._killed_for_memory()
        if not self._out_of_memory[worker]:
            return WorkerLost(f"worker {worker} died at work: {reason}", AFTER_A_DEATH)
        return WorkerOutOfMemory(f"worker {worker} was killed at work, for want of memory", _AFTER_AN_OOM)
