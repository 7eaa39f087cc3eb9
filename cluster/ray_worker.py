"""The worker process as Ray sees it: an async actor around ``actors/worker.py``.

``ray`` is not imported here: the class becomes an actor where the pool creates it, after the environment that Ray
reads at import is settled.
"""

import asyncio
import os
import pickle
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..actors.worker import WorkerCore
from ..errors import CodecfleetError, UsageError, WorkError

__all__ = ["CONTROL", "Outcome", "RayWorker"]

ResultT = TypeVar("ResultT")

CONTROL = "control"
"""The concurrency group of everything but work: it has its own thread and event loop, so it always answers."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ResultT]):
    """How a piece of work ended: with a result, or with an error.

    Errors travel as values: raised in an actor they would come back wrapped, or not at all if they do not pickle.
    """

    result: ResultT | None = None
    error: CodecfleetError | None = None


class RayWorker:
    """One worker process with ``slots`` slots."""

    def __init__(self, slots: int) -> None:
        self._core = WorkerCore(slots)

    async def run(self, run: int, pickled_work: bytes) -> Outcome[object]:
        """Run the pickled work to its end and return how it ended; never raises for what the work does."""
        try:
            work = pickle.loads(pickled_work)  # noqa: S301 - from our own driver, over Ray's authenticated channel
        except Exception as error:  # noqa: BLE001 - whatever user classes raise when they are unpickled
            return Outcome(error=_unreadable(error))
        try:
            return Outcome(await asyncio.wrap_future(self._core.submit(run, work)))
        except CodecfleetError as error:
            return Outcome(error=_portable(error))

    async def cancel(self, run: int) -> None:
        """Cancel ``run``; see ``WorkerCore.cancel``."""
        self._core.cancel(run)

    async def progress(self, job: str) -> dict[str, int]:
        """Return the frames done by each running piece of work of ``job``, by label."""
        return self._core.progress(job)

    async def answer(self) -> int:
        """Return the process id: the process is up and our code is importable in it."""
        return os.getpid()

    async def watch(self) -> None:
        """Never return: whoever awaits this learns of the process's death at once, also when no work runs."""
        await asyncio.Event().wait()


def _unreadable(error: Exception) -> UsageError:
    message = f"the work cannot be unpickled on the worker: {type(error).__name__}: {error}"
    return UsageError(message, "Define its class in a module that is installed where the workers run.")


def _portable(error: CodecfleetError) -> CodecfleetError:
    """Return ``error``, or what can be said of it if it does not survive the journey."""
    try:
        survives = type(pickle.loads(pickle.dumps(error))) is type(error)  # noqa: S301 - pickled one line before
    except Exception:  # noqa: BLE001 - whatever a subclass's own pickling raises
        survives = False
    return error if survives else WorkError(f"{type(error).__name__}: {error}", error.next_step)
