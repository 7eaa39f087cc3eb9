"""One submitted piece of work, as its submitter holds it."""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...errors import CodecfleetError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run was at its pool's last look."""

    worker: str = ""  # the worker that runs it; "" while it waits for one
    frames: int = 0  # frames done there


@dataclass(frozen=True, slots=True)
class Doubt:
    """A job's complaint about the device that gave a result."""

    worker: str
    file: str  # what the work was about, so that one bad file does not condemn several devices
    reason: str
    is_wrong: bool  # the result failed a check; otherwise it only puts the device in doubt


def ignore_doubt(doubt: Doubt) -> None:
    """Do nothing, as a pool without devices."""
    del doubt


@dataclass(frozen=True, slots=True)
class ResultOrigin:
    """Where a result was made. It outlives its run, and does not keep the result."""

    worker: str
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

    Args:
        give_up: replaces the worker, if the work runs; the result is then ``DeadlineMissed`` with this reason.
        look: looks where the work is; None where the pool ``tell``s it.
    """

    def __init__(self, give_up: Callable[[str], None], look: Callable[[], RunProgress] | None = None) -> None:
        self.result: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        """What ``Pool.submit`` promises; set by the pool."""
        self.origin: ResultOrigin | None = None
        """Where the result was made, once it is there."""
        self._progress = RunProgress()
        self._look = look
        self._give_up: Callable[[str], None] | None = give_up
        self.result.add_done_callback(self._ended)

    def __await__(self) -> Generator[Any, None, ResultT]:
        return self.result.__await__()

    @property
    def progress(self) -> RunProgress:
        """Where it is, as far as its pool knows."""
        return self._progress if self._look is None else self._look()

    def tell(self, progress: RunProgress) -> None:
        """Replace its progress; for its pool."""
        self._progress = progress

    def end(self, result: ResultT, origin: ResultOrigin) -> None:
        """Give it its result, unless it has ended; for its pool."""
        if not self.result.done():
            self.origin = origin
            self.result.set_result(result)

    def fail(self, error: CodecfleetError) -> None:
        """Give it an error for its result, unless it has ended; for its pool."""
        if not self.result.done():
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
        self._look = self._give_up = None
        if not result.cancelled():
            result.exception()  # seen: a run need not be awaited
