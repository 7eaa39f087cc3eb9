"""Submitted work, and the origin of its result."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...errors import CodecfleetError
from ..device_fault import DeviceFault, FaultVerdict
from ..worker_names import NO_WORKER, WorkerId

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The last known progress of a run."""

    worker: WorkerId = NO_WORKER  # the worker of the run; "" while the run waits for a worker
    frames: int = 0  # how many frames the worker has finished


@dataclass(frozen=True, slots=True)
class ResultOrigin:
    """The worker and input of a result, without the run and the result themselves."""

    worker: WorkerId
    file: str
    tell: Callable[[DeviceFault], object] = bool  # reports a fault; a pool without devices ignores it

    def found_wrong(self, reason: str) -> None:
        """Report that the result failed a check."""
        self.tell(DeviceFault(self.worker, self.file, reason, FaultVerdict.WRONG))

    def found_doubtful(self, reason: str) -> None:
        """Report that the result casts doubt on the device."""
        self.tell(DeviceFault(self.worker, self.file, reason, FaultVerdict.DOUBTFUL))


class WorkRun(Generic[ResultT]):
    """Work that waits for a worker, runs, or has ended; ``await run`` returns the work's result.

    Cancelling the awaiting task cancels the work; the slot is free once the worker has stopped the work. Only the pool
    calls ``tell``, ``end`` and ``fail``. The pool also supplies ``give_up``, which replaces the worker of running work.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self.result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()  #: see ``Pool.submit``
        self.origin: ResultOrigin | None = None  #: set when the work ends in a worker
        self._progress = RunProgress()
        self._give_up: Callable[[str], None] | None = give_up
        self.result.add_done_callback(self._ended)

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.result.__await__()

    @property
    def progress(self) -> RunProgress:
        """The last known progress of the run."""
        return self._progress

    def tell(self, progress: RunProgress) -> None:
        """Replace the run's progress."""
        self._progress = progress

    def end(self, result: ResultT, origin: ResultOrigin) -> None:
        """Set the run's result, unless the run has ended."""
        if not self.result.done():
            self.origin = origin
            self.result.set_result(result)

    def fail(self, error: CodecfleetError, origin: ResultOrigin | None = None) -> None:
        """Set an error as the run's result, unless the run has ended."""
        if not self.result.done():
            self.origin = origin
            self.result.set_exception(error)

    def cancel(self) -> None:
        """Cancel the work, unless it has ended."""
        self.result.cancel()

    def give_up(self, why: str) -> None:
        """Replace the worker in which the work hangs. Does nothing unless the work runs.

        The work ends with ``DeadlineMissed``, whose message has the work's label and ``why``. Other work in the same
        worker ends with ``WorkerLost``. Retries prefer another station.
        """
        if self._give_up is not None and not self.result.done():
            self._give_up(why)

    def _ended(self, result: "asyncio.Future[ResultT]") -> None:
        self._give_up = None  # breaks a cycle that would keep the result until a garbage collection
        if not result.cancelled():
            result.exception()  # marks the error as retrieved, because a run need not be awaited


class LookedRun(WorkRun[ResultT]):
    """A run whose progress is looked up when it is read."""

    def __init__(self, give_up: Callable[[str], None], look: Callable[[], RunProgress]) -> None:
        super().__init__(give_up)
        self._look = look

    @property
    def progress(self) -> RunProgress:
        """The last known progress of the run."""
        return self._look()
