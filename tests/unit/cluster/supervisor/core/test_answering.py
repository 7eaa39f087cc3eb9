"""When a client's report is answered: at once with news, after the next placement, or when its time is over."""

from codecfleet.cluster.supervisor.core.client_events import PASS_WAIT_S
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.state.events import (
    AnswerReport,
    Asked,
    Departed,
    Effect,
    Ended,
    Note,
    Order,
    Renewed,
    Ticked,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport

from ..core_worlds import World, node, wants

LONG_S = 60.0


class Asking(World):
    """A world whose clients' calls the test answers one event at a time."""

    def __init__(self) -> None:
        super().__init__(node("a", 4))
        self.say("one", wants("j", 10))

    def ask(self, client: str, *jobs: JobReport, wait_s: float = LONG_S, acknowledged: int = 0) -> list[AnswerReport]:
        """Have a client report once; return the answers that follow before anything else happens."""
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
    """What has not changed is said when the client's patience ends, and not before."""
    world = Asking()
    assert world.ask("one", wants("j", 10), wait_s=1.0) == []
    asked = _asked(world.core)
    assert world.tick(0.75) == []
    assert [answer.asked for answer in world.tick(0.25)] == [asked]


def test_a_newer_report_ends_the_wait_of_an_older_one() -> None:
    """So a client has two under way at most."""
    world = Asking()
    assert world.ask("one", wants("j", 10)) == []
    older = _asked(world.core)
    assert [answer.asked for answer in world.ask("one", wants("j", 10))] == [older]


def test_a_report_that_changes_what_is_wanted_is_answered_after_the_placement() -> None:
    """With the slots that follow from it."""
    world = Asking()
    assert world.ask("one", wants("j", 10), wants("new", 10)) == []
    (answer,) = world.tick()
    assert {job: sum(slots.values()) for job, slots in answer.grants.slots.items()} == {"j": 2, "new": 0}
    assert answer.grants.waiting.keys() == {"new"}


def test_what_one_client_acknowledges_is_another_s_news() -> None:
    """Slots that are revoked go to another job once their client knows, without another placement."""
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


def test_no_answer_waits_long_for_a_placement() -> None:
    """Where placements take so long that the next is far, clients hear what there is."""
    world = Asking()
    world.core.decide(Asked(Order.CORDON, "a"), world.now_s)
    assert world.ask("two", wants("k", 10), wait_s=1.0) == []
    assert world.tick(PASS_WAIT_S - 1, pass_s=10) == []
    (answer,) = world.tick(1, pass_s=10)
    assert (answer.client, answer.grants.slots, world.core.state.is_dirty) == ("two", {"k": {}}, True)


def test_every_call_ends_with_its_client_or_with_everything() -> None:
    """A client that leaves, falls silent, comes late, or whose supervisor ends is not left waiting."""
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
    """They are for the log, not for the status."""
    world = Asking()
    world.ask("one")
    notes = [effect for effect in world.core.decide(Ticked(), world.now_s) if isinstance(effect, Note)]
    assert [(note.line, note.is_shown) for note in notes] == [("job j has no slots left", False)]
