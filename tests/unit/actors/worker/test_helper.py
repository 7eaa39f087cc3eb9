"""A worker's helper: its work and reports, and helpers that end, hang, lie, or cannot start."""

import asyncio
import time

import pytest

from codecfleet.actors.nvidia.gpu import Gpu, OpenedGpu
from codecfleet.actors.process.child import ChildDied
from codecfleet.actors.worker.helper import (
    ALONE_FPS,
    ALONE_MAX,
    PACE_S,
    QUIET_S,
    STARTING_S,
    HelperCancel,
    HelperRun,
    Pace,
)
from codecfleet.errors import Cancelled, EngineUnfit
from codecfleet.testing import works

from .helper_peers import PATIENCE_S, Peer, Threaded, until


def count(frames: int) -> works.Count:
    """Return work that succeeds."""
    return works.Count(job="j", label="a", frames=frames)


def dwell(label: str) -> works.Dwell:
    """Return work that runs until it is cancelled."""
    return works.Dwell(job="j", label=label, seconds=3600)


async def test_it_reports_and_work_is_cancelled_there() -> None:
    """The helper reports its runs regularly; one run is cancelled, and the others continue."""
    threaded = Threaded()
    helper = await threaded.ready()
    first, second = (asyncio.create_task(threaded.outcome(dwell(label), f"me:{label}")) for label in "ab")
    async with asyncio.timeout(PATIENCE_S):
        while {piece.run for piece in helper.pieces()} != {"me:a", "me:b"}:
            threaded.ticks.release()
            await asyncio.sleep(0.005)
    assert (helper.state.progress.keys(), helper.busy) == ({"me:a", "me:b"}, 2)
    helper.cancel("me:a")
    assert isinstance((await first).error, Cancelled)
    assert not second.done()
    helper.cancel("me:b")
    assert isinstance((await second).error, Cancelled)


async def test_the_state_at_the_end_is_there_with_the_outcome() -> None:
    """The report at the end of work has all its frames, and later counts are never lower."""
    threaded = Threaded()
    helper = await threaded.ready()
    for frames in (7, 12):
        await threaded.outcome(count(frames - helper.state.frames_done))
        assert helper.state.frames_done == frames
    helper.look(1.0)
    threaded.ticks.release()
    await until(lambda: helper._silent_since_s is None)
    assert helper.state.frames_done == 12


@pytest.mark.parametrize(
    ("fps", "running", "wants"),
    [(ALONE_FPS, ALONE_MAX + 1, True), (ALONE_FPS - 1, 64, False), (9999, ALONE_MAX, False), (0, 0, False)],
)
def test_help_is_for_who_is_fast_and_has_much_to_do(fps: float, running: int, *, wants: bool) -> None:
    """A second process needs both speed and much work: neither slow work nor a few fast sessions suffice."""
    pace = Pace(100.0)
    assert pace.wants_help(100.0 + 2 * PACE_S, int(fps * 2 * PACE_S), running) is wants
    assert pace.wants_help(100.0 + 2.5 * PACE_S, 0, running) is wants, "that is too soon for another figure"


def _no_gpu() -> OpenedGpu:
    raise EngineUnfit("there is no GPU", "Buy one.")


async def test_one_that_cannot_open_its_gpu_is_never_ready() -> None:
    """The worker gets the reason, and continues without a helper."""
    threaded = Threaded(Gpu(_no_gpu))
    await threaded.helper.is_up.wait()
    assert (threaded.helper.is_ready, threaded.helper.has_been_ready) == (False, False)
    assert threaded.ended == ["it ended"]


async def test_one_that_ends_is_lost() -> None:
    """The worker and all callers that wait for the helper's work get the reason."""
    peer = Peer()
    helper = await peer.ready()
    peer.close()
    await until(lambda: not peer.ended.empty())
    assert peer.ended.get() == "it was killed by SIGKILL"
    assert (helper.is_ready, helper.has_been_ready) == (False, True)
    with pytest.raises(ChildDied):
        await helper.run("run", b"", ())
    helper.cancel("run")
    assert peer.ended.empty()


async def test_one_that_does_not_listen_delays_no_caller() -> None:
    """A worker's event loop serves the whole worker, so sending must not block; messages arrive in order."""
    peer = Peer()
    helper = await peer.ready()
    running = asyncio.create_task(helper.run("run", bytes(8 << 20), ()))
    await asyncio.sleep(0)
    helper.cancel("run")
    until_s = time.monotonic() + PATIENCE_S
    run, cancel = [await asyncio.to_thread(peer.theirs.receive, until_s) for _ in range(2)]
    assert (type(run), len(run.packed_work)) == (HelperRun, 8 << 20)
    assert cancel == HelperCancel("run")
    peer.close()
    with pytest.raises(ChildDied):
        await running


@pytest.mark.parametrize(("is_up", "limit_s"), [(True, QUIET_S), (False, STARTING_S)])
async def test_one_that_is_silent_is_ended(*, is_up: bool, limit_s: float) -> None:
    """A helper whose interpreter hangs, or whose GPU does not open, is killed, and the worker gets the reason."""
    peer = Peer()
    await (peer.ready() if is_up else asyncio.sleep(0))
    peer.helper.look(100.0)
    peer.helper.look(99.0 + limit_s)
    assert peer.ended.empty()
    peer.helper.look(100.0 + limit_s)
    assert peer.ended.get() == f"it was silent for {limit_s:.0f} s"
    assert (peer.helper.has_been_ready, peer.kills > 0) == (is_up, True)
