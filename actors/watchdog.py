"""Detects driver calls that never return, and releases their callers.

``CallThread`` is for few, long calls: its own thread makes them, so a caller can leave a call that hangs. ``CallWatch``
watches thousands of calls a second, and only reports overdue calls: the worker then fails its work and exits. A call
that holds the GIL stops both classes; the supervisor then notices missing heartbeats (docs/supervisor.md).
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

ResultT = TypeVar("ResultT")

Patience = Callable[["Future[Any]", float], bool]
"""Waits up to a number of seconds for a future, and returns whether it is done."""

CALL_S: Final = 60.0
"""The limit for a call. A picture takes milliseconds, but longer on a GPU that is shared by many or being reset."""
OPENING_S: Final = 180.0
"""The limit for opening a device or a session: drivers open one at a time on a whole host, and a machine with many GPUs
may take a minute to start.
"""
_MISSING: Final = object()
_ADVICE: Final = "Restart this process; codecfleet doctor shows whether the device is healthy."


def wait_for(future: "Future[Any]", seconds: float) -> bool:
    """Wait in real time."""
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
        """Run ``call`` in the thread; ``EngineHung`` if this call or an earlier one did not return within its limit."""
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
        """End the thread once it has nothing to do; does not wait for it."""
        self._calls.put(None)

    def _refuse_if_stuck(self) -> None:
        if self._stuck is not None:
            raise EngineHung(self._stuck.message, self._stuck.next_step)

    def _serve(self) -> None:
        while (request := self._calls.get()) is not None:
            future, call = request
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the error belongs to the caller
                future.set_exception(error)
            del request, future, call


class WatchedCall:
    """One call, watched while this context is entered; exit raises ``EngineHung`` if the call was overdue."""

    __slots__ = ("_limit_s", "_watch", "_what", "_who", "due_s")

    def __init__(self, watch: "CallWatch", who: str, what: str, limit_s: float) -> None:
        self._watch = watch
        self._who = who
        self._what = what
        self._limit_s = limit_s
        self.due_s = math.inf
        """The call's deadline by the watch's clock."""

    @property
    def error(self) -> EngineHung:
        """The error of an overdue call."""
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
    """Reports, once, each call that does not return, whichever thread makes it. Safe from any thread.

    A dozen threads make ten thousand calls a second, so the beginning and the end of a call take no lock, only one
    atomic operation on a dictionary, and wake no thread. The watch's thread checks once per shortest limit, so a call
    that begins in between cannot be overdue at the next check.

    The limits are ``call_s`` and, for opening a device or a session, ``opening_s``; ``clock`` returns seconds;
    ``wait(condition, seconds)`` waits on a condition, whose lock is held, for at most that many seconds.
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
        """Return a context that watches a driver call; the error's message begins with ``who`` and ``what``."""
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
        """Stop watching a call; return whether it was not reported as overdue."""
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


@cache
def process_watch() -> CallWatch:
    """Return this process's watch: one is enough, since any call that never returns ends the whole process."""
    return CallWatch()
