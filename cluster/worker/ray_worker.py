"""The worker process in Ray: an async actor around ``actors/device/worker.py``."""

import asyncio
import os
import socket
import sys
import threading
import time
from collections import Counter
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ...actors.device.pieces import KeptPieces
from ...actors.device.work import UNCONSTRAINED, Constraints
from ...actors.device.worker import WorkerCore
from ...actors.media.kept_sources import KEPT
from ...actors.watchdog import process_watch
from ...errors import Cancelled, CodecfleetError
from ..grouping import counted
from ..logs.actions import LogAction
from ..logs.entry import NO_IDS, LogIds
from ..logs.writing import log
from ..process.child import ChildDied
from ..ray.public.nodes import given_gpus, this_actor, this_node
from ..ray.sigterm import sigterm_kills
from ..version import PYAV, VERSION
from ..worker_names import WORKER_PREFIX
from .blobs import unpack
from .heartbeat import Ending, Heartbeat, WorkerFacts, ending_of, recycle
from .helper_program import keep_to_dla
from .helpers.helper import CPU, DLA, GPU, SECOND, HelperProcess, Pace, Spawn, spawned
from .lone_runs import LoneRuns
from .newest_term import NewestTerm
from .outcome import Outcome, failed, located, unreadable

if TYPE_CHECKING:
    from ...actors.nvidia.gpu import Gpu
    from ..probes.gpus.visible_device import TakenDevice

FENCED_CODE = 75
"""The exit code of a worker that fenced itself: EX_TEMPFAIL."""
ANSWER_S = 10.0
"""How long a process that ends itself waits for word that its last answer has arrived."""


