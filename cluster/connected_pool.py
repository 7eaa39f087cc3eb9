"""A pool that brings its own connection: what a fleet runs on unless it is given a pool."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from ..actors.work import Work
from ..errors import FleetUnavailable
from .embedded import Connection, connect
from .pool import Pool

if TYPE_CHECKING:
    from .ray_pool import RayPool

__all__ = ["ConnectedPool"]

ResultT = TypeVar("ResultT")


class ConnectedPool(Pool):
    """Connects to Ray when it starts, runs a ``RayPool`` there, and gives the connection back when it closes.

    Args:
        address: a cluster's address; None uses an existing connection, ``RAY_ADDRESS``, or an embedded Ray.
        slots: pieces of work at a time; None means one per core.
    """

    def __init__(self, address: str | None, slots: int | None) -> None:
        self._address = address
        self._asked_slots = slots
        self._connection: Connection | None = None
        self._pool: RayPool | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def slots(self) -> int:
        """How many pieces of work run at the same time."""
        return self._started().slots

    @property
    def notes(self) -> tuple[str, ...]:
        """What the connection has to say."""
        return () if self._connection is None else self._connection.notes

    async def start(self) -> None:
        """Connect, and make the workers ready.

        Raises:
            FleetUnavailable: there is nothing to run on, or the pool is closed.
        """
        async with self._lock:
            if self._closed:
                message = "the pool is closed"
                raise FleetUnavailable(message, "Open a new fleet.")
            if self._pool is None:
                self._connection = await connect(self._address)
                # Only now: the embedded Ray's settings are read when Ray is imported.
                from .ray_pool import RayPool  # noqa: PLC0415

                self._pool = RayPool(self._connection, self._asked_slots)
            pool = self._pool
        # Outside the lock: closing must not wait for workers that do not come.
        await pool.start()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on a worker and return its result."""
        return await self._started().submit(work)

    async def progress(self, job: str) -> Mapping[str, int]:
        """Frames done so far by the running work of ``job``, by label."""
        return {} if self._pool is None else await self._pool.progress(job)

    async def aclose(self) -> None:
        """Stop the workers and give the connection back. Idempotent."""
        self._closed = True
        async with self._lock:
            pool, connection = self._pool, self._connection
            self._pool = self._connection = None
            if pool is not None:
                await pool.aclose()
            if connection is not None:
                await connection.close()

    def _started(self) -> "RayPool":
        if self._pool is None:
            message = "the pool is not started"
            raise FleetUnavailable(message, "Start it first.")
        return self._pool
