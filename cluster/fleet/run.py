"""Submitted work, as its submitter holds it."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...errors import CodecfleetError
from ..worker_names import NO_WORKER, WorkerId

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run was at its pool's last look."""

    worker: WorkerId = NO_WORKER  # the worker that runs it; "" while it waits for one
    frames: int = 0  # frames done there


@dataclass(frozen=True, slots=True)
class Doubt:
    """A job's complaint about the device that gave a result."""

    worker: WorkerId
    file: str  # what the work was about, so that one bad file does not condemn several devices
    reason: str
    is_wrong: bool  # the result failed a check; otherwise it only puts the device in doubt


def ignore_doubt(doubt: Doubt) -> None:
    """Do nothing, as a pool without devices."""
    del doubt


@dataclass(frozen=True, slots=True)
class ResultOrigin:
    """Where a result was made. It outlives its run, and does not keep the result."""

    worker: WorkerId
    file: str
    tell: Callable[[Doubt], None] = ignore_doubt

    def found_wrong(self, reason: str) -> None:
        """Report that the result failed a check."""
        self.tell(Doubt(self.worker, self.file, reason, is_wrong=True))

    def found_doubtful(self, reason: str) -> None:
        """Report that the result puts its device in doubt."""
        self.tell(Doubt(self.worker, self.file, reason, is_wrong=False))


class WorkRun(Generic[ResultT]):
    """Work that waits for a worker, runs, or has ended; ``await run`` returns its result.

    Cancelling what awaits it cancels the work, queued or running; its slot is free once its worker has stopped.
    ``tell``, ``end`` and ``fail`` are for its pool.

    Args:
        give_up: replaces the worker, if the work runs; the result is then ``DeadlineMissed`` with this reason.
    """

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self.result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        """What ``Pool.submit`` promises."""
        self.origin: ResultOrigin | None = None
        """Where the result was made, once it is there."""
        self._progress = RunProgress()
        self._give_up: Callable[[str], None] | None = give_up
        self.result.add_done_callback(self._ended)

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.result.__await__()

    @property
    def progress(self) -> RunProgress:
        """Where it is, as far as its pool knows."""
        return self._progress

    def tell(self, progress: RunProgress) -> None:
        """Replace its progress."""
        self._progress = progress

    def end(self, result: ResultT, origin: ResultOrigin) -> None:
        """Give it its result, unless it has ended."""
        if not self.result.done():
            self.origin = origin
            self.result.set_result(result)

    def fail(self, error: CodecfleetError, origin: ResultOrigin | None = None) -> None:
        """Give it an error for its result, unless it has ended."""
        if not self.result.done():
            self.origin = origin
            self.result.set_exception(error)

    def cancel(self) -> None:
        """Cancel the work. Nothing happens if it has ended; whatever it still does is dropped."""
        self.result.cancel()

    def give_up(self, why: str) -> None:
        """Replace the worker, because the work hangs there.

        The result is ``DeadlineMissed``, whose message is the work's label and ``why``; all else that runs on the
        worker ends with ``WorkerLost``, and a retry prefers another station. Work that does not run is left alone.
        """
        if self._give_up is not None and not self.result.done():
            self._give_up(why)

    def _ended(self, result: "asyncio.Future[ResultT]") -> None:
        # What the pool gave refers to this run: such a circle would keep the result until the garbage collector came.
        self._give_up = None
        if not result.cancelled():
            result.exception()  # seen: a run need not be awaited
