"""What lets a job go on: a run that ends, and what its board hears of it, or room for another one."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeVar

from ..actors.decoding import AccessPoint
from ..cluster.pool import Pool
from .board import Finished, Run
from .index import TrackIndex

if TYPE_CHECKING:
    from ..actors.dla.inference import InferredSegment
    from ..actors.segment import EncodedSegment

__all__ = ["WAITING_S", "ended_runs", "finished"]

WAITING_S = 5.0
"""A job that has had no worker for this long says why."""

ResultT = TypeVar("ResultT")


async def ended_runs(
    pool: Pool, job: str, slots: int, runs: Collection[asyncio.Task[ResultT]], patience_s: float | None = None
) -> list[asyncio.Task[ResultT]] | None:
    """Wait until runs have ended, which are returned in order, or the pool has more than ``slots`` slots for ``job``.

    None says that neither came within ``patience_s``.

    Raises:
        CodecfleetError: there will never be a slot.
    """
    more = asyncio.create_task(pool.more_slots(job, slots))
    try:
        done, _ = await asyncio.wait({*runs, more}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        if more in done:
            more.result()
        return [task for task in runs if task in done] if done else None
    finally:
        more.cancel()


def finished(
    run: Run, result: "EncodedSegment | InferredSegment", entry: AccessPoint | None, index: TrackIndex
) -> Finished:
    """Return what a board hears of a run that delivered ``result``, decoded from ``entry``; None is the start."""
    return Finished(
        run.segment,
        run.until,
        result.seam_before,
        result.seam_after,
        at_start=entry is None,
        sound=index.is_sound(entry, result.first_damaged_packet),
    )
