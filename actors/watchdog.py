"""Detects driver calls that never return, and releases their callers.

``CallThread`` is for few, long calls: it makes each call in its own thread, so that the caller can leave a call that
hangs. ``CallWatch`` is for thousands of calls a second: it only reports overdue calls, after which the worker fails its
work and exits. A call that holds the GIL stops both; then the supervisor notices missing heartbeats
(docs/supervisor.md).
"""

import concurrent.futures
import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ..errors import EngineHung
from .background import settle
from .shared_once import shared_once

ResultT = TypeVar("ResultT")

Patience = Callable[["Future[Any]", float], bool]
"""Waits for a future, up to a number of seconds, and returns whether the future is done."""

CALL_S: Final = 60.0
"""The time limit of a driver call. A picture takes milliseconds, but longer on a GPU that many processes share, or that
is being reset.
"""
OPENING_S: Final = 180.0
"""The time limit for opening a device or a session. A driver opens the sessions of a host one by one, and a machine
with many GPUs may take a minute to start.
"""
_MISSING: Final = object()
_ADVICE: Final = "Restart this process; codecfleet doctor shows whether the device is healthy."


def wait_for(future: "Future[Any]", seconds: float) -> bool:
    """Wait for a future by the real clock; return whether it is done."""
    concurrent.futures.wait({future}, timeout=seconds)
    return future.done()


def _hung(who: str, what: str, limit_s: float) -> EngineHung:
    return EngineHung(f"{who}: {what} did not return within {limit_s:.1f} s", _ADVICE)


class CallThread:
    """Runs one call at a time in a daemon thread called ``name``; a call that never returns blocks only that thread."""

    def __init__(self, name: str, patience: Patience = wait_for) -> None:
        self._name = name
        self._patience = patience
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._stuck: EngineHung | None = None

    def call(self, what: str, call: Callable[[], ResultT], limit_s: float) -> ResultT:
        """Run ``call`` in the thread; ``EngineHung`` if this call or an earlier call exceeded its limit."""
        with self._turn:
            self._refuse_if_stuck()
            if self._thread.ident is None:
                self._thread.start()
            future: Future[ResultT] = Future()
            self._calls.put((future, call))
            if not self._patience(future, limit_s):
                self._stuck = _hung(self._name, what, limit_s)
                self._refuse_if_stuck()
        return future.result()

    def close(self) -> None:
        """End the thread once it has nothing to do; this call does not wait."""
        self._calls.put(None)

    def _refuse_if_stuck(self) -> None:
        if self._stuck is not None:
            raise EngineHung(self._stuck.message, self._stuck.next_step)

    def _serve(self) -> None:
        while (request := self._calls.get()) is not None:
            future, call = request
            settle(future, call)
            del request, future, call


class WatchedCall:
    """A context in which one call is watched; raises ``EngineHung`` on exit if the call was reported as overdue."""

    __slots__ = ("_limit_s", "_watch", "_what", "_who", "due_s")

    def __init__(self, watch: "CallWatch", who: str, what: str, limit_s: float) -> None:
        self._watch = watch
        self._who = who
        self._what = what
        self._limit_s = limit_s
        self.due_s = math.inf
        """The deadline of the call, by the clock of the watch."""

    @property
    def error(self) -> EngineHung:
        """The ``EngineHung`` to raise for the call if it is overdue."""
        return _hung(self._who, self._what, self._limit_s)

    def __enter__(self) -> Self:
        self.due_s = self._watch.clock() + self._limit_s
        self._watch.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._watch.end(self):
            raise self.error from error


class CallWatch:
    """Reports each call that does not return, but only once. Thread-safe.

    A dozen threads make ten thousand calls a second. Therefore beginning or ending a call takes no lock, only one
    atomic operation on a dictionary, and wakes no thread. The watch's own thread checks as often as the shortest limit,
    so a call that begins between two checks cannot be overdue before the second of them.

    ``call_s`` is the limit of a call, ``opening_s`` the limit for opening a device or a session. ``clock`` returns
    seconds. ``wait`` waits on a condition for at most a number of seconds, with the condition's lock held.
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
        self._listeners: list[Callable[[EngineHung], None]] = []
        self._thread: threading.Thread | None = None

    def on_overdue(self, listener: Callable[[EngineHung], None]) -> None:
        """Call ``listener``, in the watch's own thread, with the error of each overdue call."""
        self._listeners.append(listener)

    def calling(self, who: str, what: str) -> WatchedCall:
        """Return a context that watches a driver call; ``who`` and ``what`` begin the error message."""
        return WatchedCall(self, who, what, self.call_s)

    def opening(self, who: str, what: str) -> WatchedCall:
        """Return a context that watches a call that opens a device or a session."""
        return WatchedCall(self, who, what, self.opening_s)

    def begin(self, call: WatchedCall) -> None:
        """Start watching a call."""
        self._calls[call] = None
        if self._thread is None:
            with self._rest:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._watch_calls, name="codecfleet-watch", daemon=True)
                    self._thread.start()

    def end(self, call: WatchedCall) -> bool:
        """Stop watching a call; return False if it was already reported as overdue."""
        return self._calls.pop(call, _MISSING) is None

    def _watch_calls(self) -> None:
        while True:
            now_s = self.clock()
            late = [call for call in list(self._calls) if call.due_s <= now_s]
            for call in late:
                if self.end(call):  # the call may have ended just now
                    for listener in tuple(self._listeners):
                        listener(call.error)
            with self._rest:
                now_s, shortest_s = self.clock(), min(self.call_s, self.opening_s)
                rest_s = min([shortest_s, *(call.due_s - now_s for call in list(self._calls))])
                self._wait(self._rest, max(0.0, rest_s))


@shared_once
def process_watch() -> CallWatch:
    """Return this process's watch: one watch is enough, since a call that never returns costs the whole process."""
    return CallWatch()
