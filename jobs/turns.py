"""Waiting for whatever lets a job go on: a run that ends, or room for another one."""

import asyncio
from collections.abc import Collection
from typing import TypeVar

from ..cluster.pool import Pool

__all__ = ["ended_runs"]

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