class RayWorker:
    """One worker process with ``slots`` slots.

    Args:
        slots: pieces of work at once.
        takes_gpu: use the GPU that Ray assigned to this process, and hide all others.
        part: the slice to take, where the GPU is cut into several.
        counts_slices: whether Ray counts slices as GPUs there (``gpu_identity.Units``).
        avoided: the machine's devices in quarantine: given one of them, the process only holds it.
        dla: the number of this process's DLA; its networks run only there.
        cores: how many cores are reserved for it.
        spawn_lone: starts a process in which work runs alone; None starts this Python.
        term: the supervisor's that starts it; those of older ones are refused their orders.
        fence_s: end the process when it was not renewed for this long; None never does. A worker cut off from its
            supervisor would keep its device, and perhaps work against its own replacement.
    """

    def __init__(
        self,
        slots: int,
        *,
        takes_gpu: bool = False,
        part: int = 0,
        counts_slices: bool = False,
        avoided: tuple[str, ...] = (),
        dla: int | None = None,
        cores: int = 0,
        term: int = 0,
        fence_s: float | None = None,
        spawn_lone: Spawn | None = None,
    ) -> None:
        sigterm_kills()
        self._slots = slots
        self._cores = cores
        self._newest = NewestTerm(term)
        self._identity = self._trouble = ""
        if takes_gpu:
            taken = _take_device(part, avoided, counts_slices=counts_slices)
            self._identity, self._trouble = taken.identity, taken.trouble
        self._began_s = time.monotonic()
        # Without a slice of that number, or with trouble, the supervisor gives the worker no work.
        self._gpu = gpu = _warming_gpu() if self._identity and not self._trouble else None
        if dla is not None:
            keep_to_dla(dla)
        self._core = WorkerCore(slots, gpu)
        self._second = HelperProcess(slots, _end_with_it, _say, partial(spawned, SECOND))
        role = f"{DLA}{dla}" if dla is not None else CPU if gpu is None else GPU
        self._lone = LoneRuns(
            "" if gpu is None else self._identity, spawn_lone or partial(spawned, role), self._core.was_cancelled
        )
        self._pace = Pace(self._began_s)
        self._here = 0
        self._runs: set[str] = set()
        self._ended: Counter[Ending] = Counter()
        self._kept = KeptPieces()
        self._is_ending = False
        self._ids = NO_IDS
        if fence_s is not None:
            self._ids = self._begin_log()
        process_watch().on_overdue(self._core.give_up)
        self._renewed_s = time.monotonic()
        if fence_s is not None:
            threading.Thread(target=self._fence, args=(fence_s,), name="codecfleet-fence", daemon=True).start()

    async def run(
        self, run: str, packed_work: bytes, constraints: Constraints = UNCONSTRAINED, *blobs: bytes
    ) -> Outcome[object]:
        """Run work and return its outcome; never raises for what the work does. ``constraints``, ``blobs`` are its own.

        Work that was not to blame for the end of its process gets no outcome: the caller sees the process die.
        """
        if self._is_ending:
            await self.watch()
        self._runs.add(run)
        try:
            if constraints.alone:
                outcome = await self._lone.run(run, packed_work, blobs, constraints)
            elif self._second_is_freer(run):
                outcome = await self._run_in_second(run, packed_work, blobs)
            else:
                outcome = await self._run_here(run, packed_work, blobs)
        finally:
            self._runs.discard(run)
            self._note_ended()
        if self._is_ending and isinstance(outcome.error, Cancelled):
            await self.watch()
        self._ended[ending_of(outcome.error)] += 1
        if outcome.error is not None and not isinstance(outcome.error, Cancelled):
            log(LogAction.WORK_FAILED, f"work {run}: {type(outcome.error).__name__}: {outcome.error}", self._ids)
        if outcome.spoils_process:
            self._renew_process()
        return located(outcome, f"worker process {os.getpid()} on node {socket.gethostname()}")

    async def _run_here(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[object]:
        try:
            work = unpack(packed_work, blobs)
        except Exception as error:  # noqa: BLE001 - any error of users' classes when unpickled
            return unreadable(error)
        self._here += 1
        try:
            return Outcome(await asyncio.wrap_future(self._core.submit(run, work)))
        except asyncio.CancelledError:
            if self._is_ending:
                await self.watch()
            raise
        except CodecfleetError as error:
            return failed(error)
        finally:
            self._here -= 1

    async def _run_in_second(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[object]:
        try:
            return await asyncio.wrap_future(self._second.submit(run, packed_work, blobs))
        except ChildDied:
            await self.watch()  # this process ends with it
            raise
        except CodecfleetError as error:  # its result did not arrive
            return failed(error)

    def _second_is_freer(self, run: str) -> bool:
        """Return whether the GPU's second process should take the next work."""
        is_freer = self._second.is_ready and self._second.busy < self._here
        # It may have been cancelled before the second process was there.
        return is_freer and not self._core.was_cancelled(run)

    def _look_for_help(self) -> None:
        """Start the GPU's second process where this one is saturated, and check on it."""
        now_s, running = time.monotonic(), len(self._core.running())
        self._second.look(now_s)
        wants = self._pace.wants_help(now_s, self._core.frames_done, running)
        if wants and self._gpu is not None and self._gpu.is_shared:
            self._second.start()

    async def cancel(self, run: str) -> None:
        """Cancel ``run``; see ``WorkerCore.cancel``."""
        # All: it may not have arrived yet, and each may run it.
        self._core.cancel(run)
        self._second.cancel(run)
        self._lone.cancel(run)

    async def answered(self) -> None:
        """End this process where it waits for that: the caller knows by what work it broke."""
        if self._is_ending:
            os._exit(FENCED_CODE)

    async def abandon(self, client: str, term: int = 0) -> None:
        """Cancel every run of a client that is gone, for the supervisor of ``term``; runs' names begin with clients'.

        Raises:
            OldTerm: there is a newer one; so do all methods that take a term.
        """
        self._newest.admit(term)
        self._core.cancel_all(f"{client}:")
        self._second.cancel_all(f"{client}:")
        self._lone.cancel_all(f"{client}:")

    async def abandon_others(self, clients: frozenset[str], term: int = 0) -> None:
        """Cancel every run of any client but ``clients``."""
        self._newest.admit(term)
        for client in {run.partition(":")[0] for run in self._runs} - clients:
            await self.abandon(client, term)

    async def progress(self, job: str) -> dict[str, int]:
        """Return the frames done by each running piece of work of ``job``, by label."""
        lone = (state.progress.get(job, {}).items() for state in self._lone.states)
        return {**dict(chain(*lone)), **self._second.said.progress.get(job, {}), **self._core.progress(job)}

    async def version(self) -> str:
        """Return its version of codecfleet."""
        return VERSION

    async def facts(self, term: int = 0) -> WorkerFacts:
        """Return this process's identity; the answer shows that our code is importable in it."""
        self._newest.admit(term)
        self._renewed_s = time.monotonic()
        return WorkerFacts(os.getpid(), self._slots, self._identity, self._cores, self._trouble, pyav=PYAV)

    async def heartbeat(self, term: int = 0) -> Heartbeat:
        """Return its state. The caller owns this worker, so the call renews it."""
        self._newest.admit(term)
        self._renewed_s = time.monotonic()
        KEPT.close_idle()
        self._lone.look(self._renewed_s)
        frames_done = self._core.frames_done + self._lone.frames_done
        lone = tuple(work for state in self._lone.states for work in state.running)
        # In this order: what ends meanwhile is told as running or as ended, never left out.
        running = (*self._core.pieces(), *self._second.pieces(), *self._lone.pieces())
        self._note_ended()
        pieces = self._kept.told(running, term, self._renewed_s)
        if self._gpu is None:
            return Heartbeat(frames_done, (*self._core.running(), *lone), ended=dict(self._ended), pieces=pieces)
        self._look_for_help()
        use, second = self._gpu.use(), self._second.said
        pairs = ((use, second.use), (second.use, use))
        refused_at = max((one.refused_at + other.encoding for one, other in pairs if one.refusals), default=0)
        recycle_due = recycle(self._renewed_s - self._began_s, use.sessions_made + second.use.sessions_made)
        return Heartbeat(
            frames_done + second.frames_done,
            (*self._core.running(), *second.running, *lone),
            use.decoding + second.use.decoding,
            recycle_due,
            use.encoding + second.use.encoding,
            use.refusals + second.use.refusals,
            refused_at,
            dict(self._ended),
            pieces,
        )

    def _note_ended(self) -> None:
        """Keep what has ended in all processes."""
        self._kept.note((*self._core.take_ended(), *self._second.take_ended(), *self._lone.take_ended()))

    async def watch(self) -> None:
        """Never return: the caller learns of the process's death at once, also while no work runs."""
        await asyncio.Event().wait()

    def _begin_log(self) -> LogIds:
        """Begin the log of a cluster's worker, and return its ids."""
        from ..logs.in_ray import begin_log_in_ray

        begin_log_in_ray("worker")
        ids = _own_ids(self._identity)
        has = f"{counted(self._slots, 'slot')}{' on ' + self._identity if self._identity else ''}"
        trouble = f"; its device is not used: {self._trouble}" if self._trouble else ""
        log(LogAction.WORKER_STARTED, f"this process is a worker with {has}{trouble}", ids)
        return ids

    def _renew_process(self) -> None:
        """End the process, because what broke in it stays broken; its station gets another.

        Not before the answer has arrived: who only sees the process die takes it for a death of whatever cause, and
        lets the same work break another worker.
        """
        if self._is_ending:
            return
        self._is_ending = True
        log(LogAction.WORKER_BROKEN, "what broke in this process stays broken: it ends", self._ids)
        self._core.close()
        asyncio.get_running_loop().call_later(ANSWER_S, os._exit, FENCED_CODE)

    def _fence(self, fence_s: float) -> None:
        while time.monotonic() - self._renewed_s < fence_s:
            time.sleep(min(1.0, fence_s / 4))
        log(
            LogAction.WORKER_FENCED,
            f"no supervisor has renewed this worker for {fence_s:g} s: it ends itself",
            self._ids,
        )
        # At once, without clean-up: its work may already run elsewhere.
        os._exit(FENCED_CODE)


def _own_ids(device: str) -> LogIds:
    from ..probes.report.gpu_identity import on_node

    node = this_node()
    return LogIds(node=node, device=on_node(node, device), worker=this_actor().removeprefix(WORKER_PREFIX))


def _take_device(part: int, avoided: tuple[str, ...], *, counts_slices: bool) -> "TakenDevice":
    """Narrow this process to Ray's GPU before NVIDIA's packages are imported."""
    from ..probes.gpus.visible_device import narrow, open_nvml

    return narrow(given_gpus(), os.environ, open_nvml(), part=part, counts_slices=counts_slices, avoided=avoided)


def _warming_gpu() -> "Gpu":
    """Return this process's GPU, which is being opened; without one, nothing of NVIDIA's is loaded."""
    from ...actors.nvidia.gpu import Gpu

    gpu = Gpu()
    gpu.warm_up()
    return gpu


def _say(why: str) -> None:
    print(f"codecfleet: the second process of this GPU's worker: {why}", file=sys.stderr, flush=True)  # noqa: T201 - Ray keeps workers' output


def _end_with_it(why: str) -> None:
    """End the worker when its second process ends, whose work is lost: they live and die as one."""
    _say(why)
    os._exit(FENCED_CODE)
