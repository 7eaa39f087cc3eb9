"""Watches a job's running work: ends hung work, and finds late work."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from ...actors.device.work import Work
from ...cluster.fleet.pool import Pool
from ...cluster.fleet.run import ResultOrigin, WorkRun
from ...cluster.worker_names import NO_WORKER
from ...errors import CodecfleetError, DeadlineMissed, WorkerLost
from ..request.running import WaitOptions
from .deadlines import LOOK_S, Paces, Seen, WorkPace
from .retries import Attempt, next_step

ResultT = TypeVar("ResultT")
_NOWHERE: Final = ResultOrigin(NO_WORKER, "")


class WorkWatch:
    """Submits a job's work to ``pool``; the task ``run`` samples the running work.

    Args:
        pool: where the work runs.
        patience: after how long work counts as hung.
        start_fps: the speed expected of one session, used until the first result; 0 if unknown.
        on_hang: called with a message when work hangs.
        on_loss: called with the label of work that was lost, and the error.
        bind: called for each submission; returns the work to submit.
        clock: returns seconds.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        pool: Pool,
        patience: WaitOptions,
        *,
        start_fps: float = 0.0,
        on_hang: Callable[[str], Awaitable[None]] | None = None,
        on_loss: Callable[[str, WorkerLost], Awaitable[None]] | None = None,
        bind: Callable[[Work[Any]], Awaitable[Work[Any]]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.paces = Paces(patience, start_fps)
        self.on_look: Callable[[], None] = lambda: None  #: called after every sample
        self._numbers = itertools.count()
        self._pool = pool
        self._runs: dict[int, tuple[str, WorkRun[Any]]] = {}
        self._origins: dict[str, ResultOrigin] = {}
        self._on_hang = on_hang
        self._on_loss = on_loss
        self._bind = bind
        self._clock = clock
        self._sleep = sleep

    async def submit(self, work: Work[ResultT], frames: int = 0) -> ResultT:
        """Run ``work`` of ``frames`` frames (0 if unknown) on the pool, and watch it.

        Raises DeadlineMissed: the work hung, and its worker was replaced; CodecfleetError: see ``Pool.submit``.
        """
        if self._bind is not None:
            work = await self._bind(work)
        number = next(self._numbers)
        self.paces = self.paces.begun(number, work.label, frames)
        delivered = withdrawn = False
        try:
            result = await self._run(number, work)
            delivered = True
        except asyncio.CancelledError:
            withdrawn = True
            raise
        except WorkerLost as error:
            if self._on_loss is not None:
                await self._on_loss(work.label, error)
            raise
        except DeadlineMissed as error:
            if self._on_hang is not None:
                await self._on_hang(f"{error.message}: the worker is replaced, and the work runs elsewhere")
            raise
        finally:
            self.paces = self.paces.ended(number, delivered=delivered, withdrawn=withdrawn)
        return result

    async def _run(self, number: int, work: Work[ResultT]) -> ResultT:
        avoid = work.constraints.avoid | self.paces.lagging
        run = self._pool.submit(replace(work, constraints=replace(work.constraints, avoid=avoid)))
        self._runs[number] = work.label, run
        try:
            return await run
        finally:
            del self._runs[number]
            if run.origin is not None:
                self._origins[work.label] = run.origin

    def progress(self) -> Mapping[str, int]:
        """Return the frames done by running work, for each label."""
        return {label: run.progress.frames for label, run in self._runs.values() if run.progress.worker}

    def origin(self, label: str) -> ResultOrigin:
        """Return the worker that delivered the last result with that label."""
        return self._origins.get(label, _NOWHERE)

    def frames(self, label: str) -> int:
        """Return the frames done by running work at the last sample."""
        return max((pace.frames for pace in self.paces.running.values() if pace.label == label), default=0)

    async def run(self) -> None:
        """Sample all running work until cancelled, and end the work that hangs."""
        before_s = self._clock()
        while True:
            await self._sleep(LOOK_S)
            seen, now_s = self._see(), self._clock()
            self.paces = self.paces.looked(seen, now_s - before_s)
            before_s = now_s
            for pace in self.paces.hung():
                self._give_up(pace)
            self.on_look()

    def _give_up(self, pace: WorkPace) -> None:
        for label, run in list(self._runs.values()):
            if label == pace.label:
                run.give_up(f"made no progress for {pace.silent_s:.0f} s")

    def _see(self) -> Mapping[str, Seen]:
        runs = [(label, run.progress) for label, run in self._runs.values()]
        return {label: Seen(each.worker.station, each.frames) for label, each in runs if each.worker}


async def with_retries(
    submit: Callable[[Work[ResultT]], Awaitable[ResultT]], work: Work[ResultT], *, may_fall_back: bool = True
) -> ResultT:
    """Submit work until it succeeds; raise the last error once the work is given up.

    With ``may_fall_back``, software may decode when a device fails.
    """
    history: tuple[Attempt, ...] = ()
    while True:
        try:
            return await submit(work)
        except CodecfleetError as error:
            history += (Attempt.of(len(history) + 1, work.constraints, error),)
            step = next_step(history, software=may_fall_back)
            if step is None:
                raise
            work = replace(work, constraints=step)
