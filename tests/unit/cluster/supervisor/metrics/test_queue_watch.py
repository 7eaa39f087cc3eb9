"""The queue's metrics: its figures as samples, and a queue that is away, wrong or slow."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codecfleet.cluster.queue.sqlite import SqliteStore
from codecfleet.cluster.queue.store import JobStore, Transaction
from codecfleet.cluster.queue.tenants import Prices, QueuePolicy
from codecfleet.cluster.queue.values import QueuedCommand, RunEnd, Usage, UsageRow
from codecfleet.cluster.supervisor.metrics import queue_watch, table
from codecfleet.cluster.supervisor.metrics.queue_watch import (
    NAME_MAX,
    TENANTS_MAX,
    USAGE_LOOKS,
    WatchedQueue,
    watch_queue,
)
from codecfleet.cluster.supervisor.state.settings import settings_from
from codecfleet.errors import QueueUnavailable

from .test_tally import Monitor

COMMAND = QueuedCommand(("probe", "film.mkv"), "/")


class Away(JobStore):
    """A store that does not answer."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Fail."""
        raise self.error
        yield

    def close(self) -> None:
        """Do nothing."""


def submit(store: JobStore, name: str, tenant: str) -> None:
    """Submit a job."""
    store.submit(name, COMMAND, tenant=tenant, priority=0, due_in_s=None)


def test_each_figure_is_told(tmp_path: Path) -> None:
    """What a tenant used is what `codecfleet usage` says; each series of each state has a value."""
    clock = [1000.0]
    store, monitor = SqliteStore(tmp_path / "queue.sqlite", clock=lambda: clock[0]), Monitor()
    store.set_policy(QueuePolicy(prices=Prices(core_hour=1.0)))
    for name in ("a", "b", "c"):
        submit(store, name, "films")
    (job,) = store.claim("one", 1, 30.0)
    clock[0] += 20
    store.end(job.claim, RunEnd(0, used=Usage(7200.0, 5.0, 9)))
    store.claim("one", 1, 30.0)
    monitor.take(WatchedQueue(store).samples())
    states = {"queued": 1, "running": 1, "done": 1, "failed": 0, "parked": 0, "cancelled": 0}
    assert {state: monitor.of(table.SUBMITTED_JOBS, state) for state in states} == states
    assert (monitor.of(table.QUEUE_ANSWERS), monitor.of(table.SUBMITTED_AGE)) == (1, 20)
    (row,) = store.usage()
    assert row == UsageRow("films", "", 1, 20.0, 7200.0, 5.0, 9, 2.0)
    assert monitor.of(table.TENANT_COST, "films") == row.cost
    uses = [monitor.of(table.TENANT_USE, "films", use) for use in ("slots", "cores", "gpus")]
    assert uses == [row.run_s, row.core_s, row.gpu_s]
    store.close()


def test_use_is_read_more_rarely_than_jobs_are_counted(tmp_path: Path) -> None:
    """It takes longer, and the queue serves one program at a time."""
    store, monitor = SqliteStore(tmp_path / "queue.sqlite"), Monitor()
    submit(store, "a", "films")
    (job,) = store.claim("one", 1, 30.0)
    store.end(job.claim, RunEnd(0))
    watched = WatchedQueue(store)
    for _ in range(USAGE_LOOKS + 1):
        monitor.take(watched.samples())
    assert len(monitor.told[table.QUEUE_ANSWERS.name][()]) == USAGE_LOOKS + 1
    assert len(monitor.told[table.TENANT_COST.name]["films",]) == 2
    store.close()


class SlowUsage(SqliteStore):
    """A queue that answers, but not how much tenants used."""

    asked = 0

    def usage(self, *_arguments: object, **_options: object) -> list[UsageRow]:
        self.asked += 1
        raise QueueUnavailable("the statement took too long")


