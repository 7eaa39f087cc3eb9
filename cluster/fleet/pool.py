"""Where work runs: the only seam between jobs and machines.

Jobs know only ``Pool``. ``leased_pool.py`` is the real one; ``codecfleet.testing.LocalPool`` runs work in threads of
this process and passes the same contract tests.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from ...actors.device.work import Work
from ..placement.model.demand import Demand
from ..placement.model.inventory import Inventory
from ..placement.model.preview import PlacementPreview

if TYPE_CHECKING:
    from ..supervisor.status.history import History
    from ..supervisor.status.status import Status

ResultT = TypeVar("ResultT")


class Pool(ABC):
    """Runs work on workers. Used from one event loop; methods may be called concurrently."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many pieces of work run at a time; further ones wait in order."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about this pool for the user, one per line of the report."""
        return ()

    @property
    def warm_fleet(self) -> int | None:
        """The process of the warm fleet that it runs on, with other programs; None where it has workers of its own."""
        return None

    def slots_for(self, job: str) -> int:
        """Return how many pieces of work of ``job`` may run now; changes as jobs, workers and nodes come and go."""
        del job
        return self.slots

    def cores_for(self, job: str) -> int:
        """Return how many cores the work of ``job`` may keep busy now; a slot has one at least."""
        return self.slots_for(job)

    async def more_slots(self, job: str, beyond: int) -> None:
        """Wait until more than ``beyond`` pieces of work of ``job`` may run; without end where that never changes.

        Raises:
            FleetUnavailable: the job has no slots, and none will ever come.
        """
        del job, beyond
        await asyncio.Event().wait()

    def waits_for(self, job: str) -> str:
        """Say why ``job`` has no slots; "" where it has some, or the reason is unknown."""
        del job
        return ""

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a job with this demand would be placed, as far as known."""
        del demand
        return PlacementPreview()

    async def status(self) -> "Status | None":
        """Return the status of the supervisor in this process; None where there is none."""
        return None

    async def history(self, stations: tuple[str, ...]) -> "History":
        """Return what stations did, as the supervisor in this process knows it; nothing where there is none."""
        from ..supervisor.status.history import History  # noqa: PLC0415 - no job needs it, nor all that it loads

        del stations
        return History()

    def set_demand(self, demand: Demand) -> None:  # noqa: B027 - a pool without shares ignores demands
        """Set what a job wants from now on, so that it gets its share. Jobs without a demand run too."""

    def clear_demand(self, job: str) -> None:  # noqa: B027 - as above
        """Clear a job's demand."""

    def set_behind(self, batch: str, like: str, segments: int, frames: int) -> None:  # noqa: B027 - as above
        """Say what a batch will ask for when some of its jobs are done, so that a cluster may grow for it.

        Args:
            batch: its name.
            like: one of its jobs, of the kind that waits; one that is over stands for those that follow too.
            segments: how many segments of it could run at once beside those that are asked for.
            frames: of all that waits; 0 when nothing waits any more.
        """

    def sole_processor(self) -> Inventory | None:
        """Return the one machine that work can run on, if that is known before ``start`` and it has no GPU. Blocks."""
        return None

    def prepare(self) -> None:  # noqa: B027 - as above
        """Begin to make the workers ready, without waiting; again where an earlier start failed."""

    @abstractmethod
    async def start(self) -> None:
        """Make the workers ready. Calling it twice does nothing more.

        Raises:
            FleetUnavailable: there is nothing to run on.
        """

    @abstractmethod
    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on a worker and return its result.

        Cancelling the awaiting task cancels the work, queued or running, and frees its slot.

        Raises:
            WorkerLost: the worker died; the pool has replaced it, so the work may be submitted again.
            DeadlineMissed: the worker was written off, as below.
            CodecfleetError: raised by the work itself.
        """

    @abstractmethod
    async def progress(self, job: str) -> Mapping[str, int]:
        """Frames done so far by the running work of ``job``, by label. Never raises for a lost worker."""

    async def serve_files(self) -> str:
        """Return where workers on other machines read files of this one; "" where all workers are on this machine.

        Ask again with each piece of work: what reads them may be another by then.

        Raises:
            FleetUnavailable: nothing can be started that would read them.
        """
        return ""

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        """Report that the last result of this piece of work failed a check; a pool without devices ignores it."""
        del job, label, reason

    def found_doubtful(self, job: str, label: str, reason: str) -> None:
        """Report that this work's last result puts its device in doubt; a pool without devices ignores it."""
        del job, label, reason

    @abstractmethod
    async def stations(self, job: str) -> Mapping[str, str]:
        """Return where each running piece of work of ``job`` runs, by label, whether its worker answers or not."""

    @abstractmethod
    async def write_off(self, job: str, label: str, reason: str) -> None:
        """Give up the worker that runs this work, which hangs; no effect if nothing of that name runs.

        Its ``submit`` raises ``DeadlineMissed`` with ``reason``; all else that runs there ends with ``WorkerLost``. The
        process is killed where it can be reached, and a retry prefers another station.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Cancel running work, stop the workers within about a second, and release everything. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
