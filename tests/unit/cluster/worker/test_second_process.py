"""A worker's second process: what it runs, what it says, and how it ends; here it is a thread."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from codecfleet.cluster.worker.blobs import BlobCache
from codecfleet.cluster.worker.helpers.helper import ALONE_FPS, ALONE_MAX, PACE_S, HelperProcess, Pace
from codecfleet.cluster.worker.ray_worker import RayWorker
from codecfleet.errors import Cancelled, DeviceLost, UsageError, WorkError

from ..second_processes import (
    GATES,
    PATIENCE_S,
    Count,
    Fail,
    ReturnUnreadable,
    Second,
    Unsendable,
    Wait,
    _until,
    second,
)

__all__ = ["second"]


def test_it_is_started_once_and_runs_work(second: Second) -> None:
    """Results come back, and frames are counted."""
    assert not second.process.is_ready
    process = second.ready()
    process.start()
    assert second.spawned == 1
    assert second.outcome(Count(job="j", label="a", upto=7)).result == 7
    assert second.outcome(Count(job="j", label="b", upto=5)).result == 5
    assert (process.said.frames_done, process.said.running, process.busy) == (12, (), 0)


@pytest.mark.parametrize(
    ("work", "kind", "spoils"),
    [(Fail(job="j", label="a"), DeviceLost, True), (b"no pickle", UsageError, False)],
)
def test_errors_come_back_as_values(second: Second, work: Any, kind: type[Exception], *, spoils: bool) -> None:
    """Whatever goes wrong is an outcome, which says whether the process is spoilt; the next work runs all the same."""
    process = second.ready()
    packed = work if isinstance(work, bytes) else BlobCache(bytes).pack(work)[0]
    outcome = process.submit("run", packed, ()).result(PATIENCE_S)
    assert type(outcome.error) is kind
    assert outcome.spoils_process is spoils
    assert second.outcome(Count(job="j", label="b", upto=1)).result == 1


@pytest.mark.parametrize("work", [Unsendable(job="j", label="a"), ReturnUnreadable(job="j", label="a")])
def test_a_result_that_does_not_arrive_is_an_error_of_work(second: Second, work: Any) -> None:
    """And the next work runs all the same."""
    process = second.ready()
    with pytest.raises(WorkError, match="the result does not"):
        process.submit("run", BlobCache(bytes).pack(work)[0], ()).result(PATIENCE_S)
    assert second.outcome(Count(job="j", label="b", upto=1)).result == 1


def test_it_says_what_it_does(second: Second) -> None:
    """Now and then, so that a worker's caller is answered at once."""
    process = second.ready()
    ended = process.submit("run", BlobCache(bytes).pack(Wait(job="j", label="a"))[0], ())
    GATES["a runs"].wait(PATIENCE_S)
    second.ticks.release()
    _until(lambda: process.said.running == (("j", "a"),))
    assert (process.said.progress, process.busy) == ({"j": {"a": 0}}, 1)
    GATES["a"].set()
    assert ended.result(PATIENCE_S).result == "a"


@pytest.mark.parametrize("cancel", [lambda each: each.cancel("me:1"), lambda each: each.cancel_all("me:")])
def test_work_is_cancelled_there(second: Second, cancel: Callable[[HelperProcess], None]) -> None:
    """One run, or every run of a client; others go on."""
    process = second.ready()
    mine = process.submit("me:1", BlobCache(bytes).pack(Wait(job="j", label="a"))[0], ())
    others = process.submit("you:1", BlobCache(bytes).pack(Wait(job="k", label="b"))[0], ())
    for label in "ab":
        assert GATES[f"{label} runs"].wait(PATIENCE_S)
    cancel(process)
    assert isinstance(mine.result(PATIENCE_S).error, Cancelled)
    GATES["b"].set()
    assert others.result(PATIENCE_S).result == "b"


def test_a_run_is_cancelled_before_it_comes(second: Second) -> None:
    """Orders may overtake each other on their way."""
    process = second.ready()
    process.cancel("run")
    assert isinstance(second.outcome(Count(job="j", label="a", upto=1)).error, Cancelled)


def test_the_state_at_the_end_is_there_with_the_outcome(second: Second) -> None:
    """A worker that counts frames when work has ended counts all of them, and never fewer later."""
    process = second.ready()
    for frames in (7, 12):
        upto = frames - process.said.frames_done
        assert second.outcome(Count(job="j", label="a", upto=upto)).result == upto
        assert process.said.frames_done == frames
    before = process._messages
    second.ticks.release()
    _until(lambda: process._messages > before)
    assert process.said.frames_done == 12


def test_work_that_was_cancelled_before_there_was_a_second_one_is_not_begun_there(second: Second) -> None:
    """An order to cancel overtakes work whose blobs are still in flight."""
    worker = RayWorker(4)

    async def overtaken() -> Any:
        await worker.cancel("run")
        worker._second, worker._here = second.ready(), 1
        return await worker.run("run", BlobCache(bytes).pack(Count(job="j", label="a", upto=1))[0])

    assert isinstance(asyncio.run(overtaken()).error, Cancelled)


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
