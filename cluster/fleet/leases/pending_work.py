"""Work that waits for its result, and why it failed where its worker was not to answer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ....actors.device.work import Work
from ....errors import CodecfleetError, ObjectStoreFull, SessionLimit, WorkerLost, WorkError
from ...ray.ray_failures import LossScope
from ...worker.outcome import Outcome
from ..run import ResultOrigin, WorkRun
from .known_workers import AFTER_A_DEATH

_NO_ROOM: Final = (
    "Free space where Ray's files lie (RAY_TMPDIR, else /tmp), on the worker's machine and on the fleet's own."
)


@dataclass(slots=True, eq=False)
class PendingWork:
    """One piece of work that has no result yet."""

    work: Work[Any]
    packed: bytes  # the work, pickled
    blobs: tuple[Any, ...]  # references of what it was pickled without
    run: WorkRun[Any]  # as its submitter holds it
    waits_s: Iterator[float]  # how long it still waits where a session limit refuses it
    task: int = -1  # its number among the leases; another one after each such wait

    def settle(self, outcome: Outcome[Any], origin: ResultOrigin) -> None:
        """Deliver an outcome, unless the submitter has cancelled the work."""
        if outcome.error is None:
            self.run.end(outcome.result, origin)
        else:
            self.run.origin = origin
            self.fail(outcome.error, origin.worker)

    def fail(self, error: CodecfleetError, worker: str = "") -> None:
        """Deliver an error of ``worker``, likewise."""
        error.where = worker
        self.run.fail(error)

    def wait_s(self, outcome: Outcome[Any]) -> float | None:
        """Return how long the work waits before it is tried again; None where the outcome is final."""
        if not isinstance(outcome.error, SessionLimit) or self.run.result.done():
            return None
        return next(self.waits_s, None)

    def failed(self, failure: LossScope, reason: str) -> WorkError:
        """Return the error for a failure in Ray other than the worker's death."""
        if failure is LossScope.RESULT:
            return WorkerLost(f"the result of {self.work.label} was lost: {reason}", AFTER_A_DEATH)
        if failure is LossScope.ROOM:
            return ObjectStoreFull(f"Ray has no room for the result of {self.work.label}: {reason}", _NO_ROOM)
        return WorkError(f"{self.work.label} failed in transit: {reason}", "Its result must pickle.")
