"""A client's records of workers: handles, completed work, and faults of devices."""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from ....actors.device.work import Work
from ....actors.worker.outcome import Outcome
from ....errors import (
    DeviceError,
    NodeEnded,
    ObjectStoreFull,
    Retry,
    WorkAbandoned,
    WorkerBroken,
    WorkerLost,
    WorkerOutOfMemory,
    WorkError,
)
from ...device_fault import DeviceFault, FaultVerdict
from ...ray.ray_failures import LossScope
from ...supervisor.state.messages import ClientReport
from ...worker.worker import Worker
from ...worker_names import WorkerId
from .leases import Lose, keep

REPEATED: Final = 16
"""How many of the latest faults each report repeats, because reports may be lost. The supervisor counts each fault
once."""
PROGRESS_ANSWER_S: Final = 1.0
"""How long the client waits for a worker's answer to one query of its work's progress."""
AFTER_A_DEATH: Final = "Submit the same work again; the pool starts another process."
_AFTER_AN_OOM: Final = "Submit the work again; `--workers N` runs fewer tasks at a time."
_NO_ROOM: Final = "Free space in Ray's folder (RAY_TMPDIR, else /tmp), on the worker's machine and on this one."


class KnownWorkers:
    """A client's records of workers, by name; ``Ground`` documents ``killed_for_memory``.

    A new process never gets the name of an earlier one.
    """

    def __init__(self, handle: Callable[[WorkerId], Awaitable[Worker]], killed_for_memory: Callable[[], bool]) -> None:
        self._handle = handle
        self._killed_for_memory = killed_for_memory
        self._handles: dict[WorkerId, Worker] = {}
        self._proven: set[WorkerId] = set()
        self._hung: dict[WorkerId, str] = {}
        self._out_of_memory: dict[WorkerId, bool] = {}
        self._leaving: dict[WorkerId, None] = {}
        self._faults: deque[DeviceFault] = deque(maxlen=REPEATED)
        self._numbers = itertools.count(1)

    def added_to(self, report: ClientReport) -> ClientReport:
        """Return a copy of ``report`` that includes this client's findings about workers."""
        proven = tuple(worker for worker in self._proven if worker in self._handles)
        return replace(report, proven=proven, written_off=dict(self._hung), faults=tuple(self._faults))

    async def reach(self, worker: WorkerId) -> Worker:
        """Return a worker's handle, which is fetched from the supervisor only once."""
        if worker not in self._handles:
            self._handles[worker] = await self._handle(worker)
        return self._handles[worker]

    def reached(self, worker: WorkerId) -> Worker | None:
        """Return the handle of a worker if it has been fetched, otherwise None."""
        return self._handles.get(worker)

    async def frames(self, worker: WorkerId) -> Mapping[str, int]:
        """Return how many frames each run of a worker has finished; empty if the worker does not answer."""
        if (handle := self._handles.get(worker)) is not None:
            with suppress(Exception):  # other code notices the loss of a worker
                return (await asyncio.wait_for(handle.heartbeat(), PROGRESS_ANSWER_S)).progress
        return {}

    def prove(self, worker: WorkerId) -> None:
        """Record that a worker has completed work."""
        self._proven.add(worker)

    def forget(self, worker: WorkerId) -> None:
        """Forget the handle of a worker that is gone or about to end."""
        self._handles.pop(worker, None)
        self._proven.discard(worker)

    def write_off(self, worker: WorkerId, reason: str) -> None:
        """Record that work hangs in a worker; the supervisor then kills the worker."""
        keep(self._hung, worker, value=reason)

    def leaves(self, worker: WorkerId) -> None:
        """Record that the end of a worker's node was announced; Ray never withdraws an announcement."""
        keep(self._leaving, worker, value=None)

    def ran_out_of_memory(self, worker: WorkerId) -> None:
        """Record that a worker was killed because memory ran out."""
        keep(self._out_of_memory, worker, value=True)

    def loss(self, lost: Lose) -> WorkerLost:
        """Return the error for a dead worker's work; one OOM kill explains the loss of all work in the worker."""
        worker, reason = lost.worker, lost.reason
        if lost.broken:
            message = f"worker {worker} ended because its device failed: {reason}"
            return WorkerBroken(message, AFTER_A_DEATH)
        if worker in self._leaving:
            return NodeEnded(f"worker {worker} ended with its node: {reason}", AFTER_A_DEATH)
        if worker not in self._out_of_memory:
            keep(self._out_of_memory, worker, value=self._killed_for_memory())
        if not self._out_of_memory[worker]:
            return WorkerLost(f"worker {worker} died while running: {reason}", AFTER_A_DEATH)
        return WorkerOutOfMemory(f"worker {worker} was OOM-killed while running", _AFTER_AN_OOM)

    def ended(self, work: Work[Any], worker: WorkerId, outcome: Outcome[Any]) -> None:
        """Record a device fault if the failed work ran alone; refused sessions and lack of memory do not count."""
        error = outcome.error
        if work.constraints.alone and isinstance(error, DeviceError) and error.retry is Retry.ELSEWHERE:
            self.faulted(DeviceFault(worker, work.file, error.message, FaultVerdict.FAILED))

    def faulted(self, fault: DeviceFault) -> None:
        """Record a device fault, for the next reports."""
        self._faults.append(replace(fault, number=next(self._numbers)))


def abandoned(label: str) -> WorkAbandoned:
    """Return the error for work that a supervisor cancelled because no report of this program reached it."""
    message = f"{label} was cancelled by a supervisor that no longer received this program's reports"
    return WorkAbandoned(message, "Submit the same work again.")


def lost_in_transit(label: str, failure: LossScope, reason: str) -> WorkError:
    """Return the error for work whose result was lost although the worker lives."""
    match failure:
        case LossScope.RESULT:
            return WorkerLost(f"the result of {label} was lost: {reason}", AFTER_A_DEATH)
        case LossScope.ROOM:
            return ObjectStoreFull(f"Ray has no room for the result of {label}: {reason}", _NO_ROOM)
        case _:
            return WorkError(
                f"the result of {label} could not be sent: {reason}", "Make sure that the result can be pickled."
            )
