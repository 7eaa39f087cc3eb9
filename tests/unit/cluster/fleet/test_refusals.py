"""Work waits where a session limit refuses it."""

from typing import Any

import pytest

from codecfleet.cluster.fleet.leases.pending_work import PendingWork
from codecfleet.cluster.fleet.leases.refusals import WAITS, WAITS_MAX
from codecfleet.cluster.fleet.run import WorkRun
from codecfleet.cluster.worker.outcome import Outcome
from codecfleet.errors import DeviceMemory, SessionLimit
from codecfleet.testing import works

WAITS_S = tuple(WAITS.wait_s(refusals) for refusals in range(1, WAITS_MAX + 1))
FULL: Outcome[Any] = Outcome(error=SessionLimit("full"))


def pending(*waits_s: float) -> PendingWork:
    """Return work that may wait so often."""
    return PendingWork(works.Count(job="j", label="a"), b"", (), WorkRun(lambda _: None), iter(waits_s))


async def test_a_refused_session_is_tried_again_after_a_while() -> None:
    """The job does not notice, and waits longer each time."""
    work = pending(*WAITS_S)
    assert [work.wait_s(FULL), work.wait_s(FULL)] == list(WAITS_S[:2])


async def test_a_minute_of_refusals_is_an_error() -> None:
    """A limit that never gives way is reported as what it is."""
    work = pending(*WAITS_S)
    waited_s = sum(each for _ in range(50) if (each := work.wait_s(FULL)) is not None)
    assert waited_s == pytest.approx(60, abs=2)
    assert work.wait_s(FULL) is None


async def test_a_lack_of_memory_is_no_limit() -> None:
    """Other errors are final at once: waiting opens no memory."""
    assert pending(*WAITS_S).wait_s(Outcome(error=DeviceMemory("full"))) is None


async def test_cancelled_work_waits_no_more() -> None:
    """It needs no session any longer."""
    work = pending(*WAITS_S)
    work.run.cancel()
    assert work.wait_s(FULL) is None
