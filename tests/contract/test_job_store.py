"""The promises of every store of a queue; each store is compared with one model."""

import math
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from codecfleet.cluster.queue import postgres
from codecfleet.cluster.queue.deciding import FAILURES_MAX, LOSSES_MAX, WAIT_S
from codecfleet.cluster.queue.postgres import PostgresStore
from codecfleet.cluster.queue.sqlite import SqliteStore
from codecfleet.cluster.queue.store import OUTPUT_MAX, JobStore
from codecfleet.cluster.queue.tenants import Prices, QueuePolicy, Tenant, TenantQuota, TokenState
from codecfleet.cluster.queue.values import (
    DriverOrder,
    JobClaim,
    QueuedCommand,
    QueuedJob,
    QueueState,
    RunEnd,
    TenantUse,
    Usage,
    UsageRow,
)
from codecfleet.errors import NoSuchJob, QueueFull, QueueUnavailable, Retry, TenantRefused, UsageError
from tests.integration.test_killed_programs import gone
from tests.postgres_server import PostgresServer, postgres_server

COMMAND = QueuedCommand(("transcode", "a.mkv", "b\udcff.mp4"), "/films", {"A": "ü"})
LEASE_S = 30.0
PARTS = ("jobs", "output", "runs", "tokens", "facts")
TABLES = tuple(f"codecfleet_{part}" for part in PARTS)
IDS = st.sampled_from(["a", "b", "c", "d", "e"])
DRIVERS = st.sampled_from(["one", "two"])
POLICIES = (
    QueuePolicy(window_s=45.0),
    QueuePolicy(tenants={"t": TenantQuota(share=4.0, running_max=1, priority_max=0)}),
)


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
        for name in (*TABLES, "clock"):
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
    queued_max: int | None = None,
    token: str | None = None,
    user: str = "",
) -> QueuedJob:
    """Submit a job."""
    options: dict[str, Any] = {"priority": priority, "due_in_s": due_in_s, "queued_max": queued_max, "token": token}
    return store.submit(job_id, command, tenant=tenant, user=user, **options)


