"""The promises of every store of a queue; each store is compared with one model."""

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from codecfleet.cluster.queue import postgres
from codecfleet.cluster.queue.deciding import FAILURES_MAX, LOSSES_MAX, WAIT_S
from codecfleet.cluster.queue.postgres import PostgresStore
from codecfleet.cluster.queue.sqlite import SqliteStore
from codecfleet.cluster.queue.store import OUTPUT_MAX, JobStore
from codecfleet.cluster.queue.values import DriverOrder, JobClaim, QueuedCommand, QueuedJob, QueueState, RunEnd
from codecfleet.errors import NoSuchJob, QueueFull, QueueUnavailable, Retry, UsageError
from tests.postgres_server import PostgresServer, postgres_server

COMMAND = QueuedCommand(("transcode", "a.mkv", "b\udcff.mp4"), "/films", {"A": "ü"})
LEASE_S = 30.0
IDS = st.sampled_from(["a", "b", "c", "d", "e"])
DRIVERS = st.sampled_from(["one", "two"])


@dataclass
class Bench:
    """An empty store of one kind, and the clock of all stores that the bench opens."""

    open: Callable[[], JobStore]
    set_clock: Callable[[float], object]
    now_s: float = 1000.0

    def advance(self, seconds: float) -> None:
        """Move the clock of the stores."""
        self.now_s += seconds
        self.set_clock(self.now_s)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module."""
    with postgres_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Each kind of store, without jobs of other tests."""
    if request.param == "sqlite":
        path, clock = tmp_path / "queue.sqlite", [1000.0]
        yield Bench(lambda: SqliteStore(path, clock=lambda: clock[0]), lambda now_s: clock.__setitem__(0, now_s))
        return
    import psycopg

    url = request.getfixturevalue("server").url
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("codecfleet_jobs", "codecfleet_output", "codecfleet_facts", "clock"):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute("CREATE TABLE clock (now_s float8)")
        connection.execute("INSERT INTO clock VALUES (1000)")
        yield Bench(
            lambda: PostgresStore(url, now="(SELECT now_s FROM clock)"),
            lambda now_s: connection.execute("UPDATE clock SET now_s = %s", (now_s,)),
        )


@pytest.fixture
def store(bench: Bench) -> Iterator[JobStore]:
    """An empty store."""
    opened = bench.open()
    yield opened
    opened.close()


def submit(
    store: JobStore,
    job_id: str,
    *,
    priority: int = 0,
    due_in_s: float | None = None,
    tenant: str = "t",
    command: QueuedCommand = COMMAND,
    queued_max: int = 99,
) -> QueuedJob:
    """Submit a job."""
    return store.submit(job_id, command, tenant=tenant, priority=priority, due_in_s=due_in_s, queued_max=queued_max)


@dataclass
class Expected:
    """A job in the model."""

    number: int
    tenant: str
    priority: int
    due_s: float
    state: str = "queued"
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    driver: str = ""
    lease_ends_s: float = 0.0
    waits_until_s: float = 0.0
    is_cancelling: bool = False
    exit_code: int | None = None
    text: str = ""

    def may_try(self, driver: str) -> bool:
        """Return whether another driver may try the job at once after its first failure."""
        return (self.exit_code or 0) >= 5 and self.failures == 1 and self.driver != driver


