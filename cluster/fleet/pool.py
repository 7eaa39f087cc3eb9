"""The pool, which runs work and is the only interface between jobs and machines.

``leases/leased_pool.py`` has the real pool, ``remote_pool.py`` a pool in another process, and ``codecfleet.testing``
has ``LocalPool``, which runs work in threads of this process. All three pass the same contract tests.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from ...actors.device.work import Work
from ...errors import CodecfleetError
from ..autoscale.later import LaterDemand
from ..placement.model.demand import Demand
from ..placement.model.preview import PlacementPreview
from .run import WorkRun

ResultT = TypeVar("ResultT")
Asked: TypeAlias = Demand | LaterDemand


@dataclass(frozen=True, slots=True)
class JobState:
    """The slots and cores that a job may use now."""

    slots: int = 0  # how many of the job's tasks may run at a time
    cores: int = 0  # how many cores the job's tasks may keep busy; at least one for each slot
    waits_for: str = ""  # why the job has no slots; "" if it has slots or the reason is unknown
    never: CodecfleetError | None = None  # why the job will never get slots; None if it may get slots


NO_JOB = JobState()


@dataclass(frozen=True, slots=True)
class PoolState:
    """The state of a pool at one moment."""

    slots: int = 0  # the most slots that one job could have; 0 before the pool has started
    notes: tuple[str, ...] = ()  # lines for the user's report
    jobs: Mapping[str, JobState] = field(default_factory=dict)  # the jobs that have a demand or work
    others: JobState = NO_JOB  # the state of every other job
    is_here: bool = False  # whether all workers run on this machine; known before the start
    warm_fleet: int | None = None  # the process id of the warm fleet that runs the work; None without a warm fleet
    # the address from which other machines read this machine's files; "" if no machine does; None if unknown
    files_address: str | None = ""
    # Set when this state is out of date.
    changed: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the state for pickling, without the event, which only this process can use."""
        values = (self.slots, self.notes, self.jobs, self.others, self.is_here, self.warm_fleet, self.files_address)
        return PoolState, values

    def of(self, job: str) -> JobState:
        """Return the slots and cores that ``job`` may use."""
        return self.jobs.get(job, self.others)


class Pool(ABC):
    """Runs work on workers. Call it from one event loop; calls may overlap."""

    @property
    @abstractmethod
    def state(self) -> PoolState:
        """The pool's state now; ``state.changed`` is set when this state is out of date."""

    @abstractmethod
    async def start(self) -> None:
        """Make the workers ready. Idempotent; after a failed start, another call tries again.

        Cancelling the call does not stop the start. Raises FleetUnavailable: no worker can start.
        """

    @abstractmethod
    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work`` on a worker. The run ends with its result, or with one of these errors.

        CodecfleetError: the work raised it.
        WorkerLost: the worker was lost, or a supervisor cancelled the work; the work may be submitted again.
        DeadlineMissed: ``WorkRun.give_up`` was called.
        Cancelled: the pool was closed.
        FleetUnavailable: no work can run here any more, or workers cannot read the files that the work ships.

        Raises UsageError: the pool is closed, or the work does not pickle; FleetUnavailable: the pool is not started.
        """

    @abstractmethod
    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Set a job's demand, which determines its share of the slots; None clears the demand.

        A job without a demand may run work too. A ``LaterDemand`` represents a batch's jobs that still wait; a cluster
        may grow for these jobs.
        """

    @abstractmethod
    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return where a job with this demand would be placed, as far as is known.

        The call may be cancelled at any time.
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


async def more_slots(pool: Pool, job: str, beyond: int) -> None:
    """Wait until ``job`` has more than ``beyond`` slots.

    Raises CodecfleetError: the job will never have slots.
    """
    while (found := (state := pool.state).of(job)).slots <= beyond:
        if found.never is not None:
            raise found.never
        await state.changed.wait()


@dataclass(frozen=True, slots=True)
class ClientName:
    """The name of a fleet's connection to a supervisor.

    If a host dies, the next host connects with the next number.
    """

    fleet: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0

    def __str__(self) -> str:
        return f"{self.fleet}.{self.number}"

    @property
    def next(self) -> Self:
        """The name of the fleet's next connection."""
        return replace(self, number=self.number + 1)

    @property
    def earlier(self) -> tuple[str, ...]:
        """The names of the fleet's earlier connections, all of which have ended."""
        return tuple(str(replace(self, number=number)) for number in range(self.number))