def claims(store: JobStore, most: int) -> str:
    """Claim jobs, and return their ids."""
    return " ".join(job.job_id for job in store.claim("one", most, LEASE_S))


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
    began_s: float = 0.0
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
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    jobs: dict[str, Expected] = field(default_factory=dict)
    runs: list[tuple[str, float, float]] = field(default_factory=list)  #: tenant, beginning and end

    def expire(self) -> None:
        """End the leases that ran out."""
        for job in self.jobs.values():
            if job.state == "running" and job.lease_ends_s <= self.now_s:
                self.runs.append((job.tenant, job.began_s, job.lease_ends_s))
                job.losses += 1
                parked = "parked" if job.losses >= LOSSES_MAX else "queued"
                job.state = "cancelled" if job.is_cancelling else parked
                job.is_cancelling = False

    def used(self, tenant: str) -> float:
        """Return what a tenant has used of its share."""
        begins_s = self.now_s - self.policy.window_s
        running = [(job.tenant, job.began_s, self.now_s) for job in self.jobs.values() if job.state == "running"]
        past = [run for run in self.runs if run[2] > begins_s]
        spans = [end - max(began, begins_s) + 1 for name, began, end in past + running if name == tenant]
        return sum(spans) / self.policy.quota(tenant).share

    def claim(self, driver: str, most: int) -> list[str]:
        """Give a driver the next jobs, and return their ids."""
        claimed: list[str] = []
        while len(claimed) < most:
            running = [job.tenant for job in self.jobs.values() if job.state == "running"]
            found = [
                (-job.priority, self.used(job.tenant), job.due_s, job.number, name)
                for name, job in self.jobs.items()
                if job.state == "queued" and (job.waits_until_s <= self.now_s or job.may_try(driver))
                if running.count(job.tenant) < self.policy.quota(job.tenant).running_max
            ]
            if not found:
                break
            name = min(found)[-1]
            job = self.jobs[name]
            job.state, job.driver, job.attempt, job.began_s = "running", driver, job.attempt + 1, self.now_s
            job.lease_ends_s = self.now_s + LEASE_S
            claimed.append(name)
        return claimed

    def end(self, job: Expected, end: RunEnd) -> None:
        """Record the end of an attempt."""
        self.runs.append((job.tenant, job.began_s, self.now_s))
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
            for name in TABLES[:-1]:
                at.rows(f"DELETE FROM {name}")  # noqa: S608
        self.store.set_policy(QueuePolicy())
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
        """A new id is a new job, if the tenant has room; the tenant's own id changes nothing."""
        model = self.model
        model.expire()
        waiting = sum(job.tenant == tenant and job.state in ("queued", "running") for job in model.jobs.values())
        options: dict[str, Any] = {"tenant": tenant, "priority": priority, "due_in_s": due_in_s, "queued_max": 3}
        if name in model.jobs and model.jobs[name].tenant != tenant:
            with pytest.raises(UsageError, match="of another tenant"):
                submit(self.store, name, **options)
            return
        if name not in model.jobs and waiting >= 3:
            with pytest.raises(QueueFull):
                submit(self.store, name, **options)
            return
        if name not in model.jobs and priority > model.policy.quota(tenant).priority_max:
            with pytest.raises(TenantRefused):
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
        wanted = self.model.claim(driver, most)
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

    @rule(policy=st.sampled_from(POLICIES))
    def set_policy(self, policy: QueuePolicy) -> None:
        """A new policy counts at once, also for jobs that are queued."""
        self.store.set_policy(policy)
        self.model.policy = policy

    @rule(name=IDS, priority=st.integers(-1, 1))
    def prioritize(self, name: str, priority: int) -> None:
        """The order changes, unless the priority is above the tenant's limit."""
        job = self.model.jobs.get(name)
        if job is not None and priority > self.model.policy.quota(job.tenant).priority_max:
            with pytest.raises(TenantRefused):
                self.store.prioritize(name, priority)
        elif self.is_known(name, lambda: self.store.prioritize(name, priority)):
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
        states = Counter(job.state for job in self.model.jobs.values())
        assert self.store.figures().jobs == {state: states[state.value] for state in QueueState}


