"""A driver on a real store, whose jobs follow a script."""

import asyncio
import errno
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codecfleet.actors.task_owner import TaskOwner
from codecfleet.cluster.queue.background import drive, driver_lock, hold_driver_lock, keep_driving
from codecfleet.cluster.queue.deciding import WAIT_S
from codecfleet.cluster.queue.driver import Driver, Obstacle
from codecfleet.cluster.queue.guard import CLAIM, HOLD, clock
from codecfleet.cluster.queue.queue import Queue
from codecfleet.cluster.queue.sqlite import SqliteStore
from codecfleet.cluster.queue.store import Transaction
from codecfleet.cluster.queue.values import QueuedCommand, QueuedJob, QueueState, RunEnd, Usage
from codecfleet.errors import QueueUnavailable, Retry, StorageFailed, UsageError

LEASE_S = 3.0
ENDS: dict[str, RunEnd] = {
    "done": RunEnd(0, record="/films/.a.codecfleet"),
    "away": RunEnd(0, record="s3://films/.b.codecfleet"),
    "locked": RunEnd(0, record="/locked/.c.codecfleet"),
    "missing": RunEnd(3, "InputNotFound", "there is no a.mkv", "Check it."),
    "broken": RunEnd(5, "WorkerLost", "its worker died", "Try again."),
    "homeless": RunEnd(5, "FleetUnavailable", "no Ray answers at head:6379", "Check the address."),
    "busy": RunEnd(4, "OutputInUse", "another job writes b.mp4", "Wait.", Retry.ANYWHERE),
}


@dataclass
class ScriptedRun:
    """A command that ends as its name says, or on request."""

    command: QueuedCommand
    deadlines: list[float]
    told: asyncio.Future[RunEnd] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    printed: str = "hello\n"

    def extend(self, ends_s: float) -> None:
        """Note the deadline."""
        self.deadlines.append(ends_s)

    def stop(self) -> None:
        """End as if by SIGTERM."""
        self.finish(RunEnd(143))

    def kill(self) -> None:
        """End as if by SIGKILL."""
        self.finish(RunEnd(137))

    def take_output(self) -> str:
        """Return the output once."""
        printed, self.printed = self.printed, ""
        return printed

    async def end(self) -> RunEnd:
        """End as the name of the command says, or wait."""
        name = self.command.arguments[0]
        return ENDS[name] if name in ENDS else await self.told

    def finish(self, end: RunEnd) -> None:
        """End it."""
        if not self.told.done():
            self.told.set_result(end)


