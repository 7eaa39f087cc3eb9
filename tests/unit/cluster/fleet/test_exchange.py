"""A client and its supervisor know the same of each other, whatever happens to their messages."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codecfleet.actors.by_name import packed, unpacked
from codecfleet.cluster.changes import OVER_KEPT, Changes
from codecfleet.cluster.fleet.leases.exchange import Exchange
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.supervisor.core.answering import UNHEARD, Answers
from codecfleet.cluster.supervisor.state.clients import Clients
from codecfleet.cluster.supervisor.state.messages import (
    ClientReport,
    Grants,
    JobGrants,
    JobReport,
    ReportedChanges,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])
CHOICES = st.integers(0, 1000)
NUMBERS_EACH = 1_000_000


def report(sequence: int, jobs: Iterable[JobReport], acknowledged: int = 0) -> ClientReport:
    """Return all that a client has to say."""
    return ClientReport("c", "here", sequence, tuple(jobs), acknowledged=acknowledged)


def wants(job: str, pieces: int) -> JobReport:
    """Return what a client says of a job that holds a slot for each piece."""
    return JobReport(plain_demand(job, pieces), {"w": pieces})


@dataclass
class Supervisor:
    """What a supervisor keeps of its clients; ``lots`` decide what jobs get."""

    term: int
    clients: Clients
    answers: Answers
    lots: dict[str, int]
    answered: int = 0

    def granted(self) -> dict[str, JobGrants]:
        """Return what each job gets."""
        book = self.clients.get("c")
        lots = {} if book is None else {job: self.lots.get(job, 0) for job in book.jobs}
        return {job: JobGrants({"w": lot} if lot else {}, waiting="" if lot else "full") for job, lot in lots.items()}

    def answer(self, said: ClientReport) -> tuple[Grants, Grants]:
        """Return the answer to a report as it is sent, and all that it stands for."""
        if not self.clients.follows(said):
            return UNHEARD, UNHEARD
        self.clients.renew(said, 0.0)
        self.answered += 1
        told, book = self.granted(), self.clients.get("c")
        assert book is not None
        whole = Grants(
            {job: each.slots for job, each in told.items()},
            self.term * NUMBERS_EACH + self.answered,
            waiting={job: each.waiting for job, each in told.items() if each.waiting},
            heard=book.sequence,
        )
        return self.answers.cut(said, whole, told), whole


class Messages(RuleBasedStateMachine):
    """A client, supervisors one after another, and a network that loses, repeats and overtakes messages."""

    @initialize()
    def begin(self) -> None:
        """Nothing was said yet."""
        self.exchange = Exchange()
        self.jobs: dict[str, int] = {}
        self.sequence = 0
        self.said: dict[int, dict[str, JobReport]] = {}
        self.reports: list[ClientReport] = []
        self.granted: dict[int, Grants] = {}
        self.sent: list[tuple[ClientReport, Grants]] = []
        self.grants = Grants({})
        self.supervisor = Supervisor(1, Clients(), Answers(), {})

    @rule(job=NAMES, pieces=st.integers(0, 3))
    def change(self, job: str, pieces: int) -> None:
        """A job comes, changes or ends."""
        self.jobs.pop(job, None)
        if pieces:
            self.jobs[job] = pieces

    @rule(job=NAMES, lot=st.integers(0, 2))
    def decide(self, job: str, lot: int) -> None:
        """A job is to get something else."""
        self.supervisor.lots[job] = lot

    @rule()
    def say(self) -> None:
        """The client reports."""
        self.reports.append(self.next_report())

    def next_report(self) -> ClientReport:
        """Return what the client sends, as it arrives."""
        self.sequence += 1
        jobs = {job: wants(job, pieces) for job, pieces in self.jobs.items()}
        self.said[self.sequence] = jobs
        said: ClientReport = unpacked(
            packed(self.exchange.cut(report(self.sequence, jobs.values(), self.grants.number)))
        )
        return said

    @precondition(lambda self: self.reports)
    @rule(choice=CHOICES)
    def arrive(self, choice: int) -> None:
        """A report arrives, perhaps again, and is answered."""
        self.hear(self.reports[choice % len(self.reports)])

    def hear(self, said: ClientReport) -> tuple[ClientReport, Grants]:
        """Have the supervisor take a report in, and answer it."""
        cut, whole = self.supervisor.answer(said)
        self.granted[whole.number] = whole
        self.sent.append((said, cut))
        return self.sent[-1]

    @precondition(lambda self: self.sent)
    @rule(choice=CHOICES)
    def come_back(self, choice: int) -> None:
        """An answer reaches the client, perhaps again."""
        self.accept(*self.sent[choice % len(self.sent)])

    def accept(self, said: ClientReport, answer: Grants) -> None:
        """Have the client take an answer in."""
        self.grants = self.exchange.completed(said, answer) or self.grants

    @rule()
    def miss(self) -> None:
        """An answer does not come in time."""
        self.exchange.missed()

    @rule()
    def restart(self) -> None:
        """Another supervisor takes over, which knows nothing."""
        self.supervisor = Supervisor(self.supervisor.term + 1, Clients(), Answers(), {})

    @rule()
    def expire(self) -> None:
        """The supervisor takes the client for dead."""
        self.supervisor.clients.forget("c")

    @rule()
    def talk_in_peace(self) -> None:
        """After three reports and answers that arrive, both know the newest of each other."""
        for _ in range(3):
            self.accept(*self.hear(self.next_report()))
        book = self.supervisor.clients.get("c")
        assert book is not None
        assert book.sequence == self.sequence
        assert self.grants.slots == {job: each.slots for job, each in self.supervisor.granted().items()}

    @invariant()
    def the_supervisor_knows_what_was_said(self) -> None:
        """What it knows of a client is what that said in the newest report it has."""
        book = self.supervisor.clients.get("c")
        if book is not None:
            known = {name: JobReport(replace(job.demand, job=name), job.held) for name, job in book.jobs.items()}
            assert known == self.said[book.sequence]

    @invariant()
    def the_client_knows_what_was_granted(self) -> None:
        """What it has of grants is all that was granted with their number."""
        if self.grants.number:
            assert self.grants == self.granted[self.grants.number]


TestMessages = Messages.TestCase


def test_a_report_tells_what_has_changed() -> None:
    """One job's segment ends: the others are not told of again, neither way."""
    exchange, supervisor = Exchange(), Supervisor(1, Clients(), Answers(), {"a": 1, "b": 1})
    first = exchange.cut(report(1, [wants("a", 3), wants("b", 3)]))
    grants = exchange.completed(first, supervisor.answer(first)[0])
    assert grants is not None
    second = exchange.cut(report(2, [wants("a", 2), wants("b", 3)], grants.number))
    supervisor.lots["a"] = 2
    cut, whole = supervisor.answer(second)
    assert isinstance(second, ReportedChanges)
    assert [job.demand.job for job in second.jobs] == ["a"]
    assert cut.slots == {"a": {"w": 2}}
    assert exchange.completed(second, cut) == whole


