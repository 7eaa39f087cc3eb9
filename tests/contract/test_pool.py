"""The contract of ``Pool``, tested on every implementation."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codecfleet.actors.device.work import UNCONSTRAINED, Constraints
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

from .conftest import WIDE, MakePool, on_fake_workers

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALONE = Constraints(alone=True)
FOREIGN = (ValueError, SystemExit, KeyboardInterrupt)
ENDLESS_S = 3600
"""Longer than any test may take: what is not stopped fails by the time limit."""


async def until_it_runs(*runs: WorkRun[Any]) -> None:
    """Wait until work reports frames."""
    async with asyncio.timeout(20):
        # RunProgress must be polled, because there is no event.
        while not all(run.progress.frames for run in runs):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_returns_the_result(wide: Pool) -> None:
    """The submitter gets the result of the work."""
    assert await wide.submit(works.Count(job="j", label="a", frames=7)) == 7


async def test_says_how_many_slots_it_has(wide: Pool) -> None:
    """A pool has as many slots as requested, even if the machine has fewer cores."""
    assert wide.state.slots == WIDE


async def test_every_slot_has_a_core(wide: Pool) -> None:
    """The work of a job may keep at least as many cores busy as the job has slots."""
    wide.set_demand("j", plain_demand("j", WIDE))
    async with asyncio.timeout(20):
        await more_slots(wide, "j", WIDE - 1)
    assert wide.state.of("j").cores >= WIDE
    wide.set_demand("j", None)


async def test_nothing_speaks_against_what_it_can_do(wide: Pool) -> None:
    """A pool of processors accepts software work, and mentions no GPU to jobs that want none."""
    assert await wide.preview(plain_demand("j", 4)) == PlacementPreview()
    assert (await wide.preview(replace(plain_demand("j", 4), needs_gpu=True))).never


async def test_starting_twice_is_starting_once(narrow: Pool) -> None:
    """A second start does nothing."""
    await narrow.start()
    assert await narrow.submit(works.Count(job="j", label="a")) == 1


async def test_runs_in_order_of_submission(narrow: Pool) -> None:
    """With one slot, work runs in order of submission, each piece after the one before has ended."""
    submitted = (works.Dwell(job="j", label=f"{i}", seconds=0.02) for i in range(6))
    spans = await asyncio.gather(*(narrow.submit(work) for work in submitted))
    assert all(former[1] <= later[0] for former, later in itertools.pairwise(spans))


async def test_never_exceeds_its_slots(wide: Pool) -> None:
    """At no time does more work run than there are slots, and at some time all slots are used."""
    submitted = (works.Dwell(job="j", label=f"{i}", seconds=0.2) for i in range(3 * WIDE))
    spans = await asyncio.gather(*(wide.submit(work) for work in submitted))
    at_once = [sum(began <= start < ended for began, ended in spans) for start, _ in spans]
    assert max(at_once) == WIDE


@pytest.mark.parametrize("length", [0, 1 << 20, 30 << 20])
async def test_carries_arrays(narrow: Pool, length: int) -> None:
    """Arrays of any size arrive byte for byte."""
    work = works.MakeArray(job="j", label="a", length=length, seed=length)
    assert np.array_equal(await narrow.submit(work), work.expected())


@pytest.mark.parametrize(
    "error",
    [InputDamaged("two packets are damaged", "drop --strict"), EncoderFailed("no frame came out"), WouldLose("a", "b")],
    ids=lambda error: type(error).__name__,
)
async def test_errors_keep_their_type(narrow: Pool, error: CodecfleetError) -> None:
    """An error of codecfleet arrives with the same type, message and next step."""
    with pytest.raises(type(error)) as caught:
        await narrow.submit(works.RaiseError(job="j", label="a", error=error))
    assert type(caught.value) is type(error)
    assert caught.value.args == error.args


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        *((kind, WorkError, f"a failed with {kind.__name__}: out of tune") for kind in FOREIGN),
        (MemoryError, WorkerOutOfMemory, "a ran out of memory"),
    ],
)
async def test_foreign_exceptions_are_named(
    narrow: Pool, kind: type[BaseException], error: type[CodecfleetError], words: str
) -> None:
    """An error that codecfleet does not define is named; after a lack of memory, the work may be tried again."""
    with pytest.raises(error, match=words):
        await narrow.submit(works.Raise(job="j", label="a", error=kind))
    assert await narrow.submit(works.Count(job="j", label="b")) == 1


async def test_cancelled_while_queued_never_runs(narrow: Pool, tmp_path: Path) -> None:
    """Work that is cancelled while it waits leaves no trace, and later work moves up."""
    running = narrow.submit(works.Dwell(job="j", label="a", seconds=0.5))
    await until_it_runs(running)
    trace = tmp_path / "trace"
    queued = narrow.submit(works.Touch(job="j", label="b", path=str(trace)))
    await asyncio.sleep(0)
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    await running
    assert await narrow.submit(works.Count(job="j", label="c")) == 1
    assert not trace.exists()


@pytest.mark.parametrize("constraints", [UNCONSTRAINED, ALONE], ids=["beside others", "alone"])
async def test_cancelled_while_running_frees_its_slot(narrow: Pool, constraints: Constraints) -> None:
    """Cancelling stops the work, even in a separate process, and its slot serves the next work."""
    running = narrow.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S, constraints=constraints))
    await until_it_runs(running)
    running.cancel()
    assert await narrow.submit(works.Count(job="j", label="b")) == 1
    assert running.result.cancelled()


async def test_cancelled_as_soon_as_submitted(narrow: Pool) -> None:
    """A cancellation soon after the submission always takes effect, even if messages overtake each other."""
    for i in range(20):
        chased = narrow.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S))
        for _ in range(i % 5):
            await asyncio.sleep(0)
        chased.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chased
    assert await narrow.submit(works.Count(job="j", label="last")) == 1


async def test_a_run_says_where_it_is(narrow: Pool) -> None:
    """Running work has a worker and frames; waiting work has neither."""
    running = narrow.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until_it_runs(running)
    waiting = narrow.submit(works.Count(job="j", label="b"))
    await asyncio.sleep(0)
    assert running.progress.worker
    assert waiting.progress == RunProgress()
    running.cancel()
    assert await waiting == 1


async def test_a_result_has_an_origin(narrow: Pool) -> None:
    """The worker of a result is known, and can be blamed for the result."""
    run = narrow.submit(works.Count(job="j", label="a"))
    await run
    assert run.origin is not None
    assert run.origin.worker
    assert run.origin.file == "j"
    run.origin.found_wrong("it is short")


async def test_a_run_that_is_given_up_ends_at_once(narrow: Pool) -> None:
    """The submitter gets the reason, and the pool continues; giving up work that does not run has no effect."""
    hung = narrow.submit(works.Dwell(job="j", label="a", seconds=1))
    waiting = narrow.submit(works.Count(job="j", label="b"))
    await until_it_runs(hung)
    waiting.give_up("was late")
    hung.give_up("made no progress")
    with pytest.raises(DeadlineMissed, match="a made no progress"):
        await hung
    hung.give_up("made no progress")
    assert await waiting == 1


async def test_the_state_says_when_it_is_another(wide: Pool) -> None:
    """A demand that gets slots wakes tasks that wait for the state to change."""
    wide.set_demand("new", plain_demand("new", 2))
    async with asyncio.timeout(20):
        await more_slots(wide, "new", 0)
    assert wide.state.of("new").never is None
    wide.set_demand("new", None)


async def test_a_second_run_never_shares_the_station_of_the_first(wide: Pool) -> None:
    """If there is only one station, a second run waits for the first to end."""
    first = wide.submit(works.Dwell(job="j", label="a", seconds=0.5))
    await until_it_runs(first)
    second = wide.submit(works.Dwell(job="j", label="a again", apart_from="a", seconds=0))
    assert (await first)[1] <= (await second)[0]


async def test_errors_say_where(narrow: Pool) -> None:
    """An error names the worker; work that avoids that worker still runs there if there is no other."""
    with pytest.raises(EncoderFailed) as caught:
        await narrow.submit(works.RaiseError(job="j", label="a", error=EncoderFailed("no frame came out")))
    assert caught.value.where
    elsewhere = Constraints(avoid=frozenset({WorkerId(caught.value.where).station}))
    assert await narrow.submit(works.Count(job="j", label="b", constraints=elsewhere)) == 1
    like = Constraints(same_kind_as=caught.value.where)
    assert await narrow.submit(works.Count(job="j", label="c", constraints=like)) == 1


async def test_what_breaks_while_it_runs_alone_breaks_nothing_else(wide: Pool) -> None:
    """A device that fails under work in a separate process affects neither other work nor later work."""
    beside = wide.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    await until_it_runs(beside)
    breaks = works.RaiseError(job="j", label="b", error=DeviceLost("it fell off the bus"), constraints=ALONE)
    with pytest.raises(DeviceLost, match="fell off the bus") as caught:
        await wide.submit(breaks)
    assert caught.value.where
    assert await wide.submit(works.Count(job="j", label="c", frames=7, constraints=ALONE)) == 7
    assert not beside.result.done()
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)


async def test_serves_many_at_once(wide: Pool) -> None:
    """Hundreds of submissions at once all return, each with its own result."""
    submitted = (works.Count(job="j", label=f"{i}", frames=i) for i in range(200))
    assert await asyncio.gather(*(wide.submit(work) for work in submitted)) == list(range(200))


async def test_closing_cancels_what_runs_and_waits(make_pool: MakePool) -> None:
    """Running and queued work ends with Cancelled; closing again is allowed; no more work is accepted."""
    pool = await make_pool(1)
    running = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    queued = pool.submit(works.Count(job="j", label="b"))
    await until_it_runs(running)
    await asyncio.gather(pool.aclose(), pool.aclose())
    await pool.aclose()
    for task in (running, queued):
        with pytest.raises(Cancelled):
            await task
    with pytest.raises(UsageError, match="closed"):
        await pool.submit(works.Count(job="j", label="c"))


async def test_a_closed_supervisor_decides_nothing_more() -> None:
    """Nothing wakes it in a loop that goes on: it never looks at its clock again."""
    looks = itertools.count()  # in microseconds
    async with on_fake_workers(2, lambda: next(looks) / 1_000_000) as pool:
        await pool.submit(works.Count(job="j", label="a"))
    seen = next(looks)
    for _ in range(100):
        await asyncio.sleep(0)
    assert next(looks) == seen + 1


@pytest.mark.parametrize("slots", [0, -1])
async def test_refuses_to_have_no_slots(make_pool: MakePool, slots: int) -> None:
    """A pool without slots is refused, because work would wait for ever."""
    with pytest.raises(UsageError, match="at least one slot"):
        await make_pool(slots)
