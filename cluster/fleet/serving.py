"""Serves a host's pool to the fleet of one client over a channel."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...actors.process.channel import Channel
from ...actors.task_owner import TaskOwner
from ...actors.worker.packed_work import packed_work
from ...errors import Cancelled, CodecfleetError
from ..supervisor.status.history import History
from ..supervisor.status.status import Status
from ..worker_names import StationId
from .messages import BEAT_S, Beat, FleetSide, HostedWork, SupervisorSide, WorkDone
from .pool import Asked, Pool, PoolState

if TYPE_CHECKING:
    from ...actors.device.work import Blob
    from ..device_fault import DeviceFault
    from ..supervisor.runner.client import SupervisorClient
    from .run import WorkRun

NEWS_S: Final = 0.01
"""Changes within this time are sent together."""


@dataclass(frozen=True, slots=True)
class ServedPool:
    """A pool that shares its slots among the jobs of all connected fleets."""

    pool: Pool
    lost: Callable[[], str] = str  # returns why Ray is lost; "" while Ray runs
    spent: Callable[[], str] = str  # returns why the pool will never run work again; "" if it may still run work
    supervisor: "Callable[[], SupervisorClient | None]" = lambda: None  # returns the supervisor in this process, if any


class HostSession(SupervisorSide):
    """Lets the fleet of one client use a pool over ``channel``; the pool may outlive that client."""

    def __init__(self, served: ServedPool, channel: Channel[FleetSide]) -> None:
        self.pool = served.pool
        self.blobs: list[Blob] = []
        self.runs: dict[int, WorkRun[Any]] = {}
        self.tell_fault: Callable[[DeviceFault], object] = bool
        self._served = served
        self._channel = channel
        self._said = PoolState()
        self._jobs: set[str] = set()
        self._is_started = False
        self._is_closed = False
        channel.serves = self

    async def serve(self) -> None:
        """Serve until the fleet disconnects or dies, then end its work. Raises unexpected errors of either side."""
        async with TaskOwner() as owner:
            owner.start(self._beat(), "the host's state")
            try:
                trouble = await self._channel.run()
            finally:
                self._end()
        if trouble:
            raise ConnectionError(trouble)

    async def start(self) -> None:
        await self.pool.start()
        self._is_started = True
        unsaid = self._said
        self._say()
        unsaid.changed.set()  # wakes ``_beat``, which still waits for a change of the old state

    async def run(self, work: HostedWork) -> WorkDone:
        if self._is_closed:
            raise Cancelled("the pool was closed")
        blobs = [self.blobs[number] for number in work.blobs]
        packed = packed_work(work.base, bytes(memoryview(work.packed)), blobs)
        run = self.runs[work.run] = self.pool.submit(packed)
        try:
            result = await run
        except CodecfleetError:
            if self._served.lost():
                # Ray has ended, so this process is about to end too; until then, no error is sent
                await asyncio.Event().wait()
            raise
        finally:
            del self.runs[work.run]
        if run.origin is None:
            raise AssertionError(work)
        self.tell_fault = run.origin.tell  # every result of the pool has this same function
        return WorkDone(result, run.origin.worker, run.origin.file)

    def set_demand(self, job: str, demand: Asked | None) -> None:
        if not self._is_closed:
            (self._jobs.discard if demand is None else self._jobs.add)(job)
            self.pool.set_demand(job, demand)

    async def status(self) -> Status | None:
        supervisor = self._served.supervisor()
        return None if supervisor is None else supervisor.status()

    async def history(self, stations: tuple[StationId, ...]) -> History:
        supervisor = self._served.supervisor()
        return History() if supervisor is None else supervisor.history(stations)

    def close(self) -> None:
        """End the fleet's work, and disconnect."""
        self._end()
        self._channel.hang_up()

    def _end(self) -> None:
        self._is_closed = True
        for run in list(self.runs.values()):
            run.cancel()
        for job in self._jobs:
            self.pool.set_demand(job, None)
        self._jobs.clear()

    async def _beat(self) -> None:
        """Report the state after each change, and often enough to show that this process is alive."""
        while True:
            if not self._channel.is_behind:
                self._say()
            await asyncio.sleep(NEWS_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._said.changed.wait()

    def _say(self) -> None:
        said = self._said
        # After Ray is lost, repeat the last state: this host ends, and the next host will have slots again.
        if self._is_started and not self._served.lost():
            self._said = self.pool.state
        running = {number: run.progress for number, run in self.runs.items() if run.progress.worker}
        self._channel.tell(Beat(None if self._said == said else self._said, running))
