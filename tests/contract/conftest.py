"""Every implementation of ``Pool``, ready to be held against the contract."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from codecfleet.cluster.connected_pool import leased_pool
from codecfleet.cluster.embedded import Connection, connect
from codecfleet.cluster.pool import Pool
from codecfleet.testing import FaultyPool, LocalPool

MakePool = Callable[[int], Awaitable[Pool]]


@pytest.fixture(scope="session")
def connection() -> Iterator[Connection]:
    """One embedded Ray for all tests of the session, opened and closed on event loops that do not outlive either."""
    with ThreadPoolExecutor(1) as thread:
        opened = thread.submit(asyncio.run, connect("local")).result()
    yield opened
    asyncio.run(opened.close())


@pytest.fixture(params=["local", "faulty", pytest.param("ray", marks=pytest.mark.ray)])
async def make_pool(request: pytest.FixtureRequest) -> AsyncIterator[MakePool]:
    """A factory of started pools with a given number of slots; they are closed after the test."""
    async with AsyncExitStack() as pools:

        async def make(slots: int) -> Pool:
            if request.param == "ray":
                connection = request.getfixturevalue("connection")
                pool: Pool = leased_pool(connection, slots)
            else:
                pool = LocalPool(slots) if request.param == "local" else FaultyPool(LocalPool(slots))
            return await pools.enter_async_context(pool)

        yield make
