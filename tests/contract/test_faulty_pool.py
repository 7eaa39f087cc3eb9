"""The faults of FaultyPool occur exactly as requested."""

import asyncio
import itertools

import pytest

from codecfleet.errors import DeviceLost, WorkerLost
from codecfleet.testing import FaultyPool, LocalPool, works


async def test_kills_the_chosen_attempts() -> None:
    """Only the named attempts raise WorkerLost."""
    async with FaultyPool(LocalPool(), kills={("a", 1), ("a", 2)}) as pool:
        for _ in range(2):
            with pytest.raises(WorkerLost):
                await pool.submit(works.Count(job="j", label="a"))
        assert await pool.submit(works.Count(job="j", label="a")) == 1
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert pool.attempts == {("j", "a"): 3, ("j", "b"): 1}


async def test_raises_the_chosen_errors() -> None:
    """The named attempts raise the given errors, as if a worker had raised them."""
    async with FaultyPool(LocalPool(), errors={("a", 2): DeviceLost("it is gone")}) as pool:
        assert await pool.submit(works.Count(job="j", label="a")) == 1
        with pytest.raises(DeviceLost) as caught:
            await pool.submit(works.Count(job="j", label="a"))
        assert caught.value.where


@pytest.mark.parametrize("order", list(itertools.permutations("abc")), ids="".join)
async def test_results_arrive_in_the_given_order(order: tuple[str, ...]) -> None:
    """Results arrive in the requested order, even if there are fewer slots than work items."""
    arrived: list[str] = []

    async def fetch(label: str) -> None:
        await pool.submit(works.Count(job="j", label=label))
        arrived.append(label)

    async with FaultyPool(LocalPool(2), finishing_order=order) as pool:
        await asyncio.gather(*(fetch(label) for label in "abc"))
    assert arrived == list(order)


async def test_a_window_never_locks_up() -> None:
    """If the submitter's window does not allow an order, it is followed as far as possible, without an endless wait."""
    labels = [f"{i}" for i in range(12)]
    window = asyncio.Semaphore(3)

    async def fetch(label: str) -> str:
        async with window:
            await pool.submit(works.Count(job="j", label=label))
        return label

    async with asyncio.timeout(10), FaultyPool(LocalPool(2), finishing_order=labels[::-1]) as pool:
        assert await asyncio.gather(*(fetch(label) for label in labels)) == labels


async def test_a_cancelled_submission_delays_no_other() -> None:
    """If one piece of work is cancelled, the others continue."""
    async with asyncio.timeout(10), FaultyPool(LocalPool(2), finishing_order=["a", "b"]) as pool:
        slow = pool.submit(works.Dwell(job="j", label="a", seconds=60))
        quick = pool.submit(works.Count(job="j", label="b"))
        await asyncio.sleep(0.05)
        slow.cancel()
        assert await quick == 1
