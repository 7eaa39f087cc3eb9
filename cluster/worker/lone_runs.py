"""Processes in which a worker runs work alone: what breaks there breaks no other work.

A process is used again while all that ran in it left it sound: the next work is alone there, too.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from ...actors.device.pieces import Piece
from ...actors.device.work import Constraints
from ...errors import Cancelled, CodecfleetError, DeviceLost, ProcessKilled, WorkerLost
from ..machine import OomKills
from ..process.child import ChildDied
from .helpers.helper import HelperProcess, Spawn
from .helpers.messages import HelperState
from .outcome import Outcome, failed

LONE_MAX: Final = 4
"""How many processes run work alone beside a worker: on a GPU, the context of each takes half a gigabyte."""
IDLE_S: Final = 30.0
"""How long an unused one is kept."""
_CANCELLED: Final = "the work was cancelled before it began"
_MORE_MEMORY: Final = "Use a smaller --scale, a faster --preset, or a machine with more memory."
_REPORT: Final = "Please report it, with the input and the options; --keep-evidence saves what the segment reads."


class LoneRuns:
    """The processes beside one worker. ``run`` is for one event loop, the rest is thread-safe.

    Args:
        device: names the worker's GPU in errors; "" for none.
        spawn: starts a process that runs one piece of work at a time.
        was_cancelled: whether a run was cancelled before it came here.
        killed_for_memory: says of each death whether the kernel's OOM killer explains it.
    """

    def __init__(
        self,
        device: str,
        spawn: Spawn,
        was_cancelled: Callable[[str], bool],
        killed_for_memory: Callable[[], bool] | None = None,
    ) -> None:
        self._device = device
        self._spawn = spawn
        self._was_cancelled = was_cancelled
        self._killed_for_memory = killed_for_memory or OomKills().explains_a_death
        self._room = asyncio.Semaphore(LONE_MAX)
        self._waiting: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._processes: list[_LoneProcess] = []
        self._frames_of_ended = 0

    async def run(
        self, run: str, packed_work: bytes, blobs: tuple[bytes, ...], constraints: Constraints
    ) -> Outcome[Any]:
        """Run packed work alone, when there is room, and return its outcome; never raises."""
        if not await self._admitted(run):
            return failed(Cancelled(_CANCELLED))
        try:
            return await self._run(run, packed_work, blobs, constraints)
        finally:
            self._room.release()

    async def _admitted(self, run: str) -> bool:
        """Wait for room; return whether there is some, which work that is cancelled meanwhile does not wait for."""
        room, loop = asyncio.ensure_future(self._room.acquire()), asyncio.get_running_loop()
        with self._lock:
            self._waiting[run] = partial(loop.call_soon_threadsafe, room.cancel)
        if self._was_cancelled(run):
            room.cancel()
        await asyncio.wait({room})
        with self._lock:
            del self._waiting[run]
        return not room.cancelled()

    async def _run(
        self, run: str, packed_work: bytes, blobs: tuple[bytes, ...], constraints: Constraints
    ) -> Outcome[Any]:
        with self._taken() as process:
            await asyncio.wrap_future(process.is_up)
            if self._was_cancelled(run):
                return failed(Cancelled(_CANCELLED))
            try:
                outcome = await asyncio.wrap_future(process.helper.submit(run, packed_work, blobs))
            except ChildDied as died:
                process.died = process.died or str(died)
                return Outcome(error=self._death(process, constraints))
            except CodecfleetError as error:  # its result did not arrive
                outcome = failed(error)
            if outcome.spoils_process:
                process.end()
            # The worker itself is sound.
            return replace(outcome, spoils_process=False)

    def _death(self, process: "_LoneProcess", constraints: Constraints) -> CodecfleetError:
        if not process.was_up:
            return WorkerLost(f"no process could be started to run it alone: {process.died}", _REPORT)
        if self._killed_for_memory():
            return ProcessKilled("the process that ran it alone was killed for want of memory", _MORE_MEMORY)
        if self._device and not constraints.software:
            return DeviceLost(f"the process that ran it alone on {self._device} died: {process.died}", _REPORT)
        return ProcessKilled(f"the process that ran it alone died: {process.died}", _REPORT)

    @contextmanager
    def _taken(self) -> "Iterator[_LoneProcess]":
        with self._lock:
            process = next((each for each in self._processes if each.is_idle), None)
            if process is None:
                process = _LoneProcess(self._spawn)
                self._processes.append(process)
            process.idle_since_s = None
        try:
            yield process
        finally:
            process.idle_since_s = 0.0
            if process.died:
                with self._lock:
                    self._drop(process)

    def _drop(self, process: "_LoneProcess") -> None:
        """Forget a process; the caller holds the lock."""
        self._processes.remove(process)
        self._frames_of_ended += process.state.frames_done

    def cancel(self, run: str) -> None:
        """Cancel a run; those that are not here are ignored."""
        self._withdraw(run.__eq__)
        for process in self._now():
            process.helper.cancel(run)

    def cancel_all(self, beginning: str) -> None:
        """Cancel every run whose name begins with ``beginning``."""
        self._withdraw(lambda run: run.startswith(beginning))
        for process in self._now():
            process.helper.cancel_all(beginning)

    def _withdraw(self, is_meant: Callable[[str], bool]) -> None:
        """Have runs that wait for room wait no more."""
        with self._lock:
            for withdraw in [withdraw for run, withdraw in self._waiting.items() if is_meant(run)]:
                withdraw()

    def look(self, now_s: float) -> None:
        """Kill processes that fell silent, and end those that were idle for long. To be called every few seconds."""
        for process in self._now():
            process.helper.look(now_s)
            with self._lock:
                has_rested = process in self._processes and process.has_rested(now_s)
                if has_rested:
                    self._drop(process)
            if has_rested:
                process.end()

    @property
    def states(self) -> tuple[HelperState, ...]:
        """What each process says of itself."""
        return tuple(process.state for process in self._now())

    def pieces(self) -> tuple[Piece, ...]:
        """Return what runs here."""
        return tuple(chain.from_iterable(process.helper.pieces() for process in self._now()))

    def take_ended(self) -> tuple[Piece, ...]:
        """Return what has ended here since this was last called, but for what a process did before it died."""
        return tuple(chain.from_iterable(process.helper.take_ended() for process in self._now()))

    @property
    def frames_done(self) -> int:
        """All frames done here so far; only grows."""
        with self._lock:
            return self._frames_of_ended + sum(process.state.frames_done for process in self._processes)

    def _now(self) -> "tuple[_LoneProcess, ...]":
        with self._lock:
            return tuple(self._processes)


class _LoneProcess:
    """One process. ``died`` says why it is gone, "" while it lives."""

    def __init__(self, spawn: Spawn) -> None:
        self.is_up: Future[None] = Future()
        self.was_up = False
        self.died = ""
        self.idle_since_s: float | None = None
        self.helper = HelperProcess(1, self._conclude, self._conclude, spawn, ready=self._ready)
        self.helper.start()

    @property
    def state(self) -> HelperState:
        """What it said last."""
        return self.helper.said

    @property
    def is_idle(self) -> bool:
        """Whether it waits for work."""
        return self.idle_since_s is not None and not self.died

    def has_rested(self, now_s: float) -> bool:
        """Return whether it was idle for ``IDLE_S``, as far as earlier calls saw."""
        if self.idle_since_s is None:
            return False
        self.idle_since_s = self.idle_since_s or now_s
        return now_s - self.idle_since_s >= IDLE_S

    def end(self) -> None:
        """Kill it."""
        self.died = self.died or "it was ended"
        self.helper.end()

    def _ready(self) -> None:
        self.was_up = True
        self._settle()

    def _conclude(self, why: str) -> None:
        self.died = self.died or why
        self._settle()

    def _settle(self) -> None:
        with suppress(InvalidStateError):  # no longer awaited
            self.is_up.set_result(None)