@dataclass
class Model:
    """The promises in their simplest form."""

    now_s: float = 1000.0
    jobs: dict[str, Expected] = field(default_factory=dict)

    def expire(self) -> None:
        """End the leases that ran out."""
        for job in self.jobs.values():
            if job.state == "running" and job.lease_ends_s <= self.now_s:
                job.losses += 1
                parked = "parked" if job.losses >= LOSSES_MAX else "queued"
                job.state = "cancelled" if job.is_cancelling else parked
                job.is_cancelling = False

    def claimable(self, driver: str) -> list[str]:
        """Return the ids in the order in which drivers get the jobs."""
        found = [
            (-job.priority, job.due_s, job.number, name)
            for name, job in self.jobs.items()
            if job.state == "queued" and (job.waits_until_s <= self.now_s or job.may_try(driver))
        ]
        return [name for *_, name in sorted(found)]

    def end(self, job: Expected, end: RunEnd) -> None:
        """Record the end of an attempt."""
        job.exit_code = job.exit_code if end.exit_code is None else end.exit_code
        if end.exit_code == 0:
            job.state = "done"
        elif job.is_cancelling:
            job.state = "cancelled"
        elif end.exit_code is None:
            job.state = "queued"
        else:
            job.waits_until_s = self.now_s + WAIT_S
            job.failures += end.exit_code >= 5
            again = "parked" if job.failures >= FAILURES_MAX else "queued"
            job.state = "failed" if end.exit_code < 5 and end.retry is Retry.NEVER else again
        job.is_cancelling = False


class StoreMachine(RuleBasedStateMachine):
    """After any sequence of calls, a store has the model's jobs, and hands them out in the model's order."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.store = bench.open()
        with self.store.transaction() as at:
            at.rows("DELETE FROM codecfleet_jobs")
            at.rows("DELETE FROM codecfleet_output")
        self.model = Model(bench.now_s)
        self.submitted = 0
        self.claims: list[JobClaim] = []

    def teardown(self) -> None:
        """Close the store."""
        self.store.close()

    @rule(
        name=IDS,
        tenant=st.sampled_from(["t", "u"]),
        priority=st.integers(-1, 1),
        due_in_s=st.sampled_from([None, 5.0, 60.0]),
    )
    def submit(self, name: str, tenant: str, priority: int, due_in_s: float | None) -> None:
        """A new id is a new job, if the tenant has room; a known id changes nothing."""
        model = self.model
        model.expire()
        waiting = sum(job.tenant == tenant and job.state in ("queued", "running") for job in model.jobs.values())
        options: dict[str, Any] = {"tenant": tenant, "priority": priority, "due_in_s": due_in_s, "queued_max": 3}
        if name not in model.jobs and waiting >= 3:
            with pytest.raises(QueueFull):
                submit(self.store, name, **options)
            return
        if name not in model.jobs:
            due_s = math.inf if due_in_s is None else model.now_s + due_in_s
            self.submitted += 1
            model.jobs[name] = Expected(self.submitted, tenant, priority, due_s)
        assert submit(self.store, name, **options).job_id == name

    @rule(driver=DRIVERS, most=st.integers(1, 3))
    def claim(self, driver: str, most: int) -> None:
        """A driver gets the next jobs, in order."""
        self.model.expire()
        wanted = self.model.claimable(driver)[:most]
        for name in wanted:
            job = self.model.jobs[name]
            job.state, job.driver, job.attempt = "running", driver, job.attempt + 1
            job.lease_ends_s = self.model.now_s + LEASE_S
        found = self.store.claim(driver, most, LEASE_S)
        assert [(job.job_id, job.attempt, job.command) for job in found] == [
            (name, self.model.jobs[name].attempt, COMMAND) for name in wanted
        ]
        self.claims += [job.claim for job in found]

    def held(self, claim: JobClaim) -> Expected | None:
        """Return the job of a claim that still holds."""
        self.model.expire()
        job = self.model.jobs[claim.job_id]
        return job if job.state == "running" and job.attempt == claim.attempt else None

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """Only the last claim of a running job is renewed."""
        claims = data.draw(st.lists(st.sampled_from(self.claims), unique=True)) if self.claims else []
        wanted = {}
        for claim in claims:
            job = self.held(claim)
            wanted[claim] = DriverOrder.LOST
            if job is not None:
                job.lease_ends_s = self.model.now_s + LEASE_S
                wanted[claim] = DriverOrder.CANCEL if job.is_cancelling else DriverOrder.KEEP
        assert self.store.renew(claims, LEASE_S) == wanted

    @rule(data=st.data(), code=st.sampled_from([0, 1, 3, 5, 137, None]), retry=st.sampled_from(Retry))
    def end(self, data: st.DataObject, code: int | None, retry: Retry) -> None:
        """An outdated claim ends nothing."""
        if self.claims:
            claim, end = data.draw(st.sampled_from(self.claims)), RunEnd(code, "E", "message", "step", retry)
            job = self.held(claim)
            if job is not None:
                self.model.end(job, end)
            ended = self.store.end(claim, end)
            assert (None if ended is None else ended.state.value) == (None if job is None else job.state)

    @rule(data=st.data(), text=st.text(max_size=5))
    def append(self, data: st.DataObject, text: str) -> None:
        """An outdated claim adds no output."""
        text = text.encode(errors="replace").decode()
        if self.claims:
            claim = data.draw(st.sampled_from(self.claims))
            job = self.held(claim)
            if job is not None:
                job.text += text.replace("\0", "\N{REPLACEMENT CHARACTER}")
            self.store.append(claim, text)

    @rule(name=IDS, priority=st.integers(-1, 1))
    def prioritize(self, name: str, priority: int) -> None:
        """The order changes."""
        if self.is_known(name, lambda: self.store.prioritize(name, priority)):
            self.model.jobs[name].priority = priority

    @rule(name=IDS)
    def cancel(self, name: str) -> None:
        """Cancelling ends a queued job and marks a running one."""
        self.model.expire()
        if self.is_known(name, lambda: self.store.cancel(name)):
            job = self.model.jobs[name]
            job.is_cancelling = job.state == "running"
            job.state = "cancelled" if job.state == "queued" else job.state

    @rule(name=IDS)
    def retry(self, name: str) -> None:
        """A retried job that did not end well counts from the beginning."""
        self.model.expire()
        job = self.model.jobs.get(name)
        if job is not None and job.state in ("queued", "running", "done"):
            with pytest.raises(UsageError):
                self.store.retry(name)
        elif self.is_known(name, lambda: self.store.retry(name)) and job is not None:
            job.state, job.failures, job.losses, job.waits_until_s = "queued", 0, 0, 0.0

    def is_known(self, name: str, call: Callable[[], object]) -> bool:
        """Make a call, which fails if there is no such job."""
        if name in self.model.jobs:
            call()
            return True
        with pytest.raises(NoSuchJob):
            call()
        return False

    @rule(seconds=st.sampled_from([1.0, 29.0, 30.0]))
    def wait(self, seconds: float) -> None:
        """Time passes on the store's clock."""
        self.bench.advance(seconds)
        self.model.now_s = self.bench.now_s

    @invariant()
    def same_jobs(self) -> None:
        """States, counts, order and output are those of the model."""
        self.model.expire()
        found = {
            job.job_id: (job.state.value, job.attempt, job.failures, job.losses, job.priority, job.is_cancelling)
            for job in self.store.jobs()
        }
        assert list(found.items()) == [
            (name, (job.state, job.attempt, job.failures, job.losses, job.priority, job.is_cancelling))
            for name, job in self.model.jobs.items()
        ]
        for name, job in self.model.jobs.items():
            assert self.store.output(name) == (job.text, len(job.text))


