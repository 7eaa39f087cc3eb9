"""The contract of ``Pool``, held against every implementation."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codecfleet.actors.device.work import Constraints
from codecfleet.cluster.fleet.pool import Pool, more_slots
from codecfleet.cluster.fleet.run import RunProgress, WorkRun
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.preview import PlacementPreview
from codecfleet.cluster.worker_names import WorkerId
from codecfleet.errors import (
    Cancelled,
    CodecfleetError,
    DeadlineMissed,
    DeviceLost,
    EncoderFailed,
    InputDamaged,
    UsageError,
    WorkerOutOfMemory,
    WorkError,
    WouldLose,
)
from codecfleet.testing import works

MakePool = Callable[[int], Awaitable[Pool]]

ALONE = Constraints(alone=True)
ENDLESS_S = 3600
"""Longer than any test may take: what is not stopped fails by the time limit."""
"""What takes far less than a second may take this long where the machine does much else besides."""


async def until_it_runs(*runs: WorkRun[Any]) -> None:
    """Wait until work reports frames."""
    async with asyncio.timeout(20):
        # RunProgress is polled: there is no event to wait on.
        while not all(run.progress.frames for run in runs):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_returns_the_result(make_pool: MakePool) -> None:
    """What the work returns is what the submitter gets."""
    pool = await make_pool(2)
    assert await pool.submit(works.Count(job="j", label="a", frames=7)) == 7


async def test_says_how_many_slots_it_has(make_pool: MakePool) -> None:
    """A pool has as many slots as were asked for, also when the machine has fewer cores."""
    assert (await make_pool(5)).state.slots == 5


async def test_every_slot_has_a_core(make_pool: MakePool) -> None:
    """Work of a job may keep as many cores busy as it has slots, or more."""
    pool = await make_pool(3)
    pool.set_demand("j", plain_demand("j", 3))
    async with asyncio.timeout(20):
        await more_slots(pool, "j", 2)
    assert pool.state.of("j").cores >= 3


async def test_nothing_speaks_against_what_it_can_do(make_pool: MakePool) -> None:
    """A pool of processors has room for software's work, and says nothing of GPUs to those that want none."""
    pool = await make_pool(2)
    assert await pool.preview(plain_demand("j", 4)) == PlacementPreview()
    assert (await pool.preview(replace(plain_demand("j", 4), needs_gpu=True))).never


async def test_starting_twice_is_starting_once(make_pool: MakePool) -> None:
    """A second start does nothing more."""
    pool = await make_pool(1)
    await pool.start()
    assert await pool.submit(works.Count(job="j", label="a")) == 1


async def test_runs_in_order_of_submission(make_pool: MakePool) -> None:
    """With one slot, work begins in the order in which it was submitted, each after the one before has ended."""
    pool = await make_pool(1)
    submitted = (works.Dwell(job="j", label=f"{i}", seconds=0.02) for i in range(6))
    spans = await asyncio.gather(*(pool.submit(work) for work in submitted))
    assert all(former[1] <= later[0] for former, later in itertools.pairwise(spans))


@pytest.mark.parametrize("slots", [2, 3])
async def test_never_exceeds_its_slots(make_pool: MakePool, slots: int) -> None:
    """No more pieces of work run at any time than there are slots, and as many do."""
    pool = await make_pool(slots)
    submitted = (works.Dwell(job="j", label=f"{i}", seconds=0.15) for i in range(3 * slots))
    spans = await asyncio.gather(*(pool.submit(work) for work in submitted))
    at_once = [sum(began <= start < ended for began, ended in spans) for start, _ in spans]
    assert max(at_once) == slots


@pytest.mark.parametrize("length", [0, 1 << 20, 30 << 20])
async def test_carries_arrays(make_pool: MakePool, length: int) -> None:
    """Arrays of any size arrive byte for byte."""
    pool = await make_pool(1)
    work = works.MakeArray(job="j", label="a", length=length, seed=length)
    assert np.array_equal(await pool.submit(work), work.expected())


