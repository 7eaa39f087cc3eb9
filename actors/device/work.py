"""The unit of work that a worker runs, the unit's context, and bytes that many units share.

Nothing here depends on media.
"""

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

from ...errors import Cancelled

if TYPE_CHECKING:
    from .interface import WorkerDevice


ResultT = TypeVar("ResultT")


@dataclass(slots=True)
class WorkContext:
    """Gives running work the worker's GPU, if any, and counts the progress; ``advance`` may raise ``Cancelled``."""

    began_s: float = field(default_factory=time.monotonic)
    frames_done: int = 0  # frames done since the last ``start_over``
    frames_redone: int = 0  # frames that were done, but were discarded by ``start_over``
    device: "WorkerDevice | None" = None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def advance(self, frames: int = 1) -> None:
        """Report that ``frames`` more frames are done.

        Raises:
            Cancelled: this work was cancelled; do not catch this error.
        """
        self.frames_done += frames
        if self._cancelled.is_set():
            raise Cancelled("the work was cancelled")

    def start_over(self, frames_done: int) -> None:
        """Report that only ``frames_done`` of the finished frames count; the other frames will be done again."""
        self.frames_redone += self.frames_done - frames_done
        self.frames_done = frames_done

    @property
    def frames_worked(self) -> int:
        """The number of frames worked on, including repeated frames; it never decreases."""
        return self.frames_redone + self.frames_done

    def cancel(self) -> None:
        """Ask the work to stop at the next ``advance``; may be called from any thread."""
        self._cancelled.set()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where and how work may run; by default the pool decides."""

    alone: bool = False  # whether the worker process must run nothing else at the same time
    avoid: frozenset[str] = frozenset()  # stations that run the work only if no other station has a free slot
    same_kind_as: str = ""  # the preferred kind of device, if a worker that has it is free in time; "" for any kind
    software: str = ""  # why no device may decode the input; "" if a device may


UNCONSTRAINED: Final = Constraints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(ABC, Generic[ResultT]):
    """One unit of work: a frozen, picklable value that knows how to run itself on one worker."""

    job: str
    label: str  # the name that progress reports and errors show; (job, label) is unique while the work runs
    apart_from: str = ""  # the label of another work item of the job; the station that ran it must not run this work
    constraints: Constraints = UNCONSTRAINED
    ships: bool = False  # whether the work reads a file on the submitter's machine, which the pool must serve

    @property
    def may_wait(self) -> bool:
        """Whether the work waits, instead of failing, while a limit refuses an encoder session."""
        return False

    @property
    def file(self) -> str:
        """The name of the input, here the job's. Failures of one input on several devices count against no device."""
        return self.job

    @abstractmethod
    def run(self, context: WorkContext) -> ResultT:
        """Run to the end in the calling thread, and call ``context.advance`` at least once for each frame.

        It must be possible to pickle the result; large buffers in it should be NumPy arrays, which Ray moves without
        copying.

        Raises:
            CodecfleetError: any failure; errors of other libraries are mapped to it.
        """


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes, such as a network, with their digest; blobs are equal if their contents are.

    A pool may remove the content from the work and send it ahead, once to each machine; running work always has the
    content.
    """

    digest: str
    content: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return a blob with this ``content``."""
        return cls(hashlib.sha256(content).hexdigest(), content)
