"""Adoption of workers on a cluster: each gets its full time to answer, however many there are."""

import asyncio
from collections.abc import Collection

import pytest

from codecfleet.actors.worker.heartbeat import WorkerFacts
from codecfleet.cluster.supervisor.backends import ray_backend
from codecfleet.cluster.supervisor.backends.ray_backend import ADOPTED_AT_ONCE, RayBackend
from codecfleet.cluster.worker_names import WORKER_PREFIX

WORKERS = [f"node{number}/cpu#0:1" for number in range(5 * ADOPTED_AT_ONCE)]


class Answering(RayBackend):
    """A cluster whose workers answer one after the other."""

    asked = most = 0

    async def facts(self, worker: str) -> WorkerFacts:
        """Answer, and record how many workers were asked at the same time."""
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(0)
        self.asked -= 1
        return WorkerFacts(int(worker.partition("/")[0].removeprefix("node")), 1)


class AnsweringLate(Answering):
    """A cluster of which the workers in ``late`` do not answer the first time."""

    def __init__(self, late: Collection[str]) -> None:
        super().__init__(60.0)
        self.late = set(late)

    async def newest_term(self) -> int:
        """Return the term of this supervisor."""
        return 0

    async def facts(self, worker: str) -> WorkerFacts:
        """Answer, or raise what a timeout raises."""
        if worker in self.late:
            self.late.remove(worker)
            raise TimeoutError
        return await super().facts(worker)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let Ray have the workers; return the workers that are killed."""
    ended: list[str] = []
    monkeypatch.setattr(ray_backend, "actor_names", lambda: [WORKER_PREFIX + worker for worker in WORKERS])
    monkeypatch.setattr(ray_backend, "named_actor", lambda name: name)
    monkeypatch.setattr(ray_backend, "kill_actor", lambda name: ended.append(name.removeprefix(WORKER_PREFIX)))
    monkeypatch.setattr(ray_backend, "reservation_names", lambda _prefix: ())
    return ended


@pytest.mark.usefixtures("killed")
async def test_workers_are_adopted_in_groups() -> None:
    """The time in which a worker must answer begins when the worker is asked."""
    backend = Answering(60.0)
    found = await backend.find()
    assert [(each.worker, each.facts.pid) for each in found] == [(each, n) for n, each in enumerate(WORKERS)]
    assert 1 < backend.most <= ADOPTED_AT_ONCE


@pytest.mark.parametrize(("late", "lost"), [(WORKERS, []), (WORKERS[:5], WORKERS[:5])])
async def test_workers_that_are_late_together_are_asked_again(
    late: list[str], lost: list[str], killed: list[str]
) -> None:
    """A slow cluster loses no worker to a restart of its supervisor; a few workers that do not answer are ended."""
    found = await AnsweringLate(late).find()
    assert killed == lost
    assert {each.worker for each in found} == set(WORKERS) - set(lost)