def test_a_use_that_cannot_be_read_is_asked_for_as_rarely(tmp_path: Path) -> None:
    """The jobs are counted all the same."""
    store = SlowUsage(tmp_path / "queue.sqlite")
    submit(store, "a", "films")
    watched = WatchedQueue(store)
    answers = [
        each.value for _ in range(USAGE_LOOKS + 1) for each in watched.samples() if each.metric is table.QUEUE_ANSWERS
    ]
    assert (answers, store.asked) == ([1] * (USAGE_LOOKS + 1), 2)
    store.close()


def test_many_tenants_of_any_name_are_few_series(tmp_path: Path) -> None:
    """The tenants that used most are shown, under names of one line."""
    clock = [0.0]
    store, monitor = SqliteStore(tmp_path / "queue.sqlite", clock=lambda: clock[0]), Monitor()
    for number in range(TENANTS_MAX + 5):
        submit(store, f"j{number}", f"{number}\nü{'x' * 2 * NAME_MAX}")
        (job,) = store.claim("one", 1, 1e6)
        clock[0] += number
        store.end(job.claim, RunEnd(0))
    monitor.take(WatchedQueue(store).samples())
    names = {name for (name,) in monitor.told[table.TENANT_COST.name]}
    assert len(names) == TENANTS_MAX
    assert all(name.isascii() and name.isprintable() and len(name) <= NAME_MAX for name in names)
    assert not any(name.startswith(("0 ", "4 ")) for name in names)
    store.close()


@pytest.mark.parametrize("error", [QueueUnavailable("it is down"), RuntimeError("a defect")])
def test_a_queue_that_no_longer_answers_is_told(error: Exception) -> None:
    """Only that it does not answer: other values stay as they were."""
    expected = [(table.QUEUE_ANSWERS, 0)]
    assert [(each.metric, each.value) for each in WatchedQueue(Away(error), has_answered=True).samples()] == expected
    is_known = isinstance(error, QueueUnavailable)
    assert len(WatchedQueue(Away(error)).samples()) == is_known


def looks(count: int) -> Callable[[float], object]:
    """Return a wait that ends the watch after a number of looks."""
    left = iter(range(count - 1))

    async def wait(_seconds: float) -> None:
        if next(left, None) is None:
            raise asyncio.CancelledError

    return wait


async def test_a_queue_whose_file_appears_later_is_told_then(tmp_path: Path) -> None:
    """Before, and for a place that is no queue, there are no samples; the watch creates nothing."""
    place, monitor = tmp_path / "queue.sqlite", Monitor()
    with pytest.raises(asyncio.CancelledError):
        await watch_queue(str(place), monitor.take, looks(2))
    assert (dict(monitor.told), place.exists()) == ({}, False)
    submit(store := SqliteStore(place), "a", "films")
    store.close()
    with pytest.raises(asyncio.CancelledError):
        await watch_queue(str(place), monitor.take, looks(1))
    assert monitor.of(table.SUBMITTED_JOBS, "queued") == 1
    await watch_queue("s3://bucket/queue", monitor.take)


async def test_a_slow_queue_delays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor's loop goes on while the queue is read."""
    answers, monitor = threading.Event(), Monitor()

    class Slow(Away):
        @contextmanager
        def transaction(self) -> Iterator[Transaction]:
            answers.wait(60)
            raise self.error
            yield

    monkeypatch.setattr(queue_watch, "open_store", lambda *_, **__: Slow(QueueUnavailable("it is down")))
    watch = asyncio.create_task(watch_queue("postgresql://db/q", monitor.take, looks(1)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (watch.done(), dict(monitor.told)) == (False, {})
    answers.set()
    with pytest.raises(asyncio.CancelledError):
        await watch
    assert monitor.told[table.QUEUE_ANSWERS.name] == {(): [0]}


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ("", ""),
        ("postgresql://queue@db/films", "postgresql://queue@db/films"),
        ("postgresql://queue:secret@db/films", ""),
        ("queue.sqlite", str(Path("queue.sqlite").absolute())),
    ],
)
def test_the_supervisor_learns_the_queue_from_its_starter(named: str, place: str) -> None:
    """A relative path is made absolute. A place with a password is left out: others can read the settings."""
    assert settings_from({"CODECFLEET_QUEUE": named}).queue == place
