"""Makes a selection's batches on a pool, in order: several pieces at once, and a few before the consumer needs them."""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...actors.background import SharedCall
from ...actors.task_owner import TaskOwner
from ...actors.tensors.frame_batch import FrameBatch
from ...actors.tensors.tensor_memory import HostBfloat16
from ...cluster.fleet.pool import Pool, more_slots
from ...errors import CodecfleetError, Unsupported
from ..board.loop import WAITING_S, WorkerWait
from ..board.threads import in_thread
from ..board.watch import WorkWatch, with_retries
from ..held import Held
from ..request.running import WaitOptions
from .plan import BatchPiece, BatchPlan
from .work import MadeBatches

MADE_BYTES: Final = 512 << 20  #: The largest total size of the pieces that are being made or are ready for the consumer
#: Pieces per slot: enough that no slot idles while the consumer waits for the next piece in order
AHEAD_PER_SLOT: Final = 2
AHEAD_LEAST: Final = 16  #: This many pieces may be ahead even before the pool has granted slots


class _BatchRun:
    """One iteration; ``made`` receives the batches of each piece, in order, and then None or the final error."""

    def __init__(self, pool: Pool, plan: BatchPlan) -> None:
        self.made: asyncio.Queue[tuple[FrameBatch, ...] | Exception | None] = asyncio.Queue(1)
        self._pool = pool
        self._plan = plan
        self._watch = WorkWatch(pool, WaitOptions())
        self._wait = WorkerWait(pool, plan.job, WaitOptions())
        self._unfinished: dict[int, int] = {}  # the pictures of each unfinished piece

    async def run(self) -> None:
        try:
            await self._make_all()
        except Exception as error:  # noqa: BLE001 - raised again by the consumer
            await self.made.put(error)
        else:
            await self.made.put(None)
        finally:
            self._pool.set_demand(self._plan.job, None)

    async def _make_all(self) -> None:
        ahead = deque[tuple[BatchPiece, asyncio.Task[MadeBatches]]]()
        pieces = self._plan.pieces()
        following = await in_thread(next, pieces, None)  # making the first piece needs a pass over the whole index
        async with TaskOwner() as owner:
            owner.start(self._watch.run(), "watch")
            owner.start(more_slots(self._pool, self._plan.job, sys.maxsize), "the pool's refusal")
            while following is not None or ahead:
                while following is not None and self._has_room(following, [piece for piece, _ in ahead]):
                    ahead.append((following, owner.start(self._make(following), f"piece {following.begin}")))
                    following = next(pieces, None)
                made = await self._first(ahead[0][1])
                await self.made.put(made.batches)
                if made.error is not None:
                    raise made.error
                ahead.popleft()

    def _has_room(self, following: BatchPiece, ahead: list[BatchPiece]) -> bool:
        most = max(AHEAD_LEAST, AHEAD_PER_SLOT * self._pool.state.of(self._plan.job).slots)
        frames = sum(piece.end - piece.begin for piece in (*ahead, following))
        return not ahead or (len(ahead) < most and frames * self._plan.frame_bytes <= MADE_BYTES)

    async def _first(self, first: "asyncio.Task[MadeBatches]") -> MadeBatches:
        """Wait for the first piece. Raises FleetUnavailable: there was no worker for too long."""
        while not first.done():
            await asyncio.wait([first], timeout=WAITING_S)
            if first.done() or self._pool.state.of(self._plan.job).slots:
                self._wait.is_over()
            else:
                await self._wait.goes_on(WAITING_S)
        return first.result()

    async def _make(self, piece: BatchPiece) -> MadeBatches:
        """Return a piece's batches or its error, which is raised once all batches before the error are taken."""
        work = self._plan.work(piece)
        submit = partial(self._watch.submit, frames=piece.pictures)
        may_fall_back = self._plan.request.decoder != "nvdec"
        self._unfinished[piece.begin] = piece.pictures
        try:
            self._tell()
            made = await with_retries(submit, work, may_fall_back=may_fall_back)
            if made is None:
                work = replace(work, reading=self._plan.source.reading)
                made = await with_retries(submit, work, may_fall_back=may_fall_back)
            return await in_thread(_writable, made or MadeBatches(()))
        except CodecfleetError as error:
            return MadeBatches((), error)
        finally:
            del self._unfinished[piece.begin]
            self._tell()

    def _tell(self) -> None:
        """Report the unfinished pieces' demand: none while the consumer is slow, so other jobs get the workers."""
        pictures = tuple(self._unfinished.values())
        self._pool.set_demand(self._plan.job, self._plan.demand(pictures) if pictures else None)


async def batches_of(pool: Pool, plan: Callable[[], BatchPlan]) -> AsyncGenerator[FrameBatch]:
    """Yield a selection's batches; ``plan`` is called in a thread. Raises CodecfleetError."""
    start = SharedCall(pool.start(), "the workers' start")  # workers start while the index is read
    planned = await in_thread(plan)
    await start.wait()
    await _check_nvdec(pool, planned)
    run = _BatchRun(pool, planned)
    held = Held(run.run(), "codecfleet batches")
    try:
        while (made := await run.made.get()) is not None:
            if isinstance(made, Exception):
                await in_thread(planned.source.stamp.explain, made)  # raises another error if the source has changed
                raise made
            for batch in made:
                yield batch
    finally:
        await held.cancel()


async def _check_nvdec(pool: Pool, plan: BatchPlan) -> None:
    """Raise Unsupported if NVDEC has to decode but no worker will ever have NVDEC."""
    demand = plan.demand((len(plan.positions),))
    if demand.needs_gpu and (reason := (await pool.preview(demand)).never):
        raise Unsupported(f'decoder="nvdec" is not possible: {reason}', 'Use decoder="auto".')


def _writable(made: MadeBatches) -> MadeBatches:
    """Return the batches in writable memory; received arrays may be read-only views of the message."""
    return replace(made, batches=tuple(replace(each, data=_own(each.data)) for each in made.batches))


def _own(data: Any) -> object:  # noqa: ANN401 - an array of any library, or ``HostBfloat16``
    if isinstance(data, HostBfloat16):
        return data if data.bits.flags.writeable else HostBfloat16(data.bits.copy())
    return data if data.flags.writeable else data.copy()
