"""The core of a worker process: runs work in threads, reports progress, and cancels work.

The hosts of workers, the hosts' helpers and codecfleet.testing.LocalPool share this code.
"""

import os
import threading
import time
import traceback
import weakref
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ...errors import Cancelled, CodecfleetError, WorkerLost, WorkerOutOfMemory, WorkError
from .interface import WorkerDevice
from .pieces import EndedPieces, Ending, Piece, ending_of
from .work import Work, WorkContext

ResultT = TypeVar("ResultT")

_EARLY_CANCELS_KEPT = 1024


class WorkerCore:
    """Runs work in up to ``slots`` threads, on ``device`` if there is one. Thread-safe.

    Work is named by its *run*, a name that is never reused; a (job, label) is not unique, because cancelled work may be
    submitted again while the cancelled run is still ending.
    """

    def __init__(self, slots: int, device: WorkerDevice | None = None) -> None:
        self._device = device
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="codecfleet-work")
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Work[Any], WorkContext]] = {}
        self._awaited: set[Future[Any]] = set()
        self._given_up: CodecfleetError | None = None
        self._cancelled_early: dict[str, None] = {}
        self._frames_finished = 0
        self._ended = EndedPieces()

    def submit(self, run: str, work: Work[ResultT]) -> Future[ResultT]:
        """Start ``work`` in the next free thread.

        The future gets the result or the error: a CodecfleetError as it was raised, any other error as a ``WorkError``
        with its type and message. ``WorkerLost`` if no thread can be started.
        """
        awaited: Future[ResultT] = Future()
        with self._lock:
            if self._given_up is not None:
                awaited.set_exception(self._given_up)
                return awaited
            self._awaited.add(awaited)
        try:
            # The executor's future is not returned: it would stay pending if the thread never returned.
            ran = self._threads.submit(self._run, run, work)
        except RuntimeError as error:
            self.cancel(run)  # the executor still holds the work, which must not begin
            with self._lock:
                self._awaited.discard(awaited)
            message = f"the worker has no thread for {work.label}: {error}"
            advice = "Raise the thread limit of the worker's machine, or run fewer segments at a time with --workers N."
            awaited.set_exception(WorkerLost(message, advice))
            return awaited
        ran.add_done_callback(partial(self._pass_on, awaited))
        # The reference is weak: a cycle would keep the result in memory until the next garbage collection.
        awaited.add_done_callback(partial(_cancel, weakref.ref(ran)))
        return awaited

    def give_up(self, error: CodecfleetError) -> None:
        """End all current and future work with ``error``, because a thread of this process will never return."""
        with self._lock:
            self._given_up = self._given_up or error
            awaited, self._awaited = self._awaited, set()
        for each in awaited:
            with suppress(InvalidStateError):  # the work has just ended, or was cancelled
                each.set_exception(error)

    def cancel(self, run: str) -> None:
        """Make ``run`` raise ``Cancelled`` at the next report of progress, or at once if the run has not begun."""
        with self._lock:
            if run in self._running:
                self._running[run][1].cancel()
                return
            # The order to cancel may overtake the request to run. Names of runs that have already ended are added, too.
            # No request removes those, so only the newest names are kept.
            self._cancelled_early[run] = None
            while len(self._cancelled_early) > _EARLY_CANCELS_KEPT:
                del self._cancelled_early[next(iter(self._cancelled_early))]

    def was_cancelled(self, run: str) -> bool:
        """Return whether a run was cancelled before it was submitted."""
        with self._lock:
            return run in self._cancelled_early

    def progress(self) -> dict[str, int]:
        """Return how many frames each run has done."""
        with self._lock:
            return {run: context.frames_done for run, (_, context) in self._running.items()}

    def pieces(self) -> tuple[Piece, ...]:
        """Return the running pieces, in order of start."""
        with self._lock:
            return tuple(_piece(run, work, context) for run, (work, context) in self._running.items())

    def take_ended(self) -> tuple[Piece, ...]:
        """Return the pieces that have ended since the last call."""
        return self._ended.take()

    @property
    def frames_done(self) -> int:
        """The number of frames that this process has worked on, including repeated frames; it never decreases."""
        with self._lock:
            return self._frames_finished + sum(context.frames_worked for _, context in self._running.values())

    def close(self) -> None:
        """Cancel all work, and accept no more work; does not wait for the threads."""
        with self._lock:
            for _, context in self._running.values():
                context.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _pass_on(self, awaited: Future[ResultT], ran: Future[ResultT]) -> None:
        with self._lock:
            self._awaited.discard(awaited)
            given_up = self._given_up
        is_cancelled = ran.cancelled() or isinstance(ran.exception(), Cancelled)
        with suppress(InvalidStateError):  # the future was abandoned or cancelled
            if given_up is not None and is_cancelled:
                # The process ends and cancels its work, perhaps before ``give_up`` reaches this run.
                awaited.set_exception(given_up)
            elif ran.cancelled():
                awaited.cancel()
            elif (error := ran.exception()) is not None:
                awaited.set_exception(error)
            else:
                awaited.set_result(ran.result())

    def _run(self, run: str, work: Work[ResultT]) -> ResultT:
        context, ending = self._enter(run, work), Ending.DONE
        try:
            return _ran(work, context)
        except CodecfleetError as error:
            ending = ending_of(error)
            raise
        finally:
            ended = _piece(run, work, context)._replace(ended_s=time.monotonic(), ending=ending)
            with self._lock:
                self._frames_finished += context.frames_worked
                self._ended.extend([ended])
                del self._running[run]

    def _enter(self, run: str, work: Work[ResultT]) -> WorkContext:
        context = WorkContext(device=self._device)
        with self._lock:
            if run in self._cancelled_early:
                del self._cancelled_early[run]
                raise Cancelled("the work was cancelled before it began")
            self._running[run] = (work, context)
        return context


def _cancel(ran: "weakref.ref[Future[Any]]", _: Future[Any]) -> None:
    future = ran()
    if future is not None:
        future.cancel()


def _piece(run: str, work: Work[Any], context: WorkContext) -> Piece:
    return Piece(run, work.job, work.label, context.began_s)


def _ran(work: Work[ResultT], context: WorkContext) -> ResultT:
    try:
        return work.run(context)
    except CodecfleetError:
        raise
    except MemoryError as error:
        message = f"{work.label} ran out of memory in its worker, process {os.getpid()}"
        raise WorkerOutOfMemory(
            message, "Give the worker more memory, or run fewer segments at a time with --workers N."
        ) from error
    except BaseException as error:  # the work of users may raise anything
        raise _as_work_error(work, error) from error


def _as_work_error(work: Work[ResultT], error: BaseException) -> WorkError:
    message = f"{work.label} failed with {type(error).__name__}: {error}"
    mapped = WorkError(message, "This is a defect of codecfleet or of a codec: please report it with the input.")
    # The cause would be lost in pickling, but a note is kept.
    mapped.add_note("".join(traceback.format_exception(error)))
    return mapped
