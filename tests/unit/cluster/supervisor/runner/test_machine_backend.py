"""A machine whose first worker is a process of ours, and whose further ones are Ray's."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from codecfleet.cluster.client.late_ray import LateRay
from codecfleet.cluster.client.leased_pool import LeasedPool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.client import LocalClient
from codecfleet.cluster.supervisor.runner.machine_backend import FIRST, HERE, MachineBackend
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.errors import FleetUnavailable, WorkerLost
from codecfleet.testing import FakeClusterBackend, FakeProcesses, works

if TYPE_CHECKING:
    from codecfleet.cluster.ray.embedded import Connection

ENDLESS_S = 3600
CORES = 12
"""Two processes' worth."""
FIRST_SLOTS = 6


class Machine(NamedTuple):
    """A pool on this machine, and what its workers are."""

    pool: LeasedPool
    backend: MachineBackend
    processes: FakeProcesses
    ray: FakeClusterBackend


class RayStarts:
    """How often Ray was started; ``error`` refuses it."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None


async def never() -> "Connection":
    """Stand for a start that the backend of these tests has no use for."""
    raise AssertionError


@pytest.fixture
def starts() -> RayStarts:
    """Count Ray's starts."""
    return RayStarts()


@pytest.fixture
async def machine(starts: RayStarts) -> AsyncIterator[Machine]:
    """A started pool; its first worker is there."""
    node = RayNode(node=HERE, name="this machine", cores=CORES, free_cores=CORES)
    ray, processes = FakeClusterBackend((node,)), FakeProcesses()

    async def start_ray() -> FakeClusterBackend:
        starts.count += 1
        if starts.error is not None:
            raise starts.error
        return ray

    backend = MachineBackend(node, processes, start_ray)
    settings = SupervisorSettings(idle_release_s=None)
    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    async with AsyncExitStack() as stack:
        late = LateRay(FIRST_SLOTS, never)
        leased = LeasedPool(LocalClient(runner), eager=FIRST_SLOTS, is_alone=True, reported=late.bounded)
        pool = await stack.enter_async_context(leased)
        yield Machine(pool, backend, processes, ray)


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(20):
        while not is_true():  # noqa: ASYNC110 - there is no event to wait on
            await asyncio.sleep(0.01)


async def test_little_work_starts_no_ray(machine: Machine, starts: RayStarts) -> None:
    """What ends before Ray would be there runs in the first process; idle cores still count for its threads."""
    machine.pool.set_demand(replace(plain_demand("j", 1), segments=(5,) * 40))
    submitted = (works.Count(job="j", label=f"{i}", frames=i) for i in range(40))
    assert await asyncio.gather(*(machine.pool.submit(work) for work in submitted)) == list(range(40))
    assert (machine.processes.started, starts.count, machine.pool.slots) == (1, 0, CORES)
    assert (machine.pool.slots_for("j"), machine.pool.cores_for("j")) == (FIRST_SLOTS, CORES)


async def test_more_work_starts_ray_beside_it(machine: Machine, starts: RayStarts) -> None:
    """What begins in the first process goes on there while Ray starts; then both serve one job."""
    machine.pool.set_demand(plain_demand("j", 100))
    runs = [
        asyncio.create_task(machine.pool.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S)))
        for i in range(CORES)
    ]
    await until(lambda: machine.pool.slots_for("j") == CORES)
    stations = await machine.pool.stations("j")
    assert set(stations.values()) == {FIRST, f"{HERE}/cpu#1"}
    assert (machine.processes.started, machine.ray.starts, starts.count) == (1, 1, 1)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)


async def test_without_ray_the_first_process_goes_on(machine: Machine, starts: RayStarts) -> None:
    """A Ray that does not start costs no work: all of it runs in the first process."""
    starts.error = FleetUnavailable("no place for its files", "Free some.")
    machine.pool.set_demand(plain_demand("j", 100))
    submitted = (works.Count(job="j", label=f"{i}", frames=i) for i in range(40))
    assert await asyncio.gather(*(machine.pool.submit(work) for work in submitted)) == list(range(40))
    await until(lambda: starts.count > 0)
    assert (machine.processes.started, machine.pool.lost) == (1, "")


async def test_a_killed_process_is_replaced(machine: Machine) -> None:
    """Its work is lost as with any worker, says how it ended, and may be submitted again."""
    running = asyncio.create_task(machine.pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S)))
    await until(lambda: machine.pool.slots_for("j") > 0)
    while "a" not in await machine.pool.progress("j"):  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0.01)
    machine.processes.kill()
    with pytest.raises(WorkerLost, match="died at work: WorkerDied: it was killed by SIGKILL"):
        await running
    assert await machine.pool.submit(works.Count(job="j", label="a", frames=7)) == 7
    assert machine.processes.started == 2


async def test_the_loss_of_ray_is_the_machines(machine: Machine) -> None:
    """Once workers are on it, a Ray that is gone ends the pool, whose host is replaced."""
    machine.pool.set_demand(plain_demand("j", 100))
    await until(lambda: machine.ray.starts == 1)
    assert machine.pool.lost == ""
    machine.ray.ended = "Ray itself ended: its node does not answer"
    assert machine.pool.lost == machine.ray.ended
