"""Calls into a driver that never come back: how they are noticed, and what becomes of whoever waits for them.

A thread inside a C library cannot be stopped from outside, so there are two ways. A ``CallThread`` makes the calls
itself, and a caller whose call does not return gets its own thread back: for calls that are few and long, as a DLA's.
A ``CallWatch`` leaves calls where they are, since a handover for each of thousands a second would cost more than the
call, and tells those who asked for it when one is overdue: a worker process then answers for its work, and ends itself.

Both need the interpreter. A call that holds its lock for ever stops every thread of the process, and only another
process notices: the supervisor, which hears nothing any more (docs/supervisor.md).
"""

import concurrent.futures
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ..errors import EngineHung

__all__ = ["CallThread", "CallWatch", "Patience", "WatchedCall", "process_watch", "wait_for"]

ResultT = TypeVar("ResultT")

Patience = Callable[["Future[Any]", float], bool]
"""Waits until a future is done or so many seconds have passed, and says whether it is done."""

CALL_S: Final = 60.0
"""A picture takes milliseconds; a GPU that many processes share, and one that is being reset, take longer."""
OPENING_S: Final = 180.0
"""Drivers open one session after the other on a whole host, and a machine of many GPUs may take a minute to start."""
_GIVEN_UP: Final = object()
_ADVICE: Final = "Its process has to be ended; codecfleet doctor shows whether the device is well."


def wait_for(future: "Future[Any]", seconds: float) -> bool:
    """Be patient in real time."""
    concurrent.futures.wait({future}, timeout=seconds)
    return future.done()


def _hung(who: str, what: str, limit_s: float) -> EngineHung:
    return EngineHung(f"{who}: {what} did not return within {limit_s:.1f} s", _ADVICE)


class CallThread:
    """Runs one call at a time in a thread of its own; one that never returns keeps the thread and nothing else.

    The thread is a daemon: it holds up neither the interpreter's end nor anybody who still has work.

    Args:
        name: the thread's name.
        patience: how to wait.
    """

    def __init__(self, name: str, patience: Patience = wait_for) -> None:
        self._name = name
        self._patience = patience
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stuck: EngineHung | None = None

    def call(self, what: str, call: Callable[[], ResultT], limit_s: float) -> ResultT:
        """Run ``call`` in the thread and return its result, or raise what it raised.

        Raises:
            EngineHung: it did not return within ``limit_s``, or an earlier one never did.
        """
        with self._turn:
            self._refuse_if_stuck()
            self._start()
            future: Future[ResultT] = Future()
            self._calls.put((future, call))
            if not self._patience(future, limit_s):
                self._stuck = _hung(self._name, what, limit_s)
                self._refuse_if_stuck()
        return future.result()

    def close(self) -> None:
        """Let the thread end once it has nothing to do; does not wait for it."""
        self._calls.put(None)

    def _refuse_if_stuck(self) -> None:
        if self._stuck is not None:
            raise EngineHung(self._stuck.message, self._stuck.next_step)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while (order := self._calls.get()) is not None:
            future, call = order
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                future.set_exception(error)
            del order, future, call


class WatchedCall:
    """One call under watch, from ``with`` to its end. Made by ``CallWatch.calling``.

    Raises:
        EngineHung: at the end, where the call came back after it had been given up: so did whoever waited for it.
    """

    __slots__ = ("_due_s", "_limit_s", "_watch", "_what", "_who")

    def __init__(self, watch: "CallWatch", who: str, what: str, limit_s: float) -> None:
        self._watch = watch
        self._who = who
        self._what = what
        self._limit_s = limit_s
        self._due_s = math.inf

    @property
    def due_s(self) -> float:
        """When it should be over, by the watch's clock."""
        return self._due_s

    @property
    def error(self) -> EngineHung:
        """What is to be said of it once it is overdue."""
        return _hung(self._who, self._what, self._limit_s)

    def __enter__(self) -> Self:
        self._due_s = self._watch.clock() + self._limit_s
        self._watch.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._watch.end(self):
            raise self.error from error


class CallWatch:
    """Notices calls that do not return, wherever they are made, and tells of each once. Safe from any thread.

    Calls come by the ten thousand a second, from a dozen threads, so beginning and ending one takes no lock: it is one
    operation on a dictionary, which the interpreter does at once. Nor is anybody woken: the watch's thread looks as
    often as the shortest limit is long, and whatever begins in between is due after its next look.

    Args:
        call_s: how long any call may take.
        opening_s: how long one may take that opens a device or a session.
        clock: tells the time in seconds.
        wait: waits on a condition, whose lock is held, for so many seconds at most.
    """

    def __init__(
        self,
        call_s: float = CALL_S,
        opening_s: float = OPENING_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Condition, float], object] = threading.Condition.wait,
    ) -> None:
        self.call_s = call_s
        self.opening_s = opening_s
        self.clock = clock
        self._wait = wait
        self._rest = threading.Condition()
        self._calls: dict[WatchedCall, None] = {}
        self._told: list[Callable[[EngineHung], None]] = []
        self._thread: threading.Thread | None = None

    def tell(self, told: Callable[[EngineHung], None]) -> None:
        """Have ``told`` called, in a thread of the watch's own, with the error of each call that is overdue."""
        self._told.append(told)

    def calling(self, who: str, what: str) -> WatchedCall:
        """Return what watches a call of a driver while it is entered; ``who`` and ``what`` begin its error."""
        return WatchedCall(self, who, what, self.call_s)

    def opening(self, who: str, what: str) -> WatchedCall:
        """Return the same for a call that opens something."""
        return WatchedCall(self, who, what, self.opening_s)

    def begin(self, call: WatchedCall) -> None:
        """Watch a call from now on."""
        self._calls[call] = None
        if self._thread is None:
            self._start()

    def end(self, call: WatchedCall) -> bool:
        """Watch it no more; tell whether it has ended in time: not whether it was, but whether nobody gave it up."""
        return self._calls.pop(call, _GIVEN_UP) is None

    def _start(self) -> None:
        with self._rest:
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_for_ever, name="codecfleet-watch", daemon=True)
                self._thread.start()

    def _look_for_ever(self) -> None:
        while True:
            for call in self._overdue():
                for tell in tuple(self._told):
                    tell(call.error)
            with self._rest:
                self._wait(self._rest, self._rest_s())

    def _overdue(self) -> list[WatchedCall]:
        """Return the calls that are overdue, which are watched no more. One that ends just now is not among them."""
        now_s = self.clock()
        late = [call for call in list(self._calls) if call.due_s <= now_s]
        return [call for call in late if self._calls.pop(call, _GIVEN_UP) is None]

    def _rest_s(self) -> float:
        now_s, shortest_s = self.clock(), min(self.call_s, self.opening_s)
        return max(0.0, min([shortest_s, *(call.due_s - now_s for call in list(self._calls))]))


@cache
def process_watch() -> CallWatch:
    """Return the watch of this process: one is enough, since a call that never returns spoils the whole process."""
    return CallWatch()
