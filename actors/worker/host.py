"""A worker: runs work in threads of its process, or in helper processes.

It knows the cluster only through its arguments: how to log, how to start a helper, and whose orders to obey.
"""

import asyncio
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import Any, Final, NoReturn

from ...errors import Cancelled, CodecfleetError
from ..device.interface import SessionCounts, WorkerDevice
from ..device.pieces import Ending, KeptPieces, ending_of
from ..device.work import Constraints
from ..device.worker import WorkerCore
from ..media.kept_sources import KEPT
from ..process.child import ChildDied
from ..watchdog import process_watch
from .heartbeat import Heartbeat, WorkerFacts, recycle
from .helper import Helper, HelperState, Pace, Spawn
from .helper_host import run_packed
from .lone_runs import LoneRuns
from .orders import GoneClients, NewestTerm, OldTerm
from .outcome import Outcome, failed, located

FENCED_CODE: Final = 75
"""The exit code of a worker that ends itself: EX_TEMPFAIL."""
ANSWER_S = 10.0
"""How long a broken process stays for a client that still has to confirm the last answer, by calling ``end``."""


class HostEvent(Enum):
    """Events that a worker logs."""

    FAILED = "failed"  #: work ended with an error
    BROKEN = "broken"  #: the process ends because its device does not recover in this process
    FENCED = "fenced"  #: the process ends because no supervisor renewed it


