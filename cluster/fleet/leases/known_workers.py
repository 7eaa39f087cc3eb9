"""What a client knows of single workers: how to call them, which work well, which hang, and what the dead died of."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from ....errors import WorkerLost, WorkerOutOfMemory
from ...worker.worker import Worker

ValueT = TypeVar("ValueT")

LOST_KEPT: Final = 1024
"""How many lost workers are remembered, the newest: a supervisor learns of each within seconds."""
AFTER_A_DEATH: Final = "The pool starts another process; the same work may be submitted again."
_AFTER_AN_OOM: Final = "Its work may be submitted again; --workers N runs fewer pieces at a time."


class KnownWorkers:
    """Workers by name. A name belongs to one process, and never comes back.

    Args:
        handle: returns the handle by which a worker is called.
        killed_for_memory: says of each death of a worker whether the kernel's OOM killer explains it.
    """

    def __init__(self, handle: Callable[[str], Awaitable[Worker]], killed_for_memory: Callable[[], bool]) -> None:
        self._handle = handle
        self._killed_for_memory = killed_for_memory
        self._handles: dict[str, Worker] = {}
        self._proven: set[str] = set()
        self._hung: dict[str, str] = {}
        self._out_of_memory: dict[str, bool] = {}

    @property
    def proven(self) -> tuple[str, ...]:
        """The workers that have completed work."""
        return tuple(worker for worker in self._proven if worker in self._handles)

    @property
    def hung(self) -> Mapping[str, str]:
        """The workers that were given up, and why."""
        return dict(self._hung)

    async def reach(self, worker: str) -> Worker:
        """Return a worker by its name; the supervisor is asked for each worker once."""
        if worker not in self._handles:
            self._handles[worker] = await self._handle(worker)
        return self._handles[worker]

    def reached(self, worker: str) -> Worker | None:
        """Return a worker that was reached before, None for any other."""
        return self._handles.get(worker)

    def prove(self, worker: str) -> None:
        """Take note that a worker has completed work."""
        self._proven.add(worker)

    def forget(self, worker: str) -> None:
        """Call a worker no more: it is gone, or ends itself."""
        self._handles.pop(worker, None)
        self._proven.discard(worker)

    def give_up(self, worker: str, reason: str) -> None:
        """Take note that work hung in a worker, which the supervisor is to kill."""
        keep(self._hung, worker, value=reason)

    def ran_out_of_memory(self, worker: str) -> None:
        """Take note that a worker died for want of memory."""
        keep(self._out_of_memory, worker, value=True)

    def loss(self, worker: str, reason: str) -> WorkerLost:
        """Return the error of work that a dead worker held.

        The first of it finds out whether memory was short: one kill explains the loss of all that the worker ran.
        """
        if worker not in self._out_of_memory:
            keep(self._out_of_memory, worker, value=self._killed_for_memory())
        if not self._out_of_memory[worker]:
            return WorkerLost(f"worker {worker} died at work: {reason}", AFTER_A_DEATH)
        return WorkerOutOfMemory(f"worker {worker} was killed at work, for want of memory", _AFTER_AN_OOM)


def keep(lost: dict[str, ValueT], worker: str, *, value: ValueT) -> None:
    """Add what is known of a lost worker, and drop the oldest where that is too much."""
    lost[worker] = value
    if len(lost) > LOST_KEPT:
        del lost[next(iter(lost))]