class TestJobStore:
    """The contract."""

    def test_any_calls_leave_the_jobs_of_the_model(self, bench: Bench) -> None:
        """States, attempts, order, admission, leases and output are those of the model."""
        some = settings(max_examples=settings().max_examples // 4, stateful_step_count=30, deadline=None)
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
        used = Usage(3600.0, 1800.0, 1 << 40)
        store.end(job.claim, RunEnd(3, "InputNotFound", "there is no a.mkv", "Check it.", used=used))
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
            "core_s": 3600,
            "gpu_s": 1800,
            "written_bytes": 1 << 40,
            "cost": 0,
        }
        assert store.job("a").command == COMMAND

    def test_a_tenant_that_floods_the_queue_starves_nobody(self, bench: Bench, store: JobStore) -> None:
        """The other's job is next; after the flood has used the window, its use is forgotten."""
        for number in range(9):
            submit(store, f"t{number}", tenant="t")
        submit(store, "u", tenant="u")
        assert claims(store, 2) == "t0 u"
        bench.advance(5)
        assert claims(store, 1) == "t1"
        for name in ("v0", "v1", "v2"):
            submit(store, name, tenant="v")
        assert claims(store, 3) == "v0 v1 v2"  # 5 s each of t and u, and none of v
        store.set_policy(QueuePolicy(window_s=1.0))
        bench.advance(1)
        submit(store, "v3", tenant="v")
        submit(store, "w", tenant="w")
        assert claims(store, 1) == "w"
        store.set_policy(QueuePolicy(window_s=1.0, tenants={"v": TenantQuota(share=99)}))
        assert claims(store, 1) == "v3"

    def test_limits_of_a_policy_hold(self, store: JobStore) -> None:
        """For queued and running jobs, for a retried job, and for priorities; the next policy counts at once."""
        quota = TenantQuota(queued_max=2, running_max=1, priority_max=5)
        store.set_policy(QueuePolicy(default=quota))
        submit(store, "a", priority=5)
        store.cancel("a")
        for name in ("b", "c"):
            submit(store, name)
        for call in (lambda: submit(store, "d"), lambda: store.retry("a")):
            with pytest.raises(QueueFull, match="t has 2 jobs in it, 2 at most"):
                call()
        for call in (lambda: submit(store, "e", tenant="u", priority=6), lambda: store.prioritize("b", 6)):
            with pytest.raises(TenantRefused, match="a priority of 5 at most, not 6"):
                call()
        assert (claims(store, 9), claims(store, 9)) == ("b", "")
        store.set_policy(QueuePolicy(default=quota, tenants={"t": TenantQuota(running_max=2, queued_max=3)}))
        assert claims(store, 9) == "c"
        assert store.retry("a").state is QueueState.QUEUED

    @pytest.mark.parametrize(
        ("limit", "most"),
        [
            ("core_hours_max", Usage(core_s=3600)),
            ("gpu_hours_max", Usage(gpu_s=3600)),
            ("written_gib_max", Usage(written_bytes=1 << 30)),
        ],
    )
    def test_a_tenant_beyond_its_limit_starts_no_job(
        self, bench: Bench, store: JobStore, limit: str, most: Usage
    ) -> None:
        """Its next job starts when the use has left the window; other tenants' jobs start at once."""
        store.set_policy(QueuePolicy(window_s=60.0, tenants={"t": TenantQuota.model_validate({limit: 1})}))
        for name in ("a", "b", "c"):
            submit(store, name)
        for name, exceeded in (("a", ""), ("b", limit)):
            (claimed,) = store.claim("d", 1, LEASE_S)
            assert claimed.job_id == name
            bench.advance(1)
            store.end(claimed.claim, RunEnd(0, used=most))
            (tenant,) = store.tenants()
            assert tenant.quota.exceeded(tenant.use.used) == exceeded
        submit(store, "other", tenant="u")
        assert claims(store, 9) == "other"
        bench.advance(60)
        assert claims(store, 1) == "c"

    def test_a_token_names_its_tenant(self, bench: Bench, store: JobStore) -> None:
        """From the first token on, jobs need one; the newest of a tenant counts, and the store keeps only hashes."""
        assert submit(store, "open", token="cfq-00").tenant == "t"  # noqa: S106 - a queue without tokens ignores it
        assert submit(store, "own", tenant="", token="cfq-00", user="me").tenant == "me"  # noqa: S106
        first, other = store.make_token("films"), store.make_token("other")
        assert submit(store, "a", tenant="", token=first).tenant == "films"
        assert submit(store, "b", tenant="other", token=f" {other}\n").tenant == "other"
        newer = store.make_token("films")
        assert submit(store, "c", tenant="films", token=newer).tenant == "films"
        store.revoke_token("other")
        refusals = [
            (None, "t", "only from tenants with a token"),
            ("cfq-00", "", "does not know this token"),
            (first, "", "the token of films was revoked"),
            (other, "", "the token of other was revoked"),
            (newer, "t", "belongs to films, not to t"),
        ]
        for token, tenant, words in refusals:
            with pytest.raises(TenantRefused, match=words):
                submit(store, "d", tenant=tenant, token=token)
        with pytest.raises(UsageError, match="no valid token of other"):
            store.revoke_token("other")
        again = bench.open()
        with again.transaction() as at:
            kept = str([at.rows(f"SELECT * FROM {name}") for name in TABLES])  # noqa: S608
        assert not any(token.removeprefix("cfq-") in kept for token in (first, other, newer))
        again.close()
        assert [(each.name, each.token) for each in store.tenants()] == [
            ("films", TokenState.VALID),
            ("me", TokenState.NONE),
            ("other", TokenState.REVOKED),
            ("t", TokenState.NONE),
        ]

    def test_an_id_belongs_to_its_tenant(self, store: JobStore) -> None:
        """Another tenant gets no job of this one, and the tenant gets it again with a new token."""
        first, other = store.make_token("films"), store.make_token("other")
        job = submit(store, "a", tenant="", token=first)
        with pytest.raises(UsageError, match="job a with another command or of another tenant"):
            submit(store, "a", tenant="", token=other)
        assert submit(store, "a", tenant="", token=store.make_token("films")) == job

    def test_a_queue_whose_tokens_are_all_revoked_stays_closed(self, store: JobStore) -> None:
        """It opens for the next token alone."""
        store.make_token("films")
        store.revoke_token("films")
        with pytest.raises(TenantRefused, match="only from tenants with a token"):
            submit(store, "a")
        assert submit(store, "a", tenant="", token=store.make_token("films")).tenant == "films"

    def test_a_policy_of_another_version_stops_no_job(self, bench: Bench, store: JobStore) -> None:
        """Leases end, and attempts at no price; new jobs and claims wait for a policy, which can be set."""
        for name in ("a", "b"):
            submit(store, name)
        lost, ended = store.claim("one", 2, LEASE_S)
        store.set_policy(QueuePolicy())
        with store.transaction() as at:
            at.rows("UPDATE codecfleet_facts SET value = '{\"newer\": 1}' WHERE name = 'policy'")
        bench.advance(1)
        assert store.end(ended.claim, RunEnd(0, used=Usage(5.0, 0.0, 1))) == store.job(ended.job_id)
        bench.advance(LEASE_S)
        assert [(job.state, job.core_s, job.cost) for job in (store.job(ended.job_id), store.job(lost.job_id))] == [
            (QueueState.DONE, 5.0, 0.0),
            (QueueState.QUEUED, 0.0, 0.0),
        ]
        for call in (lambda: submit(store, "c"), lambda: store.claim("one", 1, LEASE_S), store.tenants):
            with pytest.raises(QueueUnavailable, match="not one of this version"):
                call()
        store.set_policy(QueuePolicy())
        assert claims(store, 9) == lost.job_id

    def test_jobs_of_a_revoked_token_go_on(self, store: JobStore) -> None:
        """Queued ones are claimed, running ones renewed, and all can be cancelled and retried."""
        token = store.make_token("t")
        for name in ("a", "b", "c"):
            submit(store, name, token=token)
        (running,) = store.claim("one", 1, LEASE_S)
        store.revoke_token("t")
        assert store.renew([running.claim], LEASE_S) == {running.claim: DriverOrder.KEEP}
        assert claims(store, 1) == "b"
        assert store.cancel("c").state is QueueState.CANCELLED
        assert store.retry("c").state is QueueState.QUEUED

    def test_what_was_used_is_kept_with_its_price(self, bench: Bench, store: JobStore) -> None:
        """A job's attempts add up, at the prices of their ends; a lost attempt took the driver's time alone."""
        store.set_policy(QueuePolicy(prices=Prices(core_hour=1.0, gpu_hour=10.0, written_gib=0.5)))
        submit(store, "a")
        submit(store, "b", tenant="u")
        (lost,) = store.claim("one", 1, LEASE_S)
        bench.advance(LEASE_S + 5)
        (again, other) = store.claim("one", 2, LEASE_S)
        if again.job_id != lost.job_id:
            again, other = other, again
        bench.advance(10)
        store.end(again.claim, RunEnd(0, used=Usage(1800.0, 360.0, 2 << 30)))
        store.set_policy(QueuePolicy())
        store.end(other.claim, RunEnd(3, used=Usage(7.0, 0.0, 5)))
        found = store.job("a")
        assert (found.core_s, found.gpu_s, found.written_bytes, found.cost) == (1800.0, 360.0, 2 << 30, 2.5)
        assert store.usage() == [
            UsageRow("t", "", 2, 40.0, 1800.0, 360.0, 2 << 30, 2.5),
            UsageRow("u", "", 1, 10.0, 7.0, 0.0, 5, 0.0),
        ]
        assert [row.job_id for row in store.usage(by_job=True)] == ["a", "b"]
        assert store.usage(15.0)[0].attempts == 1
        bench.advance(15)
        assert store.usage(15.0) == []

    def test_the_oldest_queued_job_is_known(self, bench: Bench, store: JobStore) -> None:
        """Its time counts from its submission, or from the beginning of its last attempt."""
        assert store.figures().oldest_s == 0
        submit(store, "a")
        bench.advance(7)
        submit(store, "b")
        assert store.figures().oldest_s == 7
        (first,) = store.claim("one", 1, LEASE_S)
        bench.advance(3)
        assert (first.job_id, store.figures().oldest_s) == ("a", 3)
        store.end(first.claim, RunEnd(None))
        assert store.figures().oldest_s == 3
        store.claim("one", 2, LEASE_S)
        assert store.figures().oldest_s == 0

    def test_tenants_are_listed_with_their_limits_and_use(self, store: JobStore) -> None:
        """Those of the policy, of jobs and of tokens."""
        quota = TenantQuota(share=2.0)
        store.set_policy(QueuePolicy(tenants={"planned": quota}))
        submit(store, "a")
        submit(store, "b")
        store.claim("one", 1, LEASE_S)
        assert store.tenants() == [
            Tenant("planned", quota, TenantUse(), 0, TokenState.NONE),
            Tenant("t", TenantQuota(), TenantUse(1, 1.0), 1, TokenState.NONE),
        ]

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


