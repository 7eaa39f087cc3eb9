"""The unit of work a worker runs, and its context.

A worker only knows ``Work``, not segments or tracks: that keeps the pool, its fakes and its contract tests free of
media.
"""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ...errors import Cancelled

if TYPE_CHECKING:
    from .interface import WorkerDevice


ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class WorkContext:
    """What running work may use: a way to report progress that is also the place where cancellation is noticed.

    ``device`` is this worker's GPU, where it has one. ``frames_redone`` had to be done again.
    """

    frames_done: int = 0
    frames_redone: int = 0
    device: "WorkerDevice | None" = None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def advance(self, frames: int = 1) -> None:
        """Report ``frames`` more frames done.

        Raises:
            Cancelled: this work was cancelled; do not catch it.
        """
        self.frames_done += frames
        if self._cancelled.is_set():
            raise Cancelled("the work was cancelled")

    def start_over(self, frames_done: int) -> None:
        """Report that only ``frames_done`` of the frames done count: the others are done again."""
        self.frames_redone += self.frames_done - frames_done
        self.frames_done = frames_done

    @property
    def frames_worked(self) -> int:
        """All frames that were worked on; only grows."""
        return self.frames_redone + self.frames_done

    def cancel(self) -> None:
        """Ask the work to stop at its next ``advance``; callable from any thread."""
        self._cancelled.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(ABC, Generic[ResultT]):
    """One unit of work: a frozen, picklable value that knows how to run itself on one worker.

    ``job`` and ``label`` name it in progress and errors; (job, label) is unique while it runs.
    """

    job: str
    label: str

    @abstractmethod
    def run(self, context: WorkContext) -> ResultT:
        """Run to the end in the calling thread, calling ``context.advance`` at least once a frame.

        The result must pickle; large buffers in it should be NumPy arrays, which Ray moves without copying.

        Raises:
            CodecfleetError: anything that went wrong, mapped from foreign errors.
        """
