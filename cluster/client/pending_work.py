"""Work that a caller awaits from a pool on Ray, and how its result is delivered."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ...actors.device.work import Work
from ...errors import WorkerLost, WorkError
from ..ray.ray_failures import LossScope
from ..worker.outcome import Outcome

_AFTER_A_DEATH: Final = "The pool starts another process; the same work may be submitted again."


@dataclass(frozen=True, slots=True)
class PendingWork:
    """One piece of work, packed, and the future that its submitter awaits."""

    work: Work[Any]
    packed: bytes
    blobs: tuple[Any, ...]
    result: asyncio.Future[Any]

    def settle(self, outcome: Outcome[Any]) -> None:
        """Deliver the outcome, unless the submitter has given up."""
        if self.result.done():
            return
        if outcome.error is None:
            self.result.set_result(outcome.result)
        else:
            self.result.set_exception(outcome.error)

    def failed(self, failure: LossScope, reason: str) -> WorkError:
        """Return the error for a failure in Ray other than the worker's death."""
        if failure is LossScope.RESULT:
            return WorkerLost(f"the result of {self.work.label} was lost: {reason}", _AFTER_A_DEATH)
        return WorkError(f"{self.work.label} failed in transit: {reason}", "Its result must pickle.")


def lost_worker(worker: str, reason: str) -> WorkerLost:
    """Return the error for work whose worker died."""
    return WorkerLost(f"worker {worker} died at work: {reason}", _AFTER_A_DEATH)
