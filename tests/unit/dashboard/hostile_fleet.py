"""A fleet in which every text is an attack on the page, and the desk that reports on the fleet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from codecfleet.actors.process.messages import Request
from codecfleet.cluster.fleet.messages import SupervisorSide
from codecfleet.cluster.operate.desk import AskDesk
from codecfleet.cluster.supervisor.status import Status
from codecfleet.cluster.supervisor.status.history import History, PieceSeen

from ..cli.large_fleet import RESTING, large_fleet

ReplyT = TypeVar("ReplyT")

if TYPE_CHECKING:
    from codecfleet.cluster.operate.desk import Seen

ATTACK = "<script>alert('x')</script><img src=x onerror=\"alert(1)\">"


def hostile_status(nodes: int = 40, jobs: int = 60) -> Status:
    """Return a fleet with the attack as host, driver, node, reason, device and log line."""
    fleet = large_fleet(nodes, jobs)
    return replace(
        fleet,
        host=ATTACK,
        jobs=(replace(fleet.jobs[0], client=ATTACK, waits_for=ATTACK), *fleet.jobs[1:]),
        nodes=(replace(fleet.nodes[0], name=ATTACK, devices=ATTACK), *fleet.nodes[1:]),
        workers=tuple(replace(each, reason=ATTACK) if n == RESTING else each for n, each in enumerate(fleet.workers)),
        quarantine=(ATTACK,),
        log=((0.0, ATTACK), *fleet.log),
    )


def busy_history(stations: tuple[str, ...]) -> History:
    """Return ten minutes of work: long and short pieces on several lanes, of which some failed and some still run."""
    endings = ("done", "done", "done", "failed", "done", "cancelled", "done", "lost")
    pieces = {}
    for number, station in enumerate(stations):
        found = []
        for lane in range(4):
            length_s = 9.0 + 7 * ((number + lane) % 4)
            found += [
                PieceSeen(f"{number % 5:08x}", f"segment {turn}", lane, length_s * (turn + 1), length_s * turn, ending)
                for turn, ending in ((turn, endings[(turn * 5 + lane + number) % 8]) for turn in range(1, 12))
            ]
            found.append(PieceSeen(ATTACK if lane == 0 else "0badf00d", "segment 99", lane, length_s, None, "running"))
        pieces[station] = tuple(sorted(found, key=lambda piece: -piece.began_s))
    return History(pieces, tuple((600.0 - 2 * n, 900.0 + 40 * (n % 17)) for n in range(301)))


class LinkLost(Exception):
    """The connection broke, which a desk reports as its own error when it closes."""


class FakeFleet(SupervisorSide):
    """A desk's fleet: ``seen`` is its status or an error to raise, and ``lost`` is why it cannot be reached.

    ``asked`` has the questions, and ``opened`` counts the desks.
    """

    def __init__(self, seen: "Seen | Exception") -> None:
        self.seen = seen
        self.lost: Exception | None = None
        self.asked: list[object] = []
        self.opened = 0

    @asynccontextmanager
    async def desk(self, address: str | None = None) -> AsyncIterator[AskDesk[SupervisorSide]]:
        """Open a desk, unless the fleet is lost."""
        del address
        if self.lost is not None:
            raise self.lost
        self.opened += 1
        try:
            yield self._ask
        except LinkLost:
            assert self.lost is not None
            raise self.lost from None

    async def _ask(self, question: Request[SupervisorSide, ReplyT], /) -> ReplyT:
        self.asked.append(question)
        if self.lost is not None:
            raise LinkLost
        return await question.serve(self)

    async def history(self, stations: tuple[str, ...]) -> History:
        """Return a busy history."""
        return busy_history(stations)

    async def status(self) -> Status | None:
        """Return the status, or raise the error."""
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen
