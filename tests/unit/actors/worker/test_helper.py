"""A worker's helper: what it runs and reports; one that ends, hangs, lies, or cannot be started."""

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
from codecfleet.errors import Cancelled, DeviceLost, EngineUnfit, UsageError, WorkError
from codecfleet.testing import works

from .helper_peers import PATIENCE_S, Peer, Threaded, Unreadable, Unsendable, packed, until


def count(frames: int) -> works.Count:
    """Return work that succeeds."""
    return works.Count(job="j", label="a", frames=frames)


def dwell(label: str) -> works.Dwell:
    """Return work that goes on until it is cancelled."""
    return works.Dwell(job="j", label=label, seconds=3600)


async def test_it_runs_work() -> None:
    """Results come back, and frames are counted."""
    threaded = Threaded()
    assert not threaded.helper.is_ready
    helper = await threaded.ready()
    assert (await threaded.outcome(count(7))).result == 7
    assert (await threaded.outcome(count(5))).result == 5
    assert (helper.state.frames_done, helper.pieces(), helper.busy) == (12, (), 0)


@pytest.mark.parametrize(
    ("work", "kind", "spoils"),
    [
        (packed(works.RaiseError(job="j", label="a", error=DeviceLost("gone"))), DeviceLost, True),
        (b"no pickle", UsageError, False),
    ],
)
async def test_errors_come_back_as_values(work: bytes, kind: type[Exception], *, spoils: bool) -> None:
    """Whatever goes wrong is an outcome, which says whether the process is spoilt; the next work runs all the same."""
    threaded = Threaded()
    outcome = await (await threaded.ready()).run("run", work, ())
    assert (type(outcome.error), outcome.spoils_process) == (kind, spoils)
    assert (await threaded.outcome(count(1))).result == 1


@pytest.mark.parametrize("late", [False, True])
async def test_a_result_that_does_not_arrive_is_an_error_of_work(*, late: bool) -> None:
    """And the next work runs all the same."""
    threaded = Threaded()
    await threaded.ready()
    with pytest.raises(WorkError, match="the result does not"):
        await threaded.outcome(Unsendable(job="j", label="a", late=late))
    assert (await threaded.outcome(count(1))).result == 1


async def test_it_reports_and_work_is_cancelled_there() -> None:
    """It says now and then what it runs; one run ends, and the others go on."""
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


async def test_a_run_is_cancelled_before_it_comes() -> None:
    """Orders may overtake each other on their way."""
    threaded = Threaded()
    (await threaded.ready()).cancel("run")
    assert isinstance((await threaded.outcome(count(1))).error, Cancelled)


async def test_the_state_at_the_end_is_there_with_the_outcome() -> None:
    """A worker that counts frames when work has ended counts all of them, and never fewer later."""
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
    """Both: much work at processors' speed needs no second interpreter, nor do few fast sessions."""
    pace = Pace(100.0)
    assert pace.wants_help(100.0 + 2 * PACE_S, int(fps * 2 * PACE_S), running) is wants


def test_speed_is_not_measured_over_a_moment() -> None:
    """Two looks that follow each other at once are one."""
    pace = Pace(0.0)
    assert pace.wants_help(1.0, 3000, 9)
    assert pace.wants_help(1.0 + PACE_S / 2, 3000, 9)
    assert not pace.wants_help(1.0 + PACE_S, 3000, 9)


def _no_gpu() -> OpenedGpu:
    raise EngineUnfit("there is no GPU", "Buy one.")


async def test_one_that_cannot_open_its_gpu_is_never_ready() -> None:
    """The worker learns why, and continues alone."""
    threaded = Threaded(Gpu(_no_gpu))
    await threaded.helper.is_up.wait()
    assert (threaded.helper.is_ready, threaded.helper.has_been_ready) == (False, False)
    assert threaded.ended == ["it ended"]


async def test_one_that_ends_is_lost() -> None:
    """Its worker gets the reason, and so does what waits for its work."""
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


@pytest.mark.parametrize("error", [OSError("no more processes"), TypeError("a path that is none")])
async def test_one_that_cannot_be_started_is_never_ready(error: Exception) -> None:
    """Its worker learns why, once."""
    peer = Peer(error)
    await peer.helper.is_up.wait()
    assert str(error) in peer.ended.get()
    peer.helper.look(1e9)
    assert not peer.helper.is_ready
    assert peer.ended.empty()


async def test_one_that_sends_nonsense_is_lost() -> None:
    """A process that cannot be understood is killed, and its worker does not wait for it."""
    peer = Peer()
    await peer.ready()
    peer.theirs.send(Unreadable())
    await until(lambda: not peer.ended.empty())
    assert "ValueError" in peer.ended.get()
    assert peer.kills > 0


async def test_one_that_does_not_listen_delays_no_caller() -> None:
    """A worker's event loop sends to it, and answers for the whole worker; what was sent arrives in order."""
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


async def test_one_that_says_nothing_is_lost() -> None:
    """A call that holds its interpreter stops it as a whole, while the worker's heartbeat would continue."""
    peer = Peer()
    helper = await peer.ready()
    helper.look(100.0)
    helper.look(100.0 + QUIET_S - 1)
    assert peer.ended.empty()
    helper.look(100.0 + QUIET_S)
    assert peer.ended.get() == "it has said nothing for 20 s"
    assert peer.kills > 0


async def test_one_that_reports_while_idle_is_well() -> None:
    """It says so also when it has no work."""
    threaded = Threaded()
    helper = await threaded.ready()
    helper.look(100.0)
    threaded.ticks.release()
    await until(lambda: helper._silent_since_s is None)
    helper.look(100.0 + QUIET_S)
    assert helper.is_ready


async def test_one_that_never_opens_its_gpu_is_ended() -> None:
    """It holds memory of the GPU; its worker, which never needed it, continues."""
    peer = Peer()
    await asyncio.sleep(0)
    peer.helper.look(100.0)
    peer.helper.look(100.0 + STARTING_S - 1)
    assert peer.ended.empty()
    peer.helper.look(100.0 + STARTING_S)
    assert peer.ended.get() == "it has said nothing for 300 s"
    assert not peer.helper.has_been_ready
    assert peer.kills > 0
