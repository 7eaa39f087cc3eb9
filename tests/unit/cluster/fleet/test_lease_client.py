"""How a client renews its leases: what it passes on, what it sends at once, and when it gives up."""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError

from codecfleet.cluster.fleet.leases.demands import Demands
from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.lease_client import (
    ANSWER_S,
    CALLS_AT_ONCE,
    COALESCE_S,
    ENTER_PATIENCE_S,
    LOST_PATIENCE_S,
    RENEW_S,
    LeaseClient,
)
from codecfleet.cluster.fleet.leases.leases import Leases
from codecfleet.cluster.fleet.pool import ClientName
from codecfleet.cluster.fleet_variables import KEEPER
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.placement.model.preview import PlacementPreview
from codecfleet.cluster.ray.keeper import Driving, Word, next_word, words_heard
from codecfleet.cluster.supervisor.runner.client import SupervisorClient
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants
from codecfleet.errors import FleetUnavailable, VersionRefused

AWAY = ActorUnavailableError("away", None)
WORD = Word(2, 7, Driving.RESTS)
MANY = 1000
"""So many jobs that changes are collected for seconds."""
Answer = Grants | Exception | None
"""A supervisor's answer to a report; None if it never answers."""


class Leaping(selectors.SelectSelector):
    """A selector that never waits: its clock jumps to the next timer."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing will ever happen again"
        self.now_s += timeout
        return super().select(0)


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that jumps to the next timer."""

    def __init__(self) -> None:
        self.leaping = Leaping()
        super().__init__(self.leaping)

    def time(self) -> float:
        return self.leaping.now_s


class Scripted(SupervisorClient):
    """A supervisor that gives its answers in order, and repeats the last one."""

    def __init__(self, *answers: Answer) -> None:
        self.sequences: list[int] = []
        self.opened = 0
        self.refusal: VersionRefused | None = None
        self.is_away_for_s = 0.0
        self.under_way = self.most_under_way = 0
        self._answers = answers

    what_next = "Run it again."

    async def open(self) -> None:
        self.opened += 1
        if asyncio.get_running_loop().time() < self.is_away_for_s:
            raise AWAY
        if self.refusal is not None:
            raise self.refusal

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        """Answer as late as a supervisor without news does."""
        answer = self._answers[min(len(self.sequences), len(self._answers) - 1)]
        self.sequences.append(report.sequence)
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            await (asyncio.Event().wait() if answer is None else asyncio.sleep(wait_s))
        finally:
            self.under_way -= 1
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    async def depart(self, client: str) -> None:
        """Do nothing."""

    async def handle(self, worker: str) -> Any:
        """Return nothing."""

    def send(self, content: bytes) -> Any:
        return content

    async def preview(self, demand: Demand) -> PlacementPreview:
        del demand
        return PlacementPreview()

    async def close(self) -> None:
        """Do nothing."""


def accepted(
    supervisor: Scripted,
    for_s: float,
    *,
    at: Mapping[float, Callable[[LeaseClient], None]] | None = None,
    jobs: int = 0,
) -> list[Grants]:
    """Return all grants that a client passes on within this many seconds."""
    found: list[Grants] = []
    demands = Demands(None)
    for number in range(jobs):
        demands.set(f"j{number}", plain_demand(f"j{number}", 1))

    async def talk() -> None:
        talk = LeaseClient(
            Ground(supervisor=supervisor), ClientName("c"), demands, Leases(), lambda: found.append(talk.grants)
        )
        loop = asyncio.get_running_loop()
        for when_s, act in (at or {}).items():
            loop.call_at(when_s, act, talk)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk.run(), for_s)
        await asyncio.sleep(0)
        assert supervisor.under_way == 0, "a call was left behind"

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(talk())
    return found


def test_only_what_is_newer_is_handed_on() -> None:
    """Repeated and overtaken answers are not passed on."""
    first, second = Grants({"j": {"w": 1}}, 1), Grants({"j": {"w": 2}}, 2)
    assert accepted(Scripted(first, first, second, first), 10) == [first, second]


def test_news_does_not_wait_for_an_answer_that_is_under_way() -> None:
    """News is reported at once, with at most one other call pending."""
    supervisor = Scripted(None)
    accepted(
        supervisor, 1, at={0.2: LeaseClient.report_soon, 0.4: LeaseClient.report_soon, 0.6: LeaseClient.report_soon}
    )
    assert (supervisor.sequences, supervisor.most_under_way) == ([1, 2], CALLS_AT_ONCE)


