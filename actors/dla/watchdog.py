"""Firmware that hangs: how long a call may take, and what to do with one that does not come back.

The DLA's firmware can hang on some tasks, and whoever waits for it waits for ever (CUDA for Tegra 5.4). A thread
inside a C library cannot be stopped from outside, so every call of a session is made by a thread of the session's own:
the caller waits for it for a while, then gives it up, thread and all.
"""

import concurrent.futures
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...errors import EngineHung

__all__ = ["CallThread", "Deadlines", "Patience", "TimeLimits", "wait_for"]

ResultT = TypeVar("ResultT")

Patience = Callable[["Future[Any]", float], bool]
"""Waits until a future is done or so many seconds have passed, and says whether it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """How long things may take, in seconds.

    ``task_s`` is one task on the engine: cuDLA is told it (``cudlaSetTaskTimeoutInMs``) and ends the task with
    ``DLA_ENGINE_TIMEOUT``. ``grace_s`` is what the firmware gets beyond that before it counts as hung. ``call_s`` is
    any call that runs no task: opening, loading, registering, closing.
    """

    task_s: float = 10.0
    grace_s: float = 5.0
    call_s: float = 60.0

    def __post_init__(self) -> None:
        if min(self.task_s, self.grace_s, self.call_s) <= 0:
            message = f"time limits must be above 0: {self}"
            raise ValueError(message)

    @property
    def task_ms(self) -> int:
        """What cuDLA is told: whole milliseconds, at least one."""
        return max(1, round(self.task_s * 1000))


@dataclass(slots=True)
class Deadlines:
    """When the tasks of one session must be done: they run one after the other, each with its own time."""

    limits: TimeLimits
    _due_s: float | None = field(default=None, init=False)

    def submitted(self, now_s: float, tasks: int) -> None:
        """Take note of so many more tasks."""
        begins_s = now_s if self._due_s is None else max(now_s, self._due_s)
        self._due_s = begins_s + tasks * self.limits.task_s

    def ended(self) -> None:
        """Take note that all tasks are done."""
        self._due_s = None

    def patience_s(self, now_s: float) -> float:
        """Return for how long the tasks may still be waited for; never less than the grace."""
        waiting_s = 0.0 if self._due_s is None else max(0.0, self._due_s - now_s)
        return waiting_s + self.limits.grace_s


def wait_for(future: "Future[Any]", seconds: float) -> bool:
    """Be patient in real time."""
    concurrent.futures.wait({future}, timeout=seconds)
    return future.done()


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
        self._stuck_in = ""

    @property
    def stuck_in(self) -> str:
        """The call that did not return; "" while all is well."""
        return self._stuck_in

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
                self._stuck_in = f"{what} did not return within {limit_s:.1f} s"
                self._refuse_if_stuck()
        return future.result()

    def close(self) -> None:
        """Let the thread end once it has nothing to do; does not wait for it."""
        self._calls.put(None)

    def _refuse_if_stuck(self) -> None:
        if self._stuck_in:
            message = f"{self._name}: {self._stuck_in}"
            raise EngineHung(message, "Its process has to be ended; codecfleet doctor shows whether the DLA is well.")

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