@pytest.mark.parametrize(
    "error",
    [InputDamaged("two packets are damaged", "drop --strict"), EncoderFailed("no frame came out"), WouldLose("a", "b")],
    ids=lambda error: type(error).__name__,
)
async def test_errors_keep_their_type(make_pool: MakePool, error: CodecfleetError) -> None:
    """A codecfleet error arrives as what it was raised as: type, message and next step."""
    pool = await make_pool(1)
    with pytest.raises(type(error)) as caught:
        await pool.submit(works.RaiseError(job="j", label="a", error=error))
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
async def test_foreign_exceptions_become_work_errors(make_pool: MakePool, kind: type[BaseException]) -> None:
    """An error that is not codecfleet's arrives as a WorkError that names it; its slot is free again."""
    pool = await make_pool(1)
    with pytest.raises(WorkError, match=f"a failed with {kind.__name__}: out of tune"):
        await pool.submit(works.Raise(job="j", label="a", error=kind))
    assert await pool.submit(works.Count(job="j", label="b")) == 1


async def test_a_lack_of_memory_is_named(make_pool: MakePool) -> None:
    """Work that finds no memory may be tried again, and says what it lacked; its slot is free again."""
    pool = await make_pool(1)
    with pytest.raises(WorkerOutOfMemory, match="a found no memory left"):
        await pool.submit(works.Raise(job="j", label="a", error=MemoryError))
    assert await pool.submit(works.Count(job="j", label="b")) == 1


async def test_cancelled_while_queued_never_runs(make_pool: MakePool, tmp_path: Path) -> None:
    """Work that is cancelled before its turn leaves no trace, and those behind it move up."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=1))
    await until_it_runs(running)
    trace = tmp_path / "trace"
    queued = pool.submit(works.Touch(job="j", label="b", path=str(trace)))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    await running
    assert await pool.submit(works.Count(job="j", label="c")) == 1
    assert not trace.exists()


async def test_cancelled_while_running_frees_its_slot(make_pool: MakePool) -> None:
    """Cancelling stops the work; its slot serves the next."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until_it_runs(running)
    running.cancel()
    assert await pool.submit(works.Count(job="j", label="b")) == 1
    assert running.result.cancelled()


async def test_cancelled_as_soon_as_submitted(make_pool: MakePool) -> None:
    """A cancellation that chases its submission wins, whatever overtakes what on the way."""
    pool = await make_pool(1)
    for i in range(20):
        chased = pool.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S))
        for _ in range(i % 5):
            await asyncio.sleep(0)
        chased.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chased
    assert await pool.submit(works.Count(job="j", label="last")) == 1


