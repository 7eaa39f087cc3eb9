"""Work that waits for its result, and why it failed where its worker was not to answer."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ....actors.device.work import Work
from ....errors import ObjectStoreFull, WorkerLost, WorkError
from ...ray.ray_failures import LossScope
from ...worker.outcome import Outcome
from .known_workers import AFTER_A_DEATH

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