class TestJobStore:
    """The contract."""

    def test_any_calls_leave_the_jobs_of_the_model(self, bench: Bench) -> None:
        """States, attempts, order, admission, leases and output are those of the model."""
        some = settings(max_examples=max(10, settings().max_examples // 4), stateful_step_count=30, deadline=None)
        run_state_machine_as_test(lambda: StoreMachine(bench), settings=some)

    def test_claimers_at_one_time_never_get_the_same_job(self, bench: Bench, store: JobStore) -> None:
        """Each of sixty jobs is given to one of six drivers as soon as it is submitted, and none is left."""
        ready = threading.Barrier(7)

        def drive(name: str) -> list[str]:
            own, got = bench.open(), []
            ready.wait()
            while len(store.jobs([QueueState.QUEUED])) or len(store.jobs()) < 60:
                got += [job.job_id for job in own.claim(name, 2, LEASE_S)]
            own.close()
            return got

        with ThreadPoolExecutor(6) as threads:
            runs = [threads.submit(drive, f"driver {number}") for number in range(6)]
            ready.wait()
            for number in range(60):
                submit(store, str(number))
            found = [name for run in runs for name in run.result()]
        assert sorted(found, key=int) == [str(number) for number in range(60)]

    def test_one_of_many_equal_submissions_counts(self, bench: Bench, store: JobStore) -> None:
        """Equal submissions return the same job; another command under its id is refused."""

        def again(_: int) -> int:
            own = bench.open()
            number = submit(own, "same").number
            own.close()
            return number

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(again, range(12)))) == 1
        assert [job.job_id for job in store.jobs()] == ["same"]
        with pytest.raises(UsageError, match="another command"):
            submit(store, "same", command=QueuedCommand(("verify",), "/"))

    def test_the_span_that_submits_a_command_is_not_part_of_it(self, store: JobStore) -> None:
        """A script that is traced may submit the same job twice, under different spans."""
        for span in ("b7ad6b7169203331", "c7ad6b7169203331"):
            trace = {"TRACEPARENT": f"00-0af7651916cd43dd8448eb211c80319c-{span}-01"}
            submit(store, "same", command=QueuedCommand(("verify",), "/", trace))
        assert len(store.jobs()) == 1

    def test_drivers_do_not_take_turns_on_a_job_that_waits(self, store: JobStore) -> None:
        """Each driver tries a failed job once, and then all leave it alone; a busy output is left alone at once."""
        for name, end, turns in (
            ("broken", RunEnd(5, "WorkerLost", "its worker died", ""), 2),
            ("busy", RunEnd(4, "OutputInUse", "another job writes it", "", Retry.ANYWHERE), 1),
        ):
            submit(store, name)
            tried = 0
            for driver in ("one", "two") * 3:
                for job in store.claim(driver, 1, LEASE_S):
                    store.end(job.claim, end)
                    tried += 1
            assert tried == turns

    def test_a_claim_does_not_hold_in_a_queue_that_replaced_its_own(self, bench: Bench, store: JobStore) -> None:
        """A claim does not hold in a new queue, even if a job there has the same id and the same attempt."""
        submit(store, "a")
        (old,) = store.claim("one", 1, LEASE_S)
        with store.transaction() as at:
            at.rows("DELETE FROM codecfleet_jobs")
        bench.advance(1)
        submit(store, "a", command=QueuedCommand(("verify",), "/"))
        (new,) = store.claim("one", 1, LEASE_S)
        assert (old.claim == new.claim, old.attempt) == (False, new.attempt)
        assert store.renew([old.claim, new.claim], LEASE_S) == {
            old.claim: DriverOrder.LOST,
            new.claim: DriverOrder.KEEP,
        }
        store.append(old.claim, "old")
        assert (store.end(old.claim, RunEnd(0)), store.output("a").text) == (None, "")

    def test_old_output_is_dropped(self, store: JobStore) -> None:
        """The end of the output is kept, and positions stay correct."""
        submit(store, "a")
        (job,) = store.claim("one", 1, LEASE_S)
        for number in range(4):
            store.append(job.claim, f"{number}" * (OUTPUT_MAX // 2))
        text, ends = store.output("a")
        assert (text[0], text[-1], ends) == ("2", "3", 2 * OUTPUT_MAX)
        store.append(job.claim, "end")
        assert store.output("a", ends) == ("end", ends + 3)

    def test_the_end_of_the_output_is_kept_after_a_burst(self, store: JobStore) -> None:
        """The last characters are kept, even of a part that is as long as everything that is kept."""
        submit(store, "a")
        (job,) = store.claim("one", 1, LEASE_S)
        store.append(job.claim, "x" * OUTPUT_MAX)
        store.append(job.claim, "end")
        assert store.output("a") == ("x" * (OUTPUT_MAX - 3) + "end", OUTPUT_MAX + 3)

    def test_names_that_are_not_utf_8_are_escaped(self, store: JobStore) -> None:
        """Names that are not UTF-8 are escaped in errors and tenants; a job's id is always UTF-8."""
        submit(store, "a", tenant="t\udcff\0")
        (job,) = store.claim("one", 1, LEASE_S)
        store.end(job.claim, RunEnd(3, "InputNotFound", "there is no b\udcff.mkv", ""))
        found = store.job("a")
        assert (found.tenant, found.message) == ("t\\udcff\N{REPLACEMENT CHARACTER}", "there is no b\\udcff.mkv")
        with pytest.raises(NoSuchJob):
            store.job("\udcff")

    def test_a_job_says_what_happened(self, bench: Bench, store: JobStore) -> None:
        """Times are those of the store, and the error is that of the last attempt."""
        submit(store, "a", due_in_s=60, priority=3)
        bench.advance(5)
        (job,) = store.claim("one", 1, LEASE_S)
        bench.advance(5)
        store.end(job.claim, RunEnd(3, "InputNotFound", "there is no a.mkv", "Check it."))
        found = store.job("a").to_json()
        assert {**found, "command": [], "folder": ""} == {
            "job": "a",
            "state": "failed",
            "command": [],
            "folder": "",
            "tenant": "t",
            "priority": 3,
            "due_utc_s": 1060,
            "attempts": 1,
            "failures": 0,
            "losses": 0,
            "driver": "one",
            "is_cancelling": False,
            "submitted_utc_s": 1000,
            "started_utc_s": 1005,
            "ended_utc_s": 1010,
            "exit_code": 3,
            "error": "InputNotFound",
            "message": "there is no a.mkv",
            "next_step": "Check it.",
        }
        assert store.job("a").command == COMMAND

    def test_jobs_outlive_their_programs(self, bench: Bench, store: JobStore) -> None:
        """Another connection sees what an earlier one has written."""
        submit(store, "a")
        store.close()
        again = bench.open()
        assert [job.job_id for job in again.jobs()] == ["a"]
        again.close()


def test_a_server_that_was_away_is_used_again(server: PostgresServer) -> None:
    """While the server is away, one line says so; when it is back, the jobs are still there."""
    store = PostgresStore(server.url)
    submit(store, "kept")
    server.stop()
    for _ in range(2):
        with pytest.raises(QueueUnavailable, match="the queue at postgresql://"):
            store.job("kept")
    server.start()
    assert store.job("kept").state is QueueState.QUEUED
    store.close()


def test_a_database_that_came_back_empty_has_no_jobs(server: PostgresServer) -> None:
    """If a database came back empty, the driver learns that it has lost its jobs."""
    import psycopg

    store = PostgresStore(server.url)
    submit(store, "gone")
    claims = [job.claim for job in store.claim("one", 9, LEASE_S)]
    with psycopg.connect(server.url) as connection:
        connection.execute("DROP TABLE codecfleet_jobs, codecfleet_output, codecfleet_facts")
    with pytest.raises(QueueUnavailable):
        store.renew(claims, LEASE_S)
    assert set(store.renew(claims, LEASE_S).values()) == {DriverOrder.LOST}
    store.close()


def test_a_server_that_answers_nothing_is_given_up(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server delays a program for at most the limit, and is used again later."""
    monkeypatch.setattr(postgres, "SILENT_S", 0.5)
    store = PostgresStore(server.url)
    store.jobs()
    assert store._connection is not None
    process = store._connection.info.backend_pid
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(QueueUnavailable):
            store.jobs()
    finally:
        os.kill(process, signal.SIGCONT)
    store.jobs()
    store.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_hold_every_character_is_refused(server: PostgresServer, encoding: str) -> None:
    """A database with an unsuitable encoding is refused before it has a job."""
    import psycopg

    name = f"d{encoding.lower()}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        create = f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(create)
    store = PostgresStore(server.url.replace("/postgres?", f"/{name}?"))
    with pytest.raises(UsageError, match=f"has the encoding {encoding}"):
        store.jobs()