def test_many_jobs_delay_a_report_only_beside_an_open_call() -> None:
    """Changes are collected, but after the last open call was answered, urgent news would have to wait for a report."""
    quiet, changing = Scripted(Grants({})), Scripted(Grants({}))
    accepted(quiet, 4.5 * RENEW_S, jobs=MANY)
    accepted(changing, 0.9 * MANY * COALESCE_S, at={0.5 * RENEW_S: LeaseClient.report_soon}, jobs=MANY)
    assert (len(quiet.sequences), len(changing.sequences)) == (5, 1)


def test_a_supervisor_that_comes_back_in_time_was_never_missed() -> None:
    """While the supervisor is out of reach, no grants are passed on; the client tries again after each failure."""
    back = Grants({"j": {"w": 1}}, 5)
    supervisor = Scripted(*[AWAY] * 20, back)
    assert accepted(supervisor, LOST_PATIENCE_S) == [back]
    assert supervisor.opened == 20


def test_patience_ends() -> None:
    """A supervisor that stays out of reach counts as lost, but is still asked; its grants count once it is back."""
    back = Grants({"j": {"w": 1}}, 5)
    *lost, found = accepted(Scripted(*[AWAY] * 60, back), 2 * LOST_PATIENCE_S)
    assert lost
    assert all(each.unrecoverable.startswith("the supervisor has been out of reach: ActorUnavailable") for each in lost)
    assert {each.what_next for each in lost} == {"Run it again."}
    assert found == back


def test_a_suspended_process_was_not_left_alone() -> None:
    """After a Ctrl-Z or a laptop's sleep, pending answers are late, but the supervisor does not count as lost."""
    back = Grants({"j": {"w": 1}}, 5)

    def sleep(_: LeaseClient) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LeapingLoop)
        loop.leaping.now_s += 3600

    assert accepted(Scripted(None, back), 3600 + LOST_PATIENCE_S, at={0.5: sleep}) == [back]


def test_a_supervisor_with_a_defect_is_given_up_soon() -> None:
    """Three errors in a row count as a defect."""
    sound = Grants({}, 1)
    assert accepted(Scripted(KeyError("x"), KeyError("x"), sound, KeyError("x"), KeyError("x"), sound), 20) == [sound]
    given_up = accepted(Scripted(KeyError("x")), 5)
    assert given_up[0].unrecoverable == "the supervisor failed: KeyError: 'x'"


def test_a_supervisor_that_comes_back_with_another_version_is_given_up_at_once() -> None:
    """If the supervisor has another version, the client gives up with the reason and the next step."""
    supervisor = Scripted(KeyError("x"))
    supervisor.refusal = VersionRefused("it is another version", "Install that one.")
    refused = accepted(supervisor, 5)[0]
    assert (refused.unrecoverable, refused.what_next) == ("it is another version", "Install that one.")


def test_a_supervisor_that_is_late_is_one_out_of_reach() -> None:
    """Three missing answers are not a defect, because the supervisor may be restarting."""
    assert accepted(Scripted(None), LOST_PATIENCE_S) == []
    lost = accepted(Scripted(None), 2 * LOST_PATIENCE_S)
    assert lost[0].unrecoverable == f"the supervisor has been out of reach: no answer within {ANSWER_S:g} s"


@pytest.mark.parametrize(("away_s", "is_found"), [(ENTER_PATIENCE_S - 1, True), (2 * ENTER_PATIENCE_S, False)])
def test_a_client_waits_for_a_supervisor_that_moves_to_another_node(away_s: float, is_found: bool) -> None:  # noqa: FBT001
    """If the supervisor's node stops, Ray restarts the supervisor elsewhere within about half a minute."""
    supervisor = Scripted(None)
    supervisor.is_away_for_s = away_s

    async def enter() -> None:
        client = LeaseClient(Ground(supervisor=supervisor), ClientName("c"), Demands(None), Leases(), lambda: None)
        with nullcontext() if is_found else pytest.raises(FleetUnavailable, match="the supervisor cannot be reached"):
            await client.enter()
        assert asyncio.get_running_loop().time() == pytest.approx(min(away_s, ENTER_PATIENCE_S), abs=1)

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(enter())


def test_a_job_tells_the_driver_of_a_node_that_ray_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every answer, because a word may be lost; a full socket stops nothing."""
    with words_heard() as (end, name):
        monkeypatch.setenv(KEEPER, name)
        accepted(Scripted(Grants({}, 1, word=WORD)), 3 * RENEW_S)
        assert [next_word(end), next_word(end)] == [WORD, WORD]
        accepted(Scripted(Grants({}, 1, word=WORD)), 2000 * RENEW_S)
