"""The unit of work that a worker runs, its context, and bytes that many units share. None of it depends on media."""

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
    """What running work may use: its worker's GPU, if any, and progress reports, which also notice cancellation."""

    began_s: float = field(default_factory=time.monotonic)
    frames_done: int = 0  # since the last ``start_over``
    frames_redone: int = 0  # done, and discarded by ``start_over``
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
        """Report that only ``frames_done`` of the frames done count: the others are repeated."""
        self.frames_redone += self.frames_done - frames_done
        self.frames_done = frames_done

    @property
    def frames_worked(self) -> int:
        """All frames worked on, repeated ones included; only grows."""
        return self.frames_redone + self.frames_done

    def cancel(self) -> None:
        """Ask the work to stop at its next ``advance``; callable from any thread."""
        self._cancelled.set()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where and how work may run; the default leaves it to the pool."""

    alone: bool = False  # whether its process runs nothing else meanwhile
    avoid: frozenset[str] = frozenset()  # stations that run the work only if no other station has a free slot
    same_kind_as: str = ""  # the preferred kind of device, if such a worker comes in time; "": any kind
    software: str = ""  # why no device may decode the input, "" if one may


UNCONSTRAINED: Final = Constraints()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(ABC, Generic[ResultT]):
    """One unit of work: a frozen, picklable value that knows how to run itself on one worker."""

    job: str
    label: str  # the work's name in progress and errors: (job, label) is unique while the work runs
    apart_from: str = ""  # the label of other work of the job, whose station must not run this work
    constraints: Constraints = UNCONSTRAINED
    ships: bool = False  # the work reads a file on its submitter's machine, which the pool must serve

    @property
    def may_wait(self) -> bool:
        """Whether it waits for an encoder session, instead of failing, while a limit refuses one."""
        return False

    @property
    def file(self) -> str:
        """The name of its input: failures of one file are not counted against several devices."""
        return self.job

    @abstractmethod
    def run(self, context: WorkContext) -> ResultT:
        """Run to the end in the calling thread, calling ``context.advance`` at least once a frame.

        The result must pickle; large buffers in it should be NumPy arrays, which Ray moves without copying.

        Raises:
            CodecfleetError: anything that went wrong, mapped from foreign errors.
        """


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and their digest, such as a network; blobs are equal if their contents are.

    A pool may strip the content from the work and send it ahead, once to each machine; running work has it.
    """

    digest: str
    content: bytes = field(repr=False, compare=False)

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Return the blob of ``content``."""
        return cls(hashlib.sha256(content).hexdigest(), content)
