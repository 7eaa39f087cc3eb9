"""A supervisor that wakes after it was replaced gives no more orders."""

from collections.abc import AsyncIterator

import pytest

from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.actors.worker.orders import OldTerm
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

from .test_runner import MakeRunner, report

SETTINGS = SupervisorSettings(idle_release_s=5, client_expiry_s=10)


class Refusing(FakeClusterBackend):
    """Workers that know a newer supervisor once ``heard`` is set."""

    heard = False

    async def heartbeat(self, worker: str) -> Heartbeat:
        """Refuse the call, or answer."""
        if self.heard:
            raise OldTerm(worker)
        return await super().heartbeat(worker)


@pytest.fixture
def backend() -> Refusing:
    """A node with two cores, whose newest supervisor has term 1."""
    made = Refusing((RayNode(node="a", name="host-a", cores=2, free_cores=2),))
    made.term = 1
    return made


@pytest.fixture
async def runner(backend: Refusing, make_runner: MakeRunner) -> AsyncIterator[SupervisorRunner]:
    """The supervisor of term 1, with one busy worker."""
    made = await make_runner(backend, SETTINGS)
    await made.renew(report(1, 50))
    await all_quiet()
    yield made
    backend.term = 1


async def test_a_leading_supervisor_releases_what_dead_clients_used(
    runner: SupervisorRunner, backend: Refusing, clock: FakeClock
) -> None:
    """If there is no successor, the supervisor ends a worker of silent clients."""
    await clock.advance(20)
    assert (backend.workers, runner.leading.over) == ({}, "")


async def test_a_replaced_supervisor_ends_no_worker(
    runner: SupervisorRunner, backend: Refusing, clock: FakeClock
) -> None:
    """A replaced supervisor must not end the workers of silent clients, which report to its successor."""
    workers, starts = backend.workers, backend.starts
    backend.term = 2
    await clock.advance(20)
    assert backend.workers == workers
    assert (runner.leading.over, backend.starts) == ("superseded", starts)
    backend.kill(next(iter(workers)))
    await clock.advance(5)
    assert (backend.starts, len(backend.renewed)) == (starts, len(backend.renewed))


async def test_a_replaced_supervisor_grants_nothing(runner: SupervisorRunner, backend: Refusing) -> None:
    """A replaced supervisor does not grant slots that its successor grants."""
    assert (await runner.renew(report(2, 50))).slots["j"]
    backend.term = 2
    await runner.leading.look()
    with pytest.raises(OldTerm, match="superseded"):
        await runner.renew(report(3, 50))


async def test_a_worker_that_obeys_a_successor_is_proof_enough(
    runner: SupervisorRunner, backend: Refusing, clock: FakeClock
) -> None:
    """If a worker refuses a heartbeat, the supervisor is over, and the worker does not count as dead."""
    workers = backend.workers
    backend.heard = True
    await clock.advance(20)
    assert (runner.leading.over, backend.workers) == ("superseded", workers)


async def test_a_supervisor_that_cannot_look_delays_its_orders(
    runner: SupervisorRunner, backend: Refusing, clock: FakeClock
) -> None:
    """While it is unknown whether the supervisor was replaced, nothing is ended; afterwards, everything is."""
    backend.term = ConnectionError("no route to the control service")
    await clock.advance(20)
    assert len(backend.workers) == 1
    backend.term = 1
    await clock.advance(2)
    assert (backend.workers, runner.leading.over) == ({}, "")


async def test_a_supervisor_that_is_cut_off_renews_no_worker(
    runner: SupervisorRunner, backend: Refusing, clock: FakeClock
) -> None:
    """Workers on its side of a broken network end themselves, because their work runs elsewhere."""
    backend.term = ConnectionError("no route to the control service")
    await clock.advance(SETTINGS.fence_s + 5)
    assert runner.leading.over == "cut off"
    backend.renewed.clear()
    await clock.advance(10)
    assert backend.renewed == []
