"""Every implementation of ``Pool``, ready for the tests of the contract."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest
import pytest_asyncio

from codecfleet.actors.process.process import start_program
from codecfleet.cluster.fleet.host.program import WORKER
from codecfleet.cluster.fleet.leases.connecting import connecting_pool, ground_on
from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.fleet.remote_pool import RemotePool
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.testing import FakeClusterBackend, FakeHosts, FakeProcesses, FaultyPool, LocalPool

MakePool = Callable[[int], Awaitable[Pool]]

WIDE = 4
"""More slots than a small machine has cores."""


def on_fake_workers(slots: int, clock: Callable[[], float] | None = None) -> Pool:
    """Return the pool of real fleets with its own supervisor, over workers in threads of this process."""
    settings = SupervisorSettings(idle_release_s=None)
    backend = FakeClusterBackend((RayNode(node="here", name="here", cores=slots, free_cores=slots),))
    shell = SupervisorRunner(backend, Core(settings, Policy(), 1, (clock or time.monotonic)()), settings, clock=clock)
    return LeasedPool(Ground(supervisor=shell, eager=slots).reach, slots)


@pytest_asyncio.fixture(
    loop_scope="module",
    scope="module",
    params=[
        "local",
        "faulty",
        "leased",
        "remote",
        "own",
        pytest.param("process", marks=[pytest.mark.slow, pytest.mark.ci]),
        pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.slow, pytest.mark.ci]),
    ],
)
async def make_pool(request: pytest.FixtureRequest) -> AsyncIterator[MakePool]:
    """A factory of started pools with a given number of slots, which are closed after the tests."""
    async with AsyncExitStack() as pools:

        async def make(slots: int) -> Pool:
            if request.param == "ray":
                ground = ground_on(request.getfixturevalue("private_ray"), slots)
                pool: Pool = LeasedPool(ground.reach, slots)
            elif request.param in {"own", "process"}:
                start = FakeProcesses() if request.param == "own" else partial(start_program, WORKER)
                pool = connecting_pool(None, slots, start_process=start)
            elif request.param in {"leased", "remote"}:
                pool = on_fake_workers(slots)
                if request.param == "remote":
                    pool = RemotePool(FakeHosts([pool]))
            else:
                pool = LocalPool(slots) if request.param == "local" else FaultyPool(LocalPool(slots))
            return await pools.enter_async_context(pool)

        yield make


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def narrow(make_pool: MakePool) -> Pool:
    """A pool with one slot, for all tests of an implementation."""
    return await make_pool(1)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def wide(make_pool: MakePool) -> Pool:
    """A pool with ``WIDE`` slots, for all tests of an implementation."""
    return await make_pool(WIDE)
