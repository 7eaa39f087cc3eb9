"""Small files of a batch: a worker processes each whole file (``whole_file``), and the pool sees all files as one job.

For each file, the batch's own process, which is the bottleneck, then handles only one message in each direction. A
failed file is repeated as a separate job, with its own retries, demand and error, unless the file is at fault.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Final

from ...actors.device.work import Constraints
from ...actors.media.location import is_local
from ...actors.task_owner import TaskOwner
from ...actors.worker.lone_runs import LONE_MAX
from ...cluster.fleet.default import sole_processor
from ...cluster.fleet.pool import Pool
from ...cluster.placement.model import plain_demand
from ...errors import FleetUnavailable
from ..board.loop import WAITING_S
from ..board.threads import in_thread
from ..board.watch import WorkWatch
from ..request.spec import BatchSpec, TranscodeSpec
from .store.schema import BatchEntry, EntryAction
from .whole_file import WholeFile, WholeFileDone

#: Larger files may have several segments, and gain little, because the overhead of a job hardly slows them down
MOST_BYTES: Final = 4 << 20
MANY: Final = 32
"""With this many waiting files, some run in separate processes, since half of a small file's time is spent holding the
GIL. Starting such a process takes as long as encoding that many files; the process is kept for the next files.
"""
_SHARED: Final = ("priority", "weight", "deadline_s", "deadline_factor")
"""Options that all small files share, as one job; a file whose row in the list sets other values needs its own job."""


def may_be_whole(entry: BatchEntry, spec: TranscodeSpec, batch: BatchSpec, size_bytes: int | None) -> bool:
    """Return whether a worker may process a whole file, as far as that is known without reading the file.

    A file that was tried before may have a journal, and only a job can continue from a journal.
    """
    is_fresh = entry.action is EntryAction.TRANSCODE and not entry.tries and not entry.was_in_flight
    is_here = is_local(spec.source) and is_local(spec.output)
    is_small = size_bytes is not None and size_bytes <= MOST_BYTES
    is_usual = spec.device != "gpu" and spec.encoder != "nvenc" and spec.keep_evidence is None
    is_shared = all(getattr(spec, each) == getattr(batch, each) for each in _SHARED)
    return is_fresh and is_here and is_small and is_usual and is_shared


def goes_alone(alone: int, waiting: int) -> bool:
    """Return whether the next file runs in a separate process.

    ``alone`` is the number of files in separate processes now; ``waiting`` files come after the next file.
    """
    return alone < LONE_MAX and waiting >= MANY


class SmallFiles:
    """The small files in flight, for one event loop; ``waiting`` returns how many files of the batch follow.

    Use this only for pools that do all work in software in child processes: a child process has the same files and
    rights as this process, and no GPU idles meanwhile.
    """

    def __init__(self, batch: BatchSpec, pool: Pool, waiting: Callable[[], int]) -> None:
        self._pool = pool
        self._waiting = waiting
        self._batch = batch
        self._job = f"small-{secrets.token_hex(4)}"
        self.watch = WorkWatch(pool, batch)  #: runs beside the batch
        self._is_possible: bool | None = None
        self._running, self._most = 0, 0
        self._alone = 0

    async def encoded(self, entry: BatchEntry, spec: TranscodeSpec) -> WholeFileDone | None:
        """Encode a whole file; return None if no worker can encode it.

        Raises CodecfleetError: a separate job may succeed.
        """
        if not await self._possible():
            return None
        alone = goes_alone(self._alone, self._waiting())
        work = WholeFile(
            job=self._job,
            label=f"file {entry.entry}",
            spec=spec.resolved(),
            constraints=Constraints(alone=alone),
        )
        self._alone += alone
        self._count(1)
        try:
            async with TaskOwner() as owner:
                owner.start(self._end_without_workers(), "wait for a worker")
                done = await self.watch.submit(work)
            station = self.watch.origin(work.label).worker.station
            return replace(done, span=replace(done.span, station=station))
        finally:
            self._alone -= alone
            self._count(-1)

    async def _end_without_workers(self) -> None:
        while True:
            await asyncio.sleep(WAITING_S)
            if not self._pool.state.of(self._job).slots:
                raise FleetUnavailable("no worker became available for small files", "See codecfleet status.")

    async def _possible(self) -> bool:
        if self._is_possible is None:
            self._is_possible = self._pool.state.is_here and await in_thread(sole_processor) is not None
        if not self._is_possible:
            return False
        await self._pool.start()
        return self._pool.state.warm_fleet is None

    def _count(self, change: int) -> None:
        """Change the number of files in flight.

        The demand has one slot per file, for the largest number of files that were in flight at once; without files
        there is no demand.
        """
        self._running += change
        if not self._running:
            self._most = 0
            self._pool.set_demand(self._job, None)
        elif self._running > self._most:
            self._most = self._running
            demand = replace(
                plain_demand(self._job, self._most),
                software_decode="its files are small",
                priority=self._batch.priority,
                weight=Fraction(self._batch.weight),
            )
            self._pool.set_demand(self._job, demand)