class FrailStore(SqliteStore):
    """A store that a test can make unreachable."""

    is_away = False

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Fail while the store is unreachable."""
        if self.is_away:
            raise QueueUnavailable("the queue is away", "Wait.")
        with super().transaction() as at:
            yield at


@dataclass
class Bench:
    """A driver's surroundings."""

    store: FrailStore
    now: list[float]
    runs: list[ScriptedRun] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    async def start(self, command: QueuedCommand, ends_s: float) -> ScriptedRun:
        """Start a command that follows the script."""
        self.runs.append(ScriptedRun(command, [ends_s]))
        return self.runs[-1]

    def remove(self, record: str) -> None:
        """Remove a record; the one in a store that is away stays, and so does the one that raises any other error."""
        if record.startswith("s3:"):
            raise StorageFailed("s3 does not answer", "Wait.")
        if record.startswith("/locked"):
            raise PermissionError(errno.EACCES, "no", record)
        self.removed.append(record)

    def submit(self, *names: str) -> None:
        """Submit a job for each name."""
        for name in names:
            command = QueuedCommand((name,), "/")
            self.store.submit(name, command, tenant="t", priority=0, due_in_s=None, queued_max=9)

    def driver(
        self,
        name: str = "one",
        at_once: int = 2,
        idle_s: float | None = None,
        look: Callable[[], Obstacle] = Obstacle,
    ) -> Driver:
        """Return a driver, which looks each time whether it may claim."""
        return Driver(
            self.store,
            self.remove,
            name=name,
            at_once=at_once,
            lease_s=LEASE_S,
            idle_s=idle_s,
            say=self.lines.append,
            start=self.start,
            look=look,
            look_s=0.02,
        )

    def states(self) -> dict[str, QueueState]:
        """Return the state of each job."""
        return {job.job_id: job.state for job in self.store.jobs()}

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - a store has no events
                await asyncio.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An empty queue, whose clock only the test moves."""
    now = [1000.0]
    store = FrailStore(tmp_path / "queue.sqlite", clock=lambda: now[0])
    yield Bench(store, now)
    store.close()


async def test_a_held_driver_claims_nothing_until_it_may(bench: Bench) -> None:
    """Its running jobs continue, and it does not count as idle."""
    bench.submit("a", "done")
    driver = bench.driver(at_once=1, idle_s=0.1)
    async with TaskOwner() as owner:
        running = owner.start(drive(driver), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        signal.raise_signal(HOLD)
        bench.runs[0].finish(RunEnd(0))
        await bench.until(lambda: bench.states()["a"] is QueueState.DONE)
        await asyncio.sleep(0.3)
        assert bench.states()["done"] is QueueState.QUEUED
        signal.raise_signal(CLAIM)
        await running
    assert bench.states()["done"] is QueueState.DONE


async def test_jobs_end_as_their_commands_do(bench: Bench) -> None:
    """A job that may succeed elsewhere is queued again, and first left to other drivers; all other jobs are over."""
    bench.submit(*ENDS)
    await bench.driver(idle_s=0.1).run()
    assert bench.states() == {
        "done": QueueState.DONE,
        "away": QueueState.DONE,
        "locked": QueueState.DONE,
        "missing": QueueState.FAILED,
        "broken": QueueState.QUEUED,
        "homeless": QueueState.QUEUED,
        "busy": QueueState.QUEUED,
    }
    broken, busy = bench.store.job("broken"), bench.store.job("busy")
    assert (broken.failures, busy.failures, broken.message) == (1, 0, "its worker died")
    assert bench.store.output("done").text == "codecfleet: attempt 1 on one\nhello\n"
    assert "job missing: failed: there is no a.mkv" in bench.lines
    assert bench.removed == ["/films/.a.codecfleet"]
    assert "job away: its record s3://films/.b.codecfleet stays: s3 does not answer. Wait." in bench.lines
    assert any("its record /locked/.c.codecfleet stays" in line for line in bench.lines)


async def test_a_job_that_fails_on_every_driver_is_parked(bench: Bench) -> None:
    """The others run."""
    bench.submit("broken", "done")
    for name in ("one", "two", "three"):
        bench.now[0] += WAIT_S if name == "three" else 0.0
        await bench.driver(name, idle_s=0.1).run()
    assert bench.states() == {"broken": QueueState.PARKED, "done": QueueState.DONE}
    assert bench.store.retry("broken").failures == 0


async def test_a_driver_runs_no_more_jobs_than_its_budget(bench: Bench) -> None:
    """A driver at its limit starts the next job only when one has ended."""
    bench.submit("a", "b", "c")
    driver = bench.driver()
    async with TaskOwner() as owner:
        running = owner.start(driver.run(), "driver")
        await bench.until(lambda: len(bench.runs) == 2)
        await asyncio.sleep(0.6)
        assert len(bench.runs) == 2
        bench.runs[0].finish(RunEnd(0))
        await bench.until(lambda: len(bench.runs) == 3)
        driver.stop()
        await running
    assert list(bench.states().values()) == [QueueState.DONE, QueueState.QUEUED, QueueState.QUEUED]
    assert [job.failures + job.losses for job in bench.store.jobs()] == [0, 0, 0]


async def test_a_driver_short_of_memory_claims_nothing_until_it_has_some(bench: Bench) -> None:
    """Its running job goes on to its end; each change is said once, whatever the figures."""
    bench.submit("a", "b")
    figures = iter(range(9999))
    is_short = False
    async with TaskOwner() as owner:
        driver = bench.driver(
            at_once=1, look=lambda: Obstacle(f"{next(figures)} GB of memory is free" if is_short else "")
        )
        owner.start(driver.run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        is_short = True
        await bench.until(lambda: any("claims no job" in line for line in bench.lines))
        bench.runs[0].finish(RunEnd(0))
        await bench.until(lambda: bench.states()["a"] is QueueState.DONE and next(figures) > 2)
        is_short = False
        await bench.until(lambda: len(bench.runs) == 2)
    said = [line.split(",")[0] for line in bench.lines]
    assert said == [
        "job a begins",
        "claims no job: 0 GB of memory is free",
        "job a: done",
        "claims jobs again",
        "job b begins",
    ]


async def test_a_job_that_the_cluster_fails_is_handed_back_while_the_cluster_is_away(bench: Bench) -> None:
    """The job's failure counts only if the cluster answers: then the job, or its command, is wrong."""
    bench.submit("homeless")

    def look() -> Obstacle:
        is_away = len(bench.runs) == 1 and "job homeless: queued" not in bench.lines
        return Obstacle("no Ray answers at head:6379", fails_jobs=True) if is_away else Obstacle()

    await bench.driver(idle_s=1.0, look=look).run()
    job = bench.store.job("homeless")
    assert (job.state, job.attempt, job.failures) == (QueueState.QUEUED, 2, 1)


