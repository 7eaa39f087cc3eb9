"""A run of work, as the submitter sees it."""

import asyncio
import gc
import weakref

from codecfleet.cluster.fleet.run import ResultOrigin, WorkRun


class Payload:
    """A large result."""


async def ended_run() -> "weakref.ref[Payload]":
    """Let a run end while its pool refers to the run; return a weak reference to the result."""
    runs: list[WorkRun[Payload]] = []
    run: WorkRun[Payload] = WorkRun(lambda _: runs[0].cancel())
    runs.append(run)
    payload = Payload()
    run.end(payload, ResultOrigin("worker", "file"))
    await run
    await asyncio.sleep(0)
    return weakref.ref(payload)


async def test_a_result_is_free_once_it_is_dropped() -> None:
    """A finished segment's result does not stay in memory until a garbage collection."""
    gc.disable()
    try:
        assert (await ended_run())() is None
    finally:
        gc.enable()


async def test_an_ended_run_is_not_given_up() -> None:
    """An ended run is not given up, because its worker does other work by then."""
    why: list[str] = []
    run: WorkRun[int] = WorkRun(why.append)
    run.give_up("hangs")
    run.end(7, ResultOrigin("worker", "file"))
    run.give_up("hangs again")
    assert (await run, why) == (7, ["hangs"])
