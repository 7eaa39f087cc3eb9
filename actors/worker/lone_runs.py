"""Helpers in which a worker runs work alone, so that a crash affects no other work; they are reused."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from ...errors import Cancelled, CodecfleetError, DeviceLost, ProcessKilled, WorkerLost
from ..device.work import Constraints
from ..process.child import ChildDied
from ..task_owner import TaskOwner
from .helper import Helper, Spawn
from .outcome import Outcome, failed

LONE_MAX: Final = 4
"""The most lone processes of one worker; on a GPU, the context of each process takes half a gigabyte."""
IDLE_S: Final = 30.0
"""How long an idle process is kept."""
_CANCELLED: Final = "the work was cancelled before it began"
_MORE_MEMORY: Final = "Use a smaller --scale, a faster --preset, or a machine with more memory."
_REPORT: Final = "Please report this, with the input and the options; --keep-evidence saves what the segment reads."


class LoneRuns:
    """The processes in which one worker runs work alone; used from the worker's event loop.

    ``device`` names the worker's GPU in errors; "" means no GPU. ``killed_for_memory`` is as for ``WorkerHost``.
    """

    def __init__(
        self,
        device: str,
        spawn: Spawn,
        was_cancelled: Callable[[str], bool],
        killed_for_memory: Callable[[], bool],
    ) -> None:
        self._device = device
        self._spawn = spawn
        self._was_cancelled = was_cancelled
        self._killed_for_memory = killed_for_memory
        self._room = asyncio.Semaphore(LONE_MAX)
        self._waiting: dict[str, asyncio.Task[bool]] = {}
        self._idle_since_s: dict[Helper, float | None] = {}  # when each helper was first seen idle; None: it runs work
        self._frames_of_gone = 0

    async def run(
        self, run: str, packed_work: bytes, blobs: tuple[bytes, ...], constraints: Constraints
    ) -> Outcome[Any]:
        """Run packed work alone, once there is room. An error of the work is in its outcome."""
        if not await self._admitted(run):
            return failed(Cancelled(_CANCELLED))
        try:
            with self._taken() as helper:
                return await self._run(helper, run, packed_work, blobs, constraints)
        finally:
            self._room.release()

    async def _admitted(self, run: str) -> bool:
        if self._was_cancelled(run):
            return False
        async with TaskOwner() as owner:
            waiting = self._waiting[run] = owner.start(self._room.acquire(), f"the room of {run}")
            try:
                await asyncio.wait({waiting})
            finally:
                del self._waiting[run]
        return not waiting.cancelled()

    async def _run(
        self, helper: Helper, run: str, packed_work: bytes, blobs: tuple[bytes, ...], constraints: Constraints
    ) -> Outcome[Any]:
        await helper.is_up.wait()
        if self._was_cancelled(run):
            return failed(Cancelled(_CANCELLED))
        try:
            outcome = await helper.run(run, packed_work, blobs)
        except ChildDied as died:
            helper.over(str(died))
            return Outcome(error=self._death(helper, constraints))
        except CodecfleetError as error:  # the work's result did not arrive
            outcome = failed(error)
        if outcome.spoils_process:
            helper.end("its device does not recover within this process")
        return replace(outcome, spoils_process=False)  # the worker's own process is unaffected

    def _death(self, helper: Helper, constraints: Constraints) -> CodecfleetError:
        if not helper.has_been_ready:
            return WorkerLost(f"no process could be started to run it alone: {helper.gone}", _REPORT)
        if self._killed_for_memory():
            return ProcessKilled("the process that ran it alone was OOM-killed while running", _MORE_MEMORY)
        if self._device and not constraints.software:
            return DeviceLost(f"the process that ran it alone on {self._device} died: {helper.gone}", _REPORT)
        return ProcessKilled(f"the process that ran it alone died: {helper.gone}", _REPORT)

    @contextmanager
    def _taken(self) -> Iterator[Helper]:
        idle = (each for each, since_s in self._idle_since_s.items() if since_s is not None and not each.gone)
        helper = next(idle, None) or Helper(self._spawn, 1)
        self._idle_since_s[helper] = None
        try:
            yield helper
        finally:
            self._idle_since_s[helper] = 0.0
            if helper.gone:
                self._drop(helper)

    def _drop(self, helper: Helper) -> None:
        del self._idle_since_s[helper]
        self._frames_of_gone += helper.state.frames_done

    def cancel(self, run: str) -> None:
        """Cancel a run that waits or runs here; ignore other runs."""
        if run in self._waiting:
            self._waiting[run].cancel()
        for helper in self.helpers:
            helper.cancel(run)

    def end_idle(self, now_s: float) -> None:
        """End the processes that have been idle for ``IDLE_S`` since a call of this method first found them idle."""
        for helper, since_s in list(self._idle_since_s.items()):
            if since_s is not None and now_s - (since_s or now_s) >= IDLE_S:
                self._drop(helper)
                helper.end("it was idle")
            elif since_s is not None:
                self._idle_since_s[helper] = since_s or now_s

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The processes that run work or are kept idle."""
        return tuple(self._idle_since_s)

    @property
    def frames_done(self) -> int:
        """How many frames have been done here; the number only grows."""
        return self._frames_of_gone + sum(helper.state.frames_done for helper in self.helpers)
