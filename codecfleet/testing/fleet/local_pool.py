"""Pools without Ray: one that runs work in threads of this process, and one that makes another pool misbehave."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from ...actors.device.interface import WorkerDevice
from ...actors.device.work import Work
from ...actors.device.worker import WorkerCore
from ...cluster.fleet.pool import Pool
from ...cluster.placement.model import Demand, EncoderChoice, EncoderKind, PlacementPreview
from ...errors import Cancelled, CodecfleetError, DeadlineMissed, UsageError, WorkerLost

ResultT = TypeVar("ResultT")

HERE: Final = "here/cpu#0:1"
"""The name of the local pool's one worker."""


class LocalPool(Pool):
    """Runs work in ``slots`` threads of this process. Nothing is pickled, no worker dies, nothing has its own process.

    Args:
        slots: pieces of work at once.
        device: the GPU that work may use; None where there is none.
        kind: the kind of its encoder, which is then the one that finishes soonest; None where it has none.
    """

    def __init__(self, slots: int = 2, *, device: WorkerDevice | None = None, kind: EncoderKind | None = None) -> None:
        if slots < 1:
            raise UsageError(f"a pool needs at least one slot: {slots}")
        self._slots = slots
        self._device = device
        self._kind = kind
        self._core = WorkerCore(slots, device)
        self._lone: set[WorkerCore] = set()
        self._runs = itertools.count()
        self._free = asyncio.Semaphore(slots)
        self._submitted: set[asyncio.Task[Any]] = set()
        self._named: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._missed: dict[asyncio.Task[Any], str] = {}
        self._closed = False

    @property
    def slots(self) -> int:
        return self._slots

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Say whether threads of this process have a GPU; its encoder is taken unless the demand is for software."""
        return PlacementPreview(
            never="there is no GPU in this pool" if demand.needs_gpu and self._device is None else "",
            encoder_kind=None if demand.encoder is EncoderChoice.SOFTWARE else self._kind,
        )

    async def start(self) -> None:
        """Do nothing: the threads start with their first work."""
        self._refuse_if_closed()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` in a thread; see ``Pool.submit``. Raises WorkerLost only where no thread can be started."""
        self._refuse_if_closed()
        running = asyncio.create_task(self._in_turn(work))
        self._submitted.add(running)
        running.add_done_callback(self._submitted.discard)
        name = (work.job, work.label)
        self._named[name] = running
        try:
            return await running
        except asyncio.CancelledError:
            if running in self._missed:
                raise DeadlineMissed(self._missed.pop(running)) from None
            if self._closed:
                raise Cancelled("the pool was closed") from None
            raise
        finally:
            if self._named[name] is running:
                del self._named[name]

    async def progress(self, job: str) -> Mapping[str, int]:
        return {label: frames for core in self._cores for label, frames in core.progress(job).items()}

    async def stations(self, job: str) -> Mapping[str, str]:
        """All threads are one station."""
        return dict.fromkeys(self._core.progress(job), "here")

    async def write_off(self, job: str, label: str, reason: str) -> None:
        """Cancel the work; its slot stays taken until its thread ends, which nothing can kill."""
        running = self._named.get((job, label))
        if running is not None and not running.done():
            self._missed[running] = f"{label} {reason}"
            running.cancel()

    async def aclose(self) -> None:
        """Cancel everything; a thread ends when its work next reports progress."""
        self._closed = True
        submitted = list(self._submitted)
        for running in submitted:
            running.cancel()
        for core in self._cores:
            core.close()
        await asyncio.gather(*submitted, return_exceptions=True)

    async def _in_turn(self, work: Work[ResultT]) -> ResultT:
        if (other := self._named.get((work.job, work.apart_from))) is not None:
            await asyncio.wait({other})
        await self._free.acquire()
        run = str(next(self._runs))
        core = self._core
        if work.constraints.alone:
            core = WorkerCore(1, self._device)
            self._lone.add(core)
        ended = asyncio.wrap_future(core.submit(run, work))
        # The slot is free when the thread is, not when the submitter stops waiting.
        ended.add_done_callback(partial(self._end, core))
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            core.cancel(run)
            raise
        except CodecfleetError as error:
            error.where = HERE
            raise

    @property
    def _cores(self) -> tuple[WorkerCore, ...]:
        return (self._core, *self._lone)

    def _end(self, core: WorkerCore, ended: asyncio.Future[ResultT]) -> None:
        if not ended.cancelled():
            ended.exception()  # retrieved: it may not be awaited any more
        if core in self._lone:
            self._lone.discard(core)
            core.close()
        self._free.release()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise UsageError("the pool is closed")