async def test_a_run_says_where_it_is(make_pool: MakePool) -> None:
    """What runs has a worker and its frames; what waits has neither."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until_it_runs(running)
    waiting = pool.submit(works.Count(job="j", label="b"))
    await asyncio.sleep(0)
    assert running.progress.worker
    assert waiting.progress == RunProgress()
    running.cancel()
    assert await waiting == 1


async def test_a_result_has_an_origin(make_pool: MakePool) -> None:
    """It is known where it was made, also to complain of it."""
    pool = await make_pool(1)
    run = pool.submit(works.Count(job="j", label="a"))
    await run
    assert run.origin is not None
    assert run.origin.worker
    assert run.origin.file == "j"
    run.origin.found_wrong("it is short")


async def test_a_run_that_is_given_up_ends_at_once(make_pool: MakePool) -> None:
    """Its submitter learns why, and the pool goes on; what does not run cannot be given up."""
    pool = await make_pool(1)
    hung = pool.submit(works.Dwell(job="j", label="a", seconds=2))
    waiting = pool.submit(works.Count(job="j", label="b"))
    await until_it_runs(hung)
    waiting.give_up("was late")
    hung.give_up("made no progress")
    with pytest.raises(DeadlineMissed, match="a made no progress"):
        await hung
    hung.give_up("made no progress")
    assert await waiting == 1


async def test_the_state_says_when_it_is_another(make_pool: MakePool) -> None:
    """A demand that gets slots wakes who waits for the state to change."""
    pool = await make_pool(2)
    pool.set_demand("new", plain_demand("new", 2))
    async with asyncio.timeout(20):
        await more_slots(pool, "new", 0)
    assert pool.state.of("new").never is None
    pool.set_demand("new", None)


async def test_a_second_run_never_shares_the_station_of_the_first(make_pool: MakePool) -> None:
    """With one station it waits for the first to end."""
    pool = await make_pool(2)
    first = pool.submit(works.Dwell(job="j", label="a", seconds=1))
    await until_it_runs(first)
    second = pool.submit(works.Dwell(job="j", label="a again", apart_from="a", seconds=0))
    assert (await first)[1] <= (await second)[0]


async def test_errors_say_where(make_pool: MakePool) -> None:
    """An error of the work names the worker, for what is tried next; away from it means so only if there are others."""
    pool = await make_pool(1)
    with pytest.raises(EncoderFailed) as caught:
        await pool.submit(works.RaiseError(job="j", label="a", error=EncoderFailed("no frame came out")))
    assert caught.value.where
    elsewhere = Constraints(avoid=frozenset({WorkerId(caught.value.where).station}))
    assert await pool.submit(works.Count(job="j", label="b", constraints=elsewhere)) == 1
    like = Constraints(same_kind_as=caught.value.where)
    assert await pool.submit(works.Count(job="j", label="c", constraints=like)) == 1


async def test_what_breaks_while_it_runs_alone_breaks_nothing_else(make_pool: MakePool) -> None:
    """A device that fails under work in a process of its own costs no neighbour, and not the next that is alone."""
    pool = await make_pool(2)
    beside = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until_it_runs(beside)
    for label in "bc":
        breaks = works.RaiseError(job="j", label=label, error=DeviceLost("it fell off the bus"), constraints=ALONE)
        with pytest.raises(DeviceLost, match="fell off the bus") as caught:
            await pool.submit(breaks)
        assert caught.value.where
    assert await pool.submit(works.Count(job="j", label="d", frames=7, constraints=ALONE)) == 7
    assert not beside.result.done()
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)


async def test_work_that_runs_alone_is_cancelled_and_tells_its_progress(make_pool: MakePool) -> None:
    """A process of its own makes no difference to its submitter."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S, constraints=ALONE))
    await until_it_runs(running)
    running.cancel()
    assert await pool.submit(works.Count(job="j", label="b")) == 1
    assert running.result.cancelled()


async def test_serves_many_at_once(make_pool: MakePool) -> None:
    """Hundreds of submissions at once all come back, each with its own result."""
    pool = await make_pool(4)
    submitted = (works.Count(job="j", label=f"{i}", frames=i) for i in range(300))
    assert await asyncio.gather(*(pool.submit(work) for work in submitted)) == list(range(300))


async def test_closing_cancels_what_runs_and_waits(make_pool: MakePool) -> None:
    """Closing ends running and queued work with Cancelled."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    queued = pool.submit(works.Count(job="j", label="b"))
    await until_it_runs(running)
    await pool.aclose()
    for task in (running, queued):
        with pytest.raises(Cancelled):
            await task


async def test_closing_again_does_nothing(make_pool: MakePool) -> None:
    """A pool may be closed twice, also at the same time; afterwards it takes no work."""
    pool = await make_pool(1)
    await asyncio.gather(pool.aclose(), pool.aclose())
    await pool.aclose()
    with pytest.raises(UsageError, match="closed"):
        await pool.submit(works.Count(job="j", label="a"))


@pytest.mark.parametrize("slots", [0, -1])
async def test_refuses_to_have_no_slots(make_pool: MakePool, slots: int) -> None:
    """A pool without slots would wait without end."""
    with pytest.raises(UsageError, match="at least one slot"):
        await make_pool(slots)
