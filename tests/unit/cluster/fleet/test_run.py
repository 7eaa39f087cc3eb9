"""A run of work, as its submitter holds it."""

import asyncio
import gc
import weakref

from codecfleet.cluster.fleet.run import ResultOrigin, WorkRun


class Payload:
    """A result that is large."""


async def ended_run() -> "weakref.ref[Payload]":
    """Let a run to which its pool refers end; return a weak reference to its result."""
    runs: list[WorkRun[Payload]] = []
    run: WorkRun[Payload] = WorkRun(lambda _: runs[0].cancel())
    runs.append(run)
    payload = Payload()
    run.end(payload, ResultOrigin("worker", "file"))
    await run
    await asyncio.sleep(0)
    return weakref.ref(payload)


async def test_a_result_is_free_once_it_is_dropped() -> None:
    """Finished segments do not stay in memory until the garbage collector comes, though pools refer to runs."""
    gc.disable()
    try:
        assert (await ended_run())() is None
    finally:
        gc.enable()


async def test_an_ended_run_is_not_given_up() -> None:
    """Its worker does other work by then."""
    why: list[str] = []
    run: WorkRun[int] = WorkRun(why.append)
    run.give_up("hangs")
    run.end(7, ResultOrigin("worker", "file"))
    run.give_up("hangs again")
    assert (await run, why) == (7, ["hangs"])