class FaultyPool(Pool):
    """Passes work on to ``inner`` and makes trouble of three kinds, the same in every run.

    Args:
        inner: the pool that does the work; this one starts and closes it.
        kills: (label, attempt) pairs, attempts counted from 1, that raise WorkerLost instead of running.
        hangs: the same for those that do nothing, on a station of their own that does not answer, until they are
            written off or cancelled.
        errors: {(label, attempt): what it raises instead of running}; ``where`` is as if the worker HERE had raised it.
        finishing_order: labels in the order in which results are to arrive. Whenever all work in flight is done, the
            one whose label comes first here is released; labels not named come last, in order of submission.
    """

    def __init__(
        self,
        inner: Pool,
        *,
        kills: Collection[tuple[str, int]] = (),
        hangs: Collection[tuple[str, int]] = (),
        errors: Mapping[tuple[str, int], CodecfleetError] | None = None,
        finishing_order: Sequence[str] | None = None,
    ) -> None:
        self._inner = inner
        self._hangs = frozenset(hangs)
        self._hung: dict[tuple[str, str], asyncio.Future[str]] = {}
        self._errors = dict(errors or {})
        for label, attempt in kills:
            message = f"worker of {label} was killed at attempt {attempt}, as asked"
            self._errors[label, attempt] = WorkerLost(message)
        self._rank = None if finishing_order is None else {label: i for i, label in enumerate(finishing_order)}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._working = 0
        self._held: dict[int, tuple[int, asyncio.Event]] = {}
        self._tickets = itertools.count()

    @property
    def slots(self) -> int:
        return self._inner.slots

    @property
    def attempts(self) -> Mapping[tuple[str, str], int]:
        """How often each (job, label) was submitted."""
        return self._attempts

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self._inner.preview(demand)

    async def start(self) -> None:
        await self._inner.start()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on the inner pool, unless this attempt is to be killed; hold its end back until its turn."""
        name = (work.job, work.label)
        self._attempts[name] += 1
        error = self._errors.get((work.label, self._attempts[name]))
        if error is not None:
            await asyncio.sleep(0)
            error.where = HERE
            raise error
        if (work.label, self._attempts[name]) in self._hangs:
            await self._hang(name)
        ticket = next(self._tickets)
        self._working += 1
        cancelled = False
        try:
            return await self._inner.submit(work)
        except asyncio.CancelledError:
            cancelled = True
            raise
        finally:
            self._working -= 1
            if cancelled:
                self._let_go()
            else:
                await self._take_turn(ticket, work.label)

    async def progress(self, job: str) -> Mapping[str, int]:
        return await self._inner.progress(job)

    async def stations(self, job: str) -> Mapping[str, str]:
        hung = {label: f"hung {label}" for owner, label in self._hung if owner == job}
        return {**await self._inner.stations(job), **hung}

    async def write_off(self, job: str, label: str, reason: str) -> None:
        if (job, label) in self._hung:
            self._hung[job, label].set_result(f"{label} {reason}")
        else:
            await self._inner.write_off(job, label, reason)

    async def _hang(self, name: tuple[str, str]) -> NoReturn:
        written_off = self._hung[name] = asyncio.get_running_loop().create_future()
        try:
            raise DeadlineMissed(await written_off)
        finally:
            del self._hung[name]

    async def aclose(self) -> None:
        self._rank = None
        for _, event in self._held.values():
            event.set()
        await self._inner.aclose()

    async def _take_turn(self, ticket: int, label: str) -> None:
        if self._rank is None:
            return
        gate = asyncio.Event()
        self._held[ticket] = (self._rank.get(label, len(self._rank)), gate)
        try:
            self._let_go()
            await gate.wait()
            # The caller that awaits this result may submit more before the next one is released.
            await asyncio.sleep(0)
        finally:
            del self._held[ticket]
            asyncio.get_running_loop().call_soon(self._let_go)

    def _let_go(self) -> None:
        if self._working == 0 and self._held:
            first = min(self._held, key=lambda ticket: (self._held[ticket][0], ticket))
            self._held[first][1].set()
