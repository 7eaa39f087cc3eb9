"""Looks at a fleet for open pages."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from codecfleet.actors.process.child import ChildDied
from codecfleet.cluster.fleet.messages import ReadHistory, ReadStatus
from codecfleet.cluster.operate.desk import as_unavailable, look
from codecfleet.cluster.supervisor.status import Status
from codecfleet.dashboard.looking import AGAIN_S, EVERY_S, FRESH_S, Looking
from codecfleet.errors import FleetUnavailable, UsageError, WorkError

from ..cli.large_fleet import large_fleet
from .hostile_fleet import FakeFleet

GONE = FleetUnavailable("the supervisor does not answer", "Wait.")


class Time:
    """A clock that runs only while a task sleeps, as far as ``step`` allows."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []
        self._steps = asyncio.Event()

    def clock(self) -> float:
        """Return the time."""
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Sleep until the next step."""
        self.slept.append(seconds)
        await self._steps.wait()
        self.now_s += seconds

    async def step(self) -> None:
        """Let the sleeper wake up and act."""
        steps, self._steps = self._steps, asyncio.Event()
        steps.set()
        await turns()


async def turns() -> None:
    """Run all tasks until they wait."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def looking_at(fleet: FakeFleet) -> AsyncIterator[tuple[Callable[[], Awaitable[dict[str, Any]]], Time]]:
    """Look at a fleet; yields a function that returns the newest data, and the clock."""
    time = Time()
    looking = Looking(fleet.desk, clock=time.clock, sleep=time.sleep)
    running = asyncio.create_task(looking.run())

    async def data() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(await looking.data())
        return found

    try:
        await turns()
        yield data, time
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_a_fleet_is_left_alone_while_no_page_is_open() -> None:
    """While no page is open, the fleet is not asked."""
    fleet = FakeFleet(large_fleet(3, 3))
    async with looking_at(fleet) as (data, time):
        assert fleet.asked == []
        assert (await data())["look"] == 1
        await time.step()
        assert list(map(type, fleet.asked)) == [ReadStatus, ReadHistory]


async def test_many_pages_share_one_look() -> None:
    """However many pages ask, at most one look is taken in ``EVERY_S``; fresh data is returned at once."""
    fleet = FakeFleet(large_fleet(3, 3))
    async with looking_at(fleet) as (data, time):
        found = await asyncio.gather(*(data() for _ in range(50)))
        assert {each["look"] for each in found} == {1}
        assert time.slept == [EVERY_S]
        assert (await data())["look"] == 1
        await time.step()
        assert (await data())["age_s"] in {0.0, EVERY_S}
        assert list(map(type, fleet.asked)) == [ReadStatus, ReadHistory] * 2


async def test_old_news_is_not_shown_where_newer_can_be_had() -> None:
    """A page that is opened after a while gets the current state."""
    fleet = FakeFleet(large_fleet(3, 3))
    async with looking_at(fleet) as (data, time):
        await data()
        await time.step()
        time.now_s += FRESH_S + 1
        fleet.seen = None
        found = await data()
        assert (found["look"], found["age_s"], found["document"]["fleet"]) == (2, 0.0, None)


NOT_UP = UsageError("no cluster is named, and no warm fleet runs", "Bring one up.")
ODD = WorkError("the result does not unpickle: KeyError: 'pid'", "Upgrade.")
DEFECT = KeyError("pid")
UNSHOWABLE = replace(
    large_fleet(3, 3), workers=tuple(replace(each, fps=math.nan) for each in large_fleet(3, 3).workers)
)
"""Its speeds are not numbers."""


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (GONE, str(GONE)),
        (ODD, str(ODD)),
        (NOT_UP, str(NOT_UP)),
        (UNSHOWABLE, "the fleet's status cannot be shown: ValueError: Out of range float values"),
    ],
)
async def test_what_cannot_be_shown_costs_its_look_alone(odd: Status | Exception, said: str) -> None:
    """The page says why it shows nothing, and later shows the fleet over the same connection."""
    fleet = FakeFleet(odd)
    async with looking_at(fleet) as (data, time):
        assert (await data())["document"]["trouble"].startswith(said)
        fleet.seen = large_fleet(3, 3)
        await time.step()
        time.now_s += FRESH_S + 1
        assert (await data())["document"]["trouble"] == ""
        assert fleet.opened == 1


@pytest.mark.parametrize("lost", [GONE, NOT_UP, ODD, DEFECT])
async def test_a_lost_fleet_is_looked_for_again(lost: Exception) -> None:
    """If the connection breaks, the page says so; when the fleet can be reached again, it is shown."""
    fleet = FakeFleet(large_fleet(3, 3))
    async with looking_at(fleet) as (data, time):
        await data()
        fleet.lost = lost
        time.now_s += FRESH_S + 1
        await time.step()
        assert (await data())["document"]["trouble"] == str(as_unavailable(lost))
        assert time.slept[-1] == AGAIN_S
        fleet.lost = None
        await time.step()
        time.now_s += FRESH_S + 1
        assert (await data())["document"]["fleet"] is not None
        assert fleet.opened == 2


@pytest.mark.parametrize("error", [ODD, DEFECT, GONE])
async def test_a_watch_shows_any_error_and_looks_on(error: Exception) -> None:
    """``top`` shows an error of one look and continues; only a lost connection ends it."""
    fleet = FakeFleet(error)
    async with fleet.desk() as ask:
        assert str(await look(ask)) == str(as_unavailable(error))
        fleet.seen = ChildDied("it ended")
        with pytest.raises(ChildDied):
            await look(ask)


async def test_a_fleet_that_was_never_reached_is_an_error() -> None:
    """A fleet that was never reached is not served."""
    fleet = FakeFleet(large_fleet(3, 3))
    fleet.lost = GONE
    with pytest.raises(FleetUnavailable, match="does not answer"):
        await Looking(fleet.desk).run()
