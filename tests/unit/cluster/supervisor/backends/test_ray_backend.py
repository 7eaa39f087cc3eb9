"""Adoption of workers on a cluster: each gets its full time to answer, however many there are."""

import asyncio

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


async def test_workers_are_adopted_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which a worker must answer begins when the worker is asked."""
    monkeypatch.setattr(ray_backend, "actor_names", lambda: [WORKER_PREFIX + worker for worker in WORKERS])
    monkeypatch.setattr(ray_backend, "named_actor", lambda _name: object())
    monkeypatch.setattr(ray_backend, "reservation_names", lambda _prefix: ())
    backend = Answering(60.0)
    found = await backend.find()
    assert [(each.worker, each.facts.pid) for each in found] == [(each, n) for n, each in enumerate(WORKERS)]
    assert 1 < backend.most <= ADOPTED_AT_ONCE