async def test_a_job_that_fails_during_a_shortage_has_failed(bench: Bench) -> None:
    """A lack of memory does not excuse it; and the driver is not idle while it may not claim."""
    bench.submit("homeless")
    looks = iter(range(9999))
    async with TaskOwner() as owner:
        driver = bench.driver(idle_s=0.0, look=lambda: Obstacle("memory is short" if next(looks) > 0 else ""))
        owner.start(driver.run(), "driver")
        await bench.until(lambda: "job homeless: queued" in "".join(bench.lines))
        looked = next(looks)
        await bench.until(lambda: next(looks) > looked + 5)
        assert bench.store.job("homeless").failures == 1
        driver.stop()


async def test_an_attempt_that_is_handed_back_is_charged(bench: Bench) -> None:
    """The tenant pays for the work that the attempt has done."""
    bench.submit("a")
    async with TaskOwner() as owner:
        driver = bench.driver()
        owner.start(driver.run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        driver.is_stopping = True
        bench.runs[0].finish(RunEnd(130, used=Usage(100.0, 50.0, 7)))
        await bench.until(lambda: bench.states()["a"] is QueueState.QUEUED)
    (row,) = bench.store.usage()
    assert (row.core_s, row.gpu_s, row.written_bytes) == (100.0, 50.0, 7)
    assert bench.store.job("a").failures == 0


async def test_a_cancelled_job_is_stopped(bench: Bench) -> None:
    """A cancelled job is stopped at the next renewal."""
    bench.submit("a")
    driver = bench.driver()
    async with TaskOwner() as owner:
        owner.start(driver.run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        assert bench.store.cancel("a").is_cancelling
        await bench.until(lambda: bench.states()["a"] is QueueState.CANCELLED)


async def test_a_guards_deadline_comes_before_the_end_of_the_lease(bench: Bench) -> None:
    """Each renewal moves the deadline to two thirds of a lease after the beginning of the renewal."""
    bench.submit("a")
    before_s = clock()
    async with TaskOwner() as owner:
        owner.start(bench.driver().run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1 and len(bench.runs[0].deadlines) > 4)
    deadlines = bench.runs[0].deadlines
    assert before_s + LEASE_S / 2 < deadlines[0] < before_s + LEASE_S
    assert deadlines == sorted(deadlines)
    assert deadlines[-1] - deadlines[0] > LEASE_S / 3
    assert deadlines[-1] <= clock() + 2 * LEASE_S / 3


async def test_a_store_that_is_away_extends_nothing_and_loses_nothing(bench: Bench) -> None:
    """While the store is unreachable, the deadline stays; later, the end of the job is reported."""
    bench.submit("a")
    async with TaskOwner() as owner:
        owner.start(bench.driver().run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        await asyncio.sleep(0.6)
        bench.store.is_away = True
        deadlines = list(bench.runs[0].deadlines)
        bench.runs[0].finish(RunEnd(0))
        await asyncio.sleep(1.1)
        assert bench.runs[0].deadlines[len(deadlines) :] == []
        bench.store.is_away = False
        await bench.until(lambda: bench.states()["a"] is QueueState.DONE)
    assert bench.lines.count("the queue is away. Wait.") == 1


async def test_a_record_stays_if_another_driver_has_the_job(bench: Bench) -> None:
    """That driver's attempt needs the record."""
    bench.submit("a")
    async with TaskOwner() as owner:
        owner.start(bench.driver().run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        bench.now[0] += LEASE_S
        bench.store.claim("two", 1, 60.0)
        bench.runs[0].finish(RunEnd(0, record="/films/.a.codecfleet"))
        await bench.until(lambda: any("job a was lost" in line for line in bench.lines))
    assert bench.removed == []


async def test_a_fenced_driver_kills_its_job_and_reports_nothing(bench: Bench) -> None:
    """If a job's lease has run out on the store's clock, another driver may have the job, so this one kills it."""
    bench.submit("a")
    async with TaskOwner() as owner:
        owner.start(bench.driver().run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        bench.now[0] += LEASE_S
        (job,) = bench.store.claim("two", 1, 60.0)
        assert (job.attempt, job.losses) == (2, 1)
        await bench.until(bench.runs[0].told.done)
        await bench.until(lambda: any("job a was lost" in line for line in bench.lines))
    assert (bench.store.job("a").state, bench.store.job("a").driver) == (QueueState.RUNNING, "two")


async def test_a_queue_that_comes_back_empty_costs_its_jobs_only(bench: Bench) -> None:
    """If the queue's file is lost, the driver kills that file's jobs and continues with the new file."""
    bench.submit("a")
    async with TaskOwner() as owner:
        owner.start(bench.driver().run(), "driver")
        await bench.until(lambda: len(bench.runs) == 1)
        remove(bench.store.path)
        await bench.until(bench.runs[0].told.done)
        bench.submit("done")
        await bench.until(lambda: bench.states() == {"done": QueueState.DONE})


def remove(queue: Path) -> None:
    """Remove the files of a queue."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{queue}{suffix}").unlink(missing_ok=True)


def test_one_driver_at_a_time_has_the_lock(tmp_path: Path) -> None:
    """Until it ends."""
    with driver_lock(tmp_path / "new" / "queue") as is_free, driver_lock(tmp_path / "new" / "queue") as is_free_too:
        assert (is_free, is_free_too) == (True, False)
    with driver_lock(tmp_path / "new" / "queue") as is_free:
        assert is_free


def test_a_driver_waits_for_a_program_that_only_looks(tmp_path: Path) -> None:
    """A driver waits for a submission, which holds the lock only for a moment."""
    with ThreadPoolExecutor(1) as threads, driver_lock(tmp_path / "queue"):

        def take() -> bool:
            with driver_lock(tmp_path / "queue", 10) as is_mine:
                return is_mine

        taken = threads.submit(take)
        time.sleep(0.2)
        assert not taken.done()
    assert taken.result()


async def test_a_driver_takes_the_lock_that_another_leaves(tmp_path: Path) -> None:
    """A driver takes the lock over, so that no other driver starts in the background beside it."""
    path = tmp_path / "queue"
    async with TaskOwner() as owner:
        with driver_lock(path):
            owner.start(hold_driver_lock(path), "the lock")
            await asyncio.sleep(0.1)
        async with asyncio.timeout(10):
            while is_free(path):  # noqa: ASYNC110 - a lock has no events
                await asyncio.sleep(0.05)
    assert is_free(path)


def is_free(queue: Path) -> bool:
    """Return whether no driver holds the lock."""
    with driver_lock(queue) as is_mine:
        return is_mine


def queued(store: SqliteStore, **options: float) -> QueuedJob:
    """Submit a job."""
    return store.submit("a", QueuedCommand(("a",), "/"), tenant="t", priority=0, due_in_s=None, queued_max=9, **options)


def test_leases_end_with_the_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reboot no driver is alive. Between reboots, the clock does not follow the wall clock."""
    path, boot = tmp_path / "queue.sqlite", tmp_path / "boot"
    monkeypatch.setattr("codecfleet.cluster.queue.sqlite._BOOT", boot)
    boot.write_text("one\n")
    store = SqliteStore(path)
    queued(store)
    submitted_s = store.job("a").submitted_s
    store.claim("driver", 1, 1e6)
    store.close()
    monkeypatch.setattr("time.time", lambda: 5e9)
    again = SqliteStore(path)
    assert again.job("a").state is QueueState.RUNNING
    again.close()
    boot.write_text("two\n")
    rebooted = SqliteStore(path)
    assert (rebooted.job("a").state, rebooted.job("a").losses) == (QueueState.QUEUED, 1)
    (job,) = rebooted.claim("driver", 1, 1.0)
    assert job.began_s is not None
    assert job.began_s > 4.9e9 > submitted_s
    rebooted.close()


def test_what_is_no_queue_is_left_alone(tmp_path: Path) -> None:
    """A missing database, a folder, no permission, and another program's database each cause a one-line error."""
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"not a database, " * 100)
    for path in (rubbish, tmp_path, Path("/proc/queue/a")):
        with pytest.raises(QueueUnavailable) as caught:
            SqliteStore(path).jobs()
        assert str(path) in caught.value.message
        assert caught.value.next_step
    assert rubbish.read_bytes().startswith(b"not a database")


def test_a_queue_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """With the ways out, and its jobs stay."""
    path = tmp_path / "queue.sqlite"
    store = SqliteStore(path)
    queued(store)
    with store.transaction() as at:
        at.rows("PRAGMA user_version = 1")
    store.close()
    with pytest.raises(UsageError, match="is not a queue of this version") as caught:
        SqliteStore(path).jobs()
    assert "move this one away: jobs queued in it must be submitted again" in caught.value.next_step
    path.rename(tmp_path / "old")
    assert SqliteStore(path).jobs() == []
    path = tmp_path / "old"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT job_id FROM codecfleet_jobs").fetchall() == [("a",)]


def test_a_queue_that_another_program_holds_is_busy(tmp_path: Path) -> None:
    """After a while."""
    holder = SqliteStore(tmp_path / "queue.sqlite")
    queued(holder)
    with holder.transaction(), pytest.raises(QueueUnavailable, match="is busy"):
        SqliteStore(tmp_path / "queue.sqlite", busy_s=0.1).jobs()
    assert holder.path.stat().st_mode & 0o777 == 0o600
    holder.close()


@dataclass
class LateDriver:
    """A driver that becomes idle just when a job is submitted; the next driver cancels the job."""

    bench: Bench
    runs: list[dict[str, QueueState]]
    is_stopping: bool = False

    async def run(self) -> None:
        """Submit a job or cancel it, and end."""
        self.runs.append(self.bench.states())
        if len(self.runs) == 1:
            self.bench.submit("late")
        else:
            self.bench.store.cancel("late")

    def stop(self) -> None:
        """Do nothing."""

    hold = claim = stop


async def test_a_job_that_comes_while_its_driver_ends_is_run(bench: Bench) -> None:
    """The submitting program finds the lock held, so the driver looks for jobs once more after releasing it."""
    runs: list[dict[str, QueueState]] = []
    ours, theirs = socket.socketpair()
    with ours:
        await keep_driving(bench.store.path, bench.store, lambda: LateDriver(bench, runs), theirs)
        assert int(ours.recv(64)) == os.getpid()
    assert runs == [{}, {"late": QueueState.QUEUED}]
    with driver_lock(bench.store.path) as is_free:
        assert is_free
        ours, theirs = socket.socketpair()
        with ours:
            await keep_driving(bench.store.path, bench.store, lambda: LateDriver(bench, runs), theirs)
            assert int(ours.recv(64)) == 0
    assert len(runs) == 2


async def test_a_job_that_cannot_be_started_says_why_in_its_output(bench: Bench) -> None:
    """If a job cannot be started, its output has the reason, since whoever follows the job sees nothing else."""
    bench.submit("a")

    async def start(_command: QueuedCommand, _ends_s: float) -> RunEnd:
        return RunEnd(3, "InputNotFound", "the job's folder /f is not on this machine", "Submit it again.")

    await Driver(bench.store, bench.remove, name="one", lease_s=LEASE_S, idle_s=0.1, start=start).run()
    text = bench.store.output("a").text
    assert "codecfleet: error: the job's folder /f is not on this machine. Submit it again.\n" in text


async def test_a_job_without_a_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is in the queue, so its user must not submit it again; ``wait`` gives the same error."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("codecfleet.cluster.queue.background.run_program", refuse)
    async with Queue(tmp_path / "queue.sqlite") as queue:
        for ask in (queue.submit(["verify"], job_id="a"), queue.wait("a")):
            with pytest.raises(QueueUnavailable, match="job a is queued, but no driver could be started") as caught:
                await ask
            assert f"`codecfleet driver --queue {tmp_path}/queue.sqlite`" in caught.value.next_step
        assert [job.job_id for job in await queue.list()] == ["a"]
