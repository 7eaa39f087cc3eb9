"""The default pool of a fleet: Ray lives in a host process, not in the user's.

The process that holds Ray's driver dies with its Ray node or control service. So it is one of our own, and when it is
gone a new one is started: work that ran is lost as with its worker, and the jobs go on.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

from ...actors.device.work import Work
from ...errors import Cancelled, CodecfleetError, FleetUnavailable, UsageError, WorkerLost
from ..fleet_variables import may_use_warm_fleet
from ..placement.model.demand import Demand
from ..placement.model.inventory import Inventory
from ..placement.model.preview import PlacementPreview
from ..process.process import StartedProcess
from ..ray.ray_environment import named_cluster
from .client_name import ClientName
from .life import Closed, Event, HostEnded, HostPhase, HostStarted, Life, Refused, Rest, Rested, Spawn, Wanted, decide
from .link import HostLink, HostLost
from .pool import Pool
from .process import start_host
from .serving import JobState, PoolState
from .warm import warm_or_own

ResultT = TypeVar("ResultT")

_AGAIN = "A new one is started; the same work may be submitted again."
_NO_JOB = JobState(0, "")


class HostedPool(Pool):
    """Has a host process that connects to Ray, and starts another when that ends.

    Args:
        spawn: starts a host's process, whose connection has that name; called in the event loop's thread, with which
            the process ends.
        slots: pieces of work at a time, where the host may have more; None means as many as it has.
        rest: waits that many seconds.
        sole_processor: returns the machine that the hosts will run on, as ``Pool.sole_processor``.
    """

    def __init__(
        self,
        spawn: Callable[[ClientName], StartedProcess],
        *,
        slots: int | None = None,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        sole_processor: Callable[[], Inventory | None] = lambda: None,
    ) -> None:
        self._spawn = spawn
        self._slots_max = slots
        self._name = ClientName()
        self._rest = rest
        self._sole_processor = sole_processor
        self._life = Life()
        self._changed = asyncio.Event()
        self._link: HostLink | None = None
        self._warm_fleet: int | None = None
        self._state = PoolState()
        self._notes: tuple[str, ...] = ()
        self._demands: dict[str, Demand] = {}
        self._behind: dict[str, tuple[str, int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def slots(self) -> int:
        return self._limited(self._said().slots)

    @property
    def warm_fleet(self) -> int | None:
        return self._warm_fleet

    @property
    def notes(self) -> tuple[str, ...]:
        return self._said().notes + self._notes

    def sole_processor(self) -> Inventory | None:
        return self._sole_processor()

    def prepare(self) -> None:
        self._happen(Wanted())

    async def start(self) -> None:
        """Wait until a host is connected and its workers are ready.

        Raises:
            FleetUnavailable: there is nothing to run on.
            UsageError: the address makes no sense, or the pool is closed.
        """
        self._refuse_if_closed()
        if self._life.phase is HostPhase.ABSENT:
            self.prepare()
        await self._ready()

    def slots_for(self, job: str) -> int:
        return self._said().jobs.get(job, _NO_JOB).slots if self._life.phase is HostPhase.READY else 0

    def cores_for(self, job: str) -> int:
        return self._said().jobs.get(job, _NO_JOB).cores

    async def more_slots(self, job: str, beyond: int) -> None:
        await self._ask("more_slots", job, beyond)

    def waits_for(self, job: str) -> str:
        if self._life.phase is not HostPhase.READY and self._life.lost:
            return f"Ray is started again: {self._life.lost}"
        return self._said().jobs.get(job, _NO_JOB).waits_for

    async def preview(self, demand: Demand) -> PlacementPreview:
        return cast("PlacementPreview", await self._ask("preview", demand))

    def set_demand(self, demand: Demand) -> None:
        if self._slots_max is not None:
            demand = replace(demand, workers_max=self._limited(demand.workers_max or self._slots_max))
        if self._demands.get(demand.job) != demand:
            self._demands[demand.job] = demand
            self._tell("set_demand", demand)

    def clear_demand(self, job: str) -> None:
        self._demands.pop(job, None)
        self._tell("clear_demand", job)

    def set_behind(self, batch: str, like: str, segments: int, frames: int) -> None:
        self._behind.pop(batch, None)
        if frames:
            self._behind[batch] = (like, segments, frames)
        self._tell("set_behind", batch, like, segments, frames)

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run ``work`` on a worker of the host's; large NumPy arrays in the result are read-only.

        Raises:
            WorkerLost: its worker, or the host, died.
            FleetUnavailable: nothing is left to run on.
            UsageError: the work does not pickle, or the pool is closed.
            Cancelled: the pool was closed while the work waited or ran.
            CodecfleetError: raised by the work; its other errors arrive as WorkError.
        """
        self._refuse_if_closed()
        link = await self._ready()
        try:
            return await link.submit(work)
        except HostLost as lost:
            if self._life.error is not None:
                raise self._life.error from None
            raise WorkerLost(f"the host of {work.label}'s worker is gone: {lost}", _AGAIN) from None

    async def progress(self, job: str) -> Mapping[str, int]:
        return cast("Mapping[str, int]", await self._ask_about_runs("progress", job) or {})

    async def stations(self, job: str) -> Mapping[str, str]:
        return cast("Mapping[str, str]", await self._ask_about_runs("stations", job) or {})

    async def write_off(self, job: str, label: str, reason: str) -> None:
        await self._ask_about_runs("write_off", job, label, reason)

    async def serve_files(self) -> str:
        return cast("str", await self._ask("serve_files"))

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        self._tell("found_wrong", job, label, reason)

    def found_doubtful(self, job: str, label: str, reason: str) -> None:
        self._tell("found_doubtful", job, label, reason)

    async def aclose(self) -> None:
        """End the host with everything that it started; one that is still starting is killed. Idempotent."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        was_ready = self._life.phase is HostPhase.READY
        self._happen(Closed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._link is not None:
            await self._link.close(at_once=not was_ready)

    def _happen(self, event: Event) -> None:
        self._life, effects = decide(self._life, event, time.monotonic())
        self._changed.set()
        self._changed = asyncio.Event()
        for effect in effects:
            task = asyncio.create_task(self._begin() if isinstance(effect, Spawn) else self._pause(effect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pause(self, rest: Rest) -> None:
        await self._rest(rest.seconds)
        self._happen(Rested())

    async def _begin(self) -> None:
        """Start a host, and its pool."""
        try:
            name, self._name = self._name, self._name.next
            process = self._spawn(name)
            self._warm_fleet = process.warm_fleet
            self._notes += (process.note,) if process.note and process.note not in self._notes else ()
            link = self._link = HostLink(process, self._ended)
            await link.ask("start")
        except HostLost:
            return  # ``_ended`` was told
        except OSError as error:
            message = f"the process that is to hold Ray did not start: {error}"
            self._happen(Refused(FleetUnavailable(message, "Check the limits on memory and processes.")))
        except CodecfleetError as error:
            self._link = None
            await link.close(at_once=False)
            self._happen(Refused(error))
        else:
            for demand in self._demands.values():
                link.tell("set_demand", demand)
            for batch, behind in self._behind.items():
                link.tell("set_behind", batch, *behind)
            self._happen(HostStarted())

    def _ended(self, link: HostLink, reason: str) -> None:
        if link is not self._link:
            return  # it was refused, and closed
        if self._life.phase is HostPhase.READY:
            self._notes += (f"the process that holds Ray was replaced during the run: {reason}",)
        self._link = None
        self._happen(HostEnded(reason))

    async def _ready(self) -> HostLink:
        """Return the host once it is ready, which it may be already."""
        while self._life.phase is not HostPhase.READY or self._link is None:
            if self._life.phase is HostPhase.CLOSED:
                raise Cancelled("the pool was closed")
            if self._life.phase is HostPhase.FAILED and self._life.error is not None:
                raise self._life.error
            if self._life.phase is HostPhase.ABSENT:
                raise FleetUnavailable("the pool is not started", "Start it first.")
            await self._changed.wait()
        return self._link

    async def _ask(self, method: str, *arguments: object) -> object:
        """Ask the host; a new one is asked again."""
        while True:
            link = await self._ready()
            try:
                return await link.ask(method, *arguments)
            except HostLost:
                continue

    async def _ask_about_runs(self, method: str, *arguments: object) -> object:
        """Ask the host about what runs there; None where nothing does, since there is none."""
        if self._life.phase is not HostPhase.READY or self._link is None:
            return None
        try:
            return await self._link.ask(method, *arguments)
        except (HostLost, CodecfleetError):
            return None

    def _tell(self, method: str, *arguments: object) -> None:
        if self._life.phase is HostPhase.READY and self._link is not None:
            self._link.tell(method, *arguments)

    def _said(self) -> PoolState:
        """Return what the host says; until another is ready, what the last one said."""
        if self._life.phase is HostPhase.READY and self._link is not None:
            self._state = self._link.state
        return self._state

    def _limited(self, slots: int) -> int:
        return slots if self._slots_max is None else min(slots, self._slots_max)

    def _refuse_if_closed(self) -> None:
        if self._closing is not None:
            raise UsageError("the pool is closed")


def default_pool(address: str | None, slots: int | None, *, dlas: int = 0) -> Pool:
    """Return the pool for a fleet in this process; the arguments are ``ConnectedPool``'s.

    A Ray driver, task, actor or job uses its own connection. Elsewhere no Ray comes into the process; on this machine
    the user's warm fleet is used, if there is one.
    """
    if holds_ray():
        from .leases.connected_pool import ConnectedPool  # noqa: PLC0415 - only Ray's own processes need it

        return ConnectedPool(address, slots, dlas=dlas)
    spawn = partial(start_host, address, slots, dlas)
    if named_cluster(address):
        return HostedPool(spawn)
    if not dlas and may_use_warm_fleet(os.environ):
        spawn = partial(warm_or_own, spawn, slots)
    return HostedPool(spawn, slots=slots, sole_processor=_own_machine)


def _own_machine() -> Inventory | None:
    from .own_machine import sole_processor  # noqa: PLC0415 - a job asks once, beside the start

    return sole_processor()


def holds_ray() -> bool:
    """Return whether this process is a Ray driver, task, actor or job, whose connection is to be used."""
    is_connected = getattr(sys.modules.get("ray"), "is_initialized", bool)
    return is_connected() or "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