class WorkerHost:
    """One worker process. Used from one event loop.

    Args:
        facts: the process's identity.
        spawn_lone: starts a process in which work runs alone.
        killed_for_memory: returns whether the OOM killer has just killed such a process.
        gpu: the process's GPU.
        spawn_second: starts a second process on that GPU; None if there must never be a second process.
        term: the term of the supervisor that starts the worker; supervisors with older terms are refused.
        log: writes a line to the cluster's log.
    """

    def __init__(
        self,
        facts: WorkerFacts,
        *,
        spawn_lone: Spawn,
        killed_for_memory: Callable[[], bool],
        gpu: WorkerDevice | None = None,
        spawn_second: Spawn | None = None,
        term: int = 0,
        log: Callable[[HostEvent, str], object] = lambda *_: None,
    ) -> None:
        self._facts = facts
        self._gpu = gpu
        self._log = log
        self._spawn_second = spawn_second
        self._newest = NewestTerm(term)
        self._core = WorkerCore(facts.slots, gpu)
        self._second: Helper | None = None
        device = "" if gpu is None else facts.device
        self._lone = LoneRuns(device, spawn_lone, self._core.was_cancelled, killed_for_memory)
        self._began_s = self._renewed_s = time.monotonic()
        self._pace = Pace(self._began_s)
        self._runs: set[str] = set()
        self._here = 0
        self._ended: Counter[Ending] = Counter()
        self._kept = KeptPieces()
        self._is_ending = False
        process_watch().on_overdue(self._core.give_up)

    async def run(self, run: str, packed_work: bytes, constraints: Constraints, *blobs: bytes) -> Outcome[Any]:
        """Run work with its constraints and blobs; an error of the work is in its outcome.

        If other work breaks the process, this never returns: the caller sees the process die.
        """
        if self._is_ending:
            await never()
        self._runs.add(run)
        try:
            if constraints.alone:
                outcome = await self._lone.run(run, packed_work, blobs, constraints)
            elif (second := self._freer_second(run)) is not None:
                outcome = await _run_in_second(second, run, packed_work, blobs)
            else:
                outcome = await self._run_here(run, packed_work, blobs)
        finally:
            self._runs.discard(run)
            self._note_ended()
        if self._is_ending and isinstance(outcome.error, Cancelled):
            await never()
        self._ended[ending_of(outcome.error)] += 1
        if outcome.error is not None and not isinstance(outcome.error, Cancelled):
            self._log(HostEvent.FAILED, f"work {run}: {type(outcome.error).__name__}: {outcome.error}")
        if outcome.spoils_process:
            self._end_process()
        return located(outcome, f"worker process {os.getpid()} on node {os.uname().nodename}")

    async def _run_here(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
        self._here += 1
        try:
            return await run_packed(self._core, run, packed_work, blobs)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._is_ending and not (caller and caller.cancelling()):
                await never()  # ``_end_process`` cancelled it
            raise
        finally:
            self._here -= 1

    def _freer_second(self, run: str) -> Helper | None:
        second = self._second
        if second is None or not second.is_ready or second.busy >= self._here:
            return None
        # The run may have been cancelled before the second process started.
        return None if self._core.was_cancelled(run) else second

    def cancel(self, which: str | GoneClients) -> None:
        """Cancel one run, even if it has not arrived yet, or all runs of clients that are gone.

        An order is ignored if its supervisor is not the newest.
        """
        runs = [which] if isinstance(which, str) else self._runs_of(which)
        for run in runs:
            self._core.cancel(run)
            self._lone.cancel(run)
            if self._second is not None:
                self._second.cancel(run)

    def _runs_of(self, gone: GoneClients) -> list[str]:
        try:
            self._newest.admit(gone.term)
        except OldTerm:
            return []
        return [run for run in self._runs if gone.had(run)]

    async def heartbeat(self, term: int | None = None) -> Heartbeat:
        """Return the worker's state, and renew the worker if a supervisor's ``term`` is given.

        Raises OldTerm: there is a newer supervisor.
        """
        if term is not None:
            self._newest.admit(term)
            self._renewed_s = time.monotonic()
            self._look()
        helpers = self._helpers
        second = HelperState() if self._second is None else self._second.state
        # The order matters: work that ends meanwhile is then reported as running or as ended, and never left out.
        running = (*self._core.pieces(), *chain.from_iterable(each.pieces() for each in helpers))
        self._note_ended()
        used, beside = SessionCounts() if self._gpu is None else self._gpu.use(), second.use
        refused = [one.refused_at + other.encoding for one, other in ((used, beside), (beside, used)) if one.refusals]
        age_s = 0.0 if self._gpu is None else self._renewed_s - self._began_s
        return Heartbeat(
            self._core.frames_done + self._lone.frames_done + second.frames_done,
            tuple((piece.job, piece.label) for piece in running),
            used.decoding + beside.decoding,
            recycle(age_s, used.sessions_made + beside.sessions_made),
            used.encoding + beside.encoding,
            used.refusals + beside.refusals,
            max(refused, default=0),
            dict(self._ended),
            () if term is None else self._kept.reported(running, term, self._renewed_s),
            self._core.progress() | {run: done for each in helpers for run, done in each.state.progress.items()},
            self._facts,
            time.time(),
        )

    def _look(self) -> None:
        """Check on the helpers, and start a second process on the GPU if this process is saturated."""
        now_s = self._renewed_s
        KEPT.close_idle()
        for helper in self._helpers:
            helper.look(now_s)
        self._lone.end_idle(now_s)
        if self._second is None and self._gpu is not None and self._spawn_second is not None:
            wants = self._pace.wants_help(now_s, self._core.frames_done, len(self._core.pieces()))
            if wants and self._gpu.is_shared:
                self.start_second(self._spawn_second)

    def start_second(self, spawn: Spawn) -> None:
        """Start a second process on the GPU."""
        second = self._second = Helper(spawn, self._facts.slots, lambda why: self._end_with(second, why))

    def _end_with(self, second: Helper, why: str) -> None:
        """End this process too if the second was ever ready: the cluster sees both as one worker, so both are lost."""
        sys.stderr.write(f"codecfleet: the second process of this GPU's worker: {why}\n")  # Ray keeps workers' output
        sys.stderr.flush()
        if second.has_been_ready:
            self.end()

    def _note_ended(self) -> None:
        self._kept.note((*self._core.take_ended(), *chain.from_iterable(each.take_ended() for each in self._helpers)))

    @property
    def _helpers(self) -> tuple[Helper, ...]:
        second = () if self._second is None else (self._second,)
        return (*second, *self._lone.helpers)

    def close(self) -> None:
        """Cancel the work in this process, and accept no more."""
        self._core.close()

    def end(self) -> NoReturn:
        """End this process at once; its work is lost."""
        os._exit(FENCED_CODE)

    def _end_process(self) -> None:
        """End the process once its last answer has arrived; the worker's station then gets a new process.

        A client that only sees the process die does not know which work broke it, and would submit that work again.
        """
        if self._is_ending:
            return
        self._is_ending = True
        self._log(HostEvent.BROKEN, "the device cannot recover within this process, so the process ends")
        self.close()
        asyncio.get_running_loop().call_later(ANSWER_S, self.end)

    def fence(self, fence_s: float) -> None:
        """End this process if it is not renewed for this long, even if its event loop hangs.

        Otherwise a worker cut off from its supervisor would keep its device, and perhaps work alongside its
        replacement.
        """
        threading.Thread(target=self._fence, args=(fence_s,), name="codecfleet-fence", daemon=True).start()

    def _fence(self, fence_s: float) -> None:
        while time.monotonic() - self._renewed_s < fence_s:
            time.sleep(min(1.0, fence_s / 4))
        self._log(HostEvent.FENCED, f"no supervisor has renewed this worker for {fence_s:g} s: it ends itself")
        self.end()  # ends without clean-up, because another worker may already run its work


async def never() -> None:
    """Never return: the caller waits until this process ends, and notices the end at once."""
    await asyncio.Event().wait()


async def _run_in_second(second: Helper, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
    try:
        return await second.run(run, packed_work, blobs)
    except ChildDied:
        await never()  # this process ends with the second process
        raise
    except CodecfleetError as error:  # the work's result did not arrive
        return failed(error)
