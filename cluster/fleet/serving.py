"""The host's side: serves a pool to one fleet at the other end of a channel."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from ...actors.device.work import Blob
from ...errors import Cancelled, CodecfleetError
from ..background import Background
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from ..process.channel import Channel
from ..process.messages import Buffer
from ..supervisor.status.history import History
from ..supervisor.status.status import Status
from ..worker.packed_work import packed_work
from .messages import BEAT_S, Beat, FleetSide, HostedWork, HostSide, WorkDone
from .pool import Asked, Pool, PoolState
from .run import Doubt, WorkRun, ignore_doubt
from .status_messages import SupervisorSide

NEWS_S: Final = 0.01
"""Changes within this time are sent together."""


class KnownStatus(Protocol):
    """What knows the status of a supervisor in this process."""

    def status(self) -> Status | None:
        """Return it."""
        ...

    def history(self, stations: tuple[str, ...]) -> History:
        """Return what stations did."""
        ...


class HostSession(HostSide, SupervisorSide):
    """One fleet's part of ``pool``, which shares its slots among all jobs.

    Args:
        pool: outlives it; started by the fleet.
        channel: leads to the fleet.
        lost: says why the pool's Ray is gone, "" while it is there: then errors are not answered, as the process ends.
        supervisor: the supervisor in this process, if there is one.
    """

    def __init__(
        self,
        pool: Pool,
        channel: Channel[FleetSide],
        lost: Callable[[], str] = str,
        *,
        supervisor: Callable[[], KnownStatus | None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._channel = channel
        self._lost = lost
        self._supervisor = supervisor
        self._blobs: list[Blob] = []
        self._runs: dict[int, WorkRun[Any]] = {}
        self._take_doubt: Callable[[Doubt], None] = ignore_doubt
        self._said = PoolState()
        self._jobs: set[str] = set()
        self._is_started = False
        self._is_closed = False
        channel.serves = self

    async def serve(self) -> None:
        """Serve until the fleet hangs up or is gone; then end all of its work here.

        Raises:
            Exception: a defect, at either end.
        """
        failed: list[BaseException] = []

        def fail(_task: str, error: BaseException) -> None:
            failed.append(error)
            self._channel.hang_up()

        beside = Background(fail)
        beside.begin(self._beat(), "the host's state")
        try:
            trouble = await self._channel.run()
        finally:
            self._end()
            await beside.end()
        if failed:
            raise failed[0]
        if trouble:
            raise ConnectionError(trouble)

    async def start(self) -> None:
        await self._pool.start()
        self._is_started = True
        self._say()

    async def keep(self, content: Buffer) -> None:
        self._blobs.append(Blob.of(bytes(memoryview(content))))

    async def run(self, work: HostedWork) -> WorkDone:
        if self._is_closed:
            raise Cancelled("the pool was closed")
        blobs = [self._blobs[number] for number in work.blobs]
        packed = packed_work(work.base, bytes(memoryview(work.packed)), blobs)
        run = self._runs[work.run] = self._pool.submit(packed)
        try:
            result = await run
        except CodecfleetError:
            if self._lost():
                # However Ray's end looked to this work: the fleet sees this process end.
                await asyncio.Event().wait()
            raise
        finally:
            del self._runs[work.run]
        if run.origin is None:
            raise AssertionError(work)
        self._take_doubt = run.origin.tell  # every result of a pool has the same
        return WorkDone(result, run.origin.worker, run.origin.file)

    async def give_up(self, run: int, why: str) -> None:
        if run in self._runs:
            self._runs[run].give_up(why)

    async def set_demand(self, job: str, demand: Asked | None) -> None:
        if self._is_closed:
            return
        (self._jobs.discard if demand is None else self._jobs.add)(job)
        self._pool.set_demand(job, demand)

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self._pool.preview(demand)

    async def doubt(self, doubt: Doubt) -> None:
        self._take_doubt(doubt)

    async def files_address(self) -> str:
        return await self._pool.files_address()

    async def status(self) -> Status | None:
        supervisor = self._supervisor()
        return None if supervisor is None else supervisor.status()

    async def history(self, stations: tuple[str, ...]) -> History:
        supervisor = self._supervisor()
        return History() if supervisor is None else supervisor.history(stations)

    async def close(self) -> None:
        self._end()
        self._channel.hang_up()

    def _end(self) -> None:
        """Cancel what came from this fleet, and clear its demands."""
        self._is_closed = True
        for run in list(self._runs.values()):
            run.cancel()
        for job in self._jobs:
            self._pool.set_demand(job, None)
        self._jobs.clear()

    async def _beat(self) -> None:
        """Say how the pool is: at once after a change, and often enough to show that this process is alive."""
        while True:
            if not self._channel.is_behind:
                self._say()
            await asyncio.sleep(NEWS_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._said.changed.wait()

    def _say(self) -> None:
        said, self._said = self._said, self._pool.state if self._is_started else self._said
        running = {number: run.progress for number, run in self._runs.items() if run.progress.worker}
        self._channel.tell(Beat(None if self._said == said else self._said, running))