def test_an_older_release_is_told_everything() -> None:
    """A supervisor that does not say what it heard is sent no changes, and a client that takes none gets none."""
    exchange = Exchange()
    for sequence in (1, 2, 3):
        said = exchange.cut(report(sequence, [wants("a", 3)]))
        assert type(said) is ClientReport
        exchange.completed(said, Grants({"a": {"w": 1}}, sequence))
    supervisor = Supervisor(1, Clients(), Answers(), {})
    for sequence in (1, 2):
        cut, whole = supervisor.answer(report(sequence, [wants("a", 3)], supervisor.answered))
        assert cut == whole


def test_after_a_failure_everything_is_told() -> None:
    """An older release may have taken over, which would not understand what has changed."""
    exchange, supervisor = Exchange(), Supervisor(1, Clients(), Answers(), {})
    first = exchange.cut(report(1, [wants("a", 3)]))
    exchange.completed(first, supervisor.answer(first)[0])
    exchange.missed()
    assert type(exchange.cut(report(2, [wants("a", 3)]))) is ClientReport


def test_what_is_gone_is_forgotten_at_last() -> None:
    """Jobs without end come and go: one who has not heard of many is told everything."""
    changes: Changes[int] = Changes()
    for number in range(1, OVER_KEPT + 3):
        changes.note(number, {f"job-{number}": number})
    assert changes.since(1) is None
    heard = changes.since(2)
    assert heard is not None
    assert len(heard.over) == OVER_KEPT
    assert changes.since(OVER_KEPT + 3) is None
