"""FaultyPool's troubles come exactly as asked."""

import asyncio
import itertools

import pytest

from codecfleet.errors import DeviceLost, WorkerLost
from codecfleet.testing import FaultyPool, LocalPool, works


async def test_kills_the_chosen_attempts() -> None:
    """The named attempts raise WorkerLost, and no other."""
    async with FaultyPool(LocalPool(), kills={("a", 1), ("a", 2)}) as pool:
        for _ in range(2):
            with pytest.raises(WorkerLost):
                await pool.submit(works.Count(job="j", label="a"))
        assert await pool.submit(works.Count(job="j", label="a")) == 1
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert pool.attempts == {("j", "a"): 3, ("j", "b"): 1}


async def test_raises_the_chosen_errors() -> None:
    """The named attempts raise what they are to, as if a worker had."""
    async with FaultyPool(LocalPool(), errors={("a", 2): DeviceLost("it is gone")}) as pool:
        assert await pool.submit(works.Count(job="j", label="a")) == 1
        with pytest.raises(DeviceLost) as caught:
            await pool.submit(works.Count(job="j", label="a"))
        assert caught.value.where


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_results_arrive_in_the_given_order(order: tuple[str, ...]) -> None:
    """Work submitted together comes back in the order asked for, also through fewer slots than pieces of work."""
    arrived: list[str] = []

    async def fetch(label: str) -> None:
        await pool.submit(works.Count(job="j", label=label))
        arrived.append(label)

    async with FaultyPool(LocalPool(2), finishing_order=order) as pool:
        await asyncio.gather(*(fetch(label) for label in "abc"))
    assert arrived == list(order)


async def test_a_window_never_locks_up() -> None:
    """An order that the submitter's window cannot meet is met as far as it goes, without waiting without end."""
    labels = [f"{i}" for i in range(12)]
    window = asyncio.Semaphore(3)

    async def fetch(label: str) -> str:
        async with window:
            await pool.submit(works.Count(job="j", label=label))
        return label

    async with asyncio.timeout(10), FaultyPool(LocalPool(2), finishing_order=labels[::-1]) as pool:
        assert await asyncio.gather(*(fetch(label) for label in labels)) == labels


async def test_a_cancelled_submission_delays_no_other() -> None:
    """Cancelling one piece of work lets the others go."""
    async with asyncio.timeout(10), FaultyPool(LocalPool(2), finishing_order=["a", "b"]) as pool:
        slow = pool.submit(works.Dwell(job="j", label="a", seconds=60))
        quick = pool.submit(works.Count(job="j", label="b"))
        await asyncio.sleep(0.05)
        slow.cancel()
        assert await quick == 1
