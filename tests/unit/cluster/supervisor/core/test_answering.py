"""When a client's report is answered: at once if there is news, after the next placement, or after its time."""

import pytest

from codecfleet.cluster.supervisor.core.answering import PASS_WAIT_S
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.state.events import (
    AnswerReport,
    Asked,
    Departed,
    Died,
    Effect,
    Ended,
    Note,
    Order,
    Renewed,
    Reserve,
    Reserved,
    Start,
    Started,
    SupervisorEvent,
    Ticked,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport, WorkerFacts

from ..core_worlds import World, node, wants

LONG_S = 60.0


class Asking(World):
    """A world in which the test answers calls of clients, one event at a time."""

    def __init__(self) -> None:
        super().__init__(node("a", 4))
        self.say("one", wants("j", 10))

    def ask(self, client: str, *jobs: JobReport, wait_s: float = LONG_S, acknowledged: int = 0) -> list[AnswerReport]:
        """Send a client's report once; return the answers that follow before anything else happens."""
        self.sequence += 1
        report = ClientReport(client, client, self.sequence, jobs, acknowledged=acknowledged)
        return _answers(self.core.decide(Renewed(report, wait_s), self.now_s))

    def tick(self, seconds: float = 0.0, pass_s: float = 0.0) -> list[AnswerReport]:
        """Let time pass, and tick."""
        self.now_s += seconds
        return _answers(self.core.decide(Ticked(pass_s), self.now_s))


def _answers(effects: list[Effect]) -> list[AnswerReport]:
    return [effect for effect in effects if isinstance(effect, AnswerReport)]


def _asked(core: Core) -> int:
    return core.state.event


def test_a_report_without_news_waits_for_its_time() -> None:
    """If nothing changes, a call is answered when its time is over, not earlier."""
    world = Asking()
    assert world.ask("one", wants("j", 10), wait_s=1.0) == []
    asked = _asked(world.core)
    assert world.tick(0.75) == []
    assert [answer.asked for answer in world.tick(0.25)] == [asked]


def test_a_newer_report_ends_the_wait_of_the_one_before_the_last() -> None:
    """A client has at most two open calls, so a third call ends the first one."""
    world = Asking()
    assert world.ask("one", wants("j", 10)) == []
    older = _asked(world.core)
    assert [answer.asked for answer in world.ask("one", wants("j", 10))] == [older]


def test_a_changed_demand_is_answered_after_the_placement() -> None:
    """After a changed demand, the answer has the slots of the next placement."""
    world = Asking()
    assert world.ask("one", wants("j", 10), wants("new", 10)) == []
    (answer,) = world.tick()
    assert {job: sum(slots.values()) for job, slots in answer.grants.slots.items()} == {"j": 2, "new": 0}
    assert answer.grants.waiting.keys() == {"new"}


def test_an_acknowledgement_is_news_for_other_clients() -> None:
    """Revoked slots go to another job once the client acknowledges the loss, without another placement."""
    world = Asking()
    world.ask("two", wants("k", 10))
    asked = _asked(world.core)
    (first,) = world.tick()
    assert (first.asked, first.grants.slots) == (asked, {"k": {}})
    world.ask("two", wants("k", 10))
    (told,) = world.ask("one", wants("j", 10))
    placed_s = world.core.state.placed_s
    news = world.ask("one", wants("j", 10), acknowledged=told.grants.number)
    assert [(answer.client, sum(answer.grants.slots["k"].values())) for answer in news] == [("two", 2)]
    assert world.core.state.placed_s == placed_s


def test_first_slots_do_not_wait_for_the_next_placement() -> None:
    """A job's first slots are granted as soon as the job that lost them acknowledges the loss."""
    world = Asking()
    world.ask("two", wants("k", 10))
    world.tick()
    world.ask("two", wants("k", 10))
    (told,) = world.ask("one", wants("j", 10))
    world.core.decide(Asked(Order.UNCORDON, "a"), world.now_s)
    news = world.ask("one", wants("j", 10), acknowledged=told.grants.number)
    assert [(answer.client, sum(answer.grants.slots["k"].values())) for answer in news] == [("two", 2)]
    assert world.core.state.is_dirty


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_restarted_worker_s_slots_do_not_wait_for_the_next_placement(*, is_waiting: bool) -> None:
    """The slots of a restarted worker reach an open call at once, and another client with its next report."""
    world = Asking()
    if is_waiting:
        assert world.ask("one", wants("j", 10)) == []
    dead = next(iter(world.grants["one"].slots["j"]))
    events: list[SupervisorEvent] = [Died(dead, "it was killed")]
    answers: list[AnswerReport] = []
    while events:
        effects = world.core.decide(events.pop(0), world.now_s)
        answers += _answers(effects)
        events += [Reserved(each.worker, each.cores) for each in effects if isinstance(each, Reserve)]
        events += [Started(each.worker, WorkerFacts(7, 4)) for each in effects if isinstance(each, Start)]
    assert len(answers) == is_waiting
    (answer,) = answers or world.ask("one", wants("j", 10))
    assert sum(answer.grants.slots["j"].values()) == 4
    assert dead not in answer.grants.slots["j"]
    assert world.core.state.is_dirty


def test_news_leaves_the_newest_of_two_calls_open() -> None:
    """The newest call stays open, so the next news does not wait for another report."""
    world = Asking()
    world.ask("two", wants("k", 10))
    older = _asked(world.core)
    world.ask("two", wants("k", 10))
    assert [answer.asked for answer in world.tick()] == [older]
    assert [len(client.calls) for client in world.core.state.clients if client.client == "two"] == [1]


def test_no_answer_waits_long_for_a_placement() -> None:
    """If a placement is far off, clients first get what is available."""
    world = Asking()
    world.core.decide(Asked(Order.CORDON, "a"), world.now_s)
    assert world.ask("one", wants("j", 10), wait_s=1.0) == []
    assert world.tick(PASS_WAIT_S - 1, pass_s=10) == []
    (answer,) = world.tick(1, pass_s=10)
    assert sum(answer.grants.slots["j"].values()) == 4
    assert world.core.state.is_dirty


def test_every_call_ends_with_its_client_or_the_supervisor() -> None:
    """Calls are answered if their client leaves, expires or comes late, or if the supervisor ends."""
    world = Asking()
    world.ask("one", wants("j", 10))
    asked = _asked(world.core)
    assert [each.asked for each in _answers(world.core.decide(Departed("one"), world.now_s))] == [asked]
    assert len(world.ask("one", wants("j", 10))) == 1, "it has left"
    world.ask("two", wants("k", 1))
    world.tick()
    world.ask("two", wants("k", 1), wait_s=1000.0)
    assert sum(len(world.tick(1.0)) for _ in range(11)) == 1, "its client has expired"
    world.ask("three", wants("k", 1))
    (answer,) = _answers(world.core.decide(Ended("Ray is gone"), world.now_s))
    assert answer.grants.unrecoverable == "Ray is gone"


def test_first_and_last_slots_are_logged_once() -> None:
    """A job's first and last slots are logged, but not shown in the status."""
    world = Asking()
    world.ask("one")
    notes = [effect for effect in world.core.decide(Ticked(), world.now_s) if isinstance(effect, Note)]
    assert [(note.line, note.is_shown) for note in notes] == [("job j has no slots left", False)]