@pytest.mark.slow
def test_a_server_ends_with_a_killed_test(server: PostgresServer) -> None:
    """The server ends, and its folder is removed."""
    assert server.folder.exists()  # PostgreSQL is installed
    program = (
        "from tests.postgres_server import postgres_server\n"
        "with postgres_server() as server:\n"
        "    print(server.processes()[0].pid, server.folder, flush=True)\n"
        "    input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as test:
        assert test.stdout is not None
        process, folder = test.stdout.readline().split()
        found = [psutil.Process(int(process)), *psutil.Process(test.pid).children()]
        test.kill()
    assert gone(found)
    assert not Path(folder).exists()


def test_a_database_that_came_back_empty_has_no_jobs(server: PostgresServer) -> None:
    """If a database came back empty, the driver learns that it has lost its jobs."""
    import psycopg

    store = PostgresStore(server.url)
    submit(store, "gone")
    claims = [job.claim for job in store.claim("one", 9, LEASE_S)]
    with psycopg.connect(server.url) as connection:
        connection.execute(f"DROP TABLE {', '.join(TABLES)}")
    with pytest.raises(QueueUnavailable):
        store.renew(claims, LEASE_S)
    assert set(store.renew(claims, LEASE_S).values()) == {DriverOrder.LOST}
    store.close()


def test_a_database_of_another_version_is_left_alone(server: PostgresServer) -> None:
    """A queue of an earlier schema is refused in one line, and gets no tables."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")
        connection.execute("CREATE TABLE codecfleet_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        connection.execute("INSERT INTO codecfleet_facts VALUES ('schema', '1')")
        store = PostgresStore(server.url)
        with pytest.raises(UsageError, match="has a queue of another version") as caught:
            store.jobs()
        store.close()
        tables = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'codecfleet%'"
        assert connection.execute(tables).fetchone() == (1,)
        connection.execute("DROP TABLE codecfleet_facts")
    assert "must be submitted again" in caught.value.next_step


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
