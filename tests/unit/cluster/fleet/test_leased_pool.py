"""The pool with leases on a fake cluster: cores of a job, names of connections, deaths, shipped files."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from codecfleet.actors.worker.orders import GoneClients
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import ClientName, more_slots
from codecfleet.cluster.machine import OomKills
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.errors import FleetUnavailable, WorkAbandoned, WorkerLost, WorkerOutOfMemory
from codecfleet.testing import works

from .leased import leased_pool

if TYPE_CHECKING:
    from collections.abc import Callable


class Noting(SupervisorRunner):
    """A supervisor that records which clients leave and whose files are served; ``refuse`` may refuse files."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.departed: list[str] = []
        self.served: list[str] = []
        self.refuse: Callable[[], object] | None = None

    async def depart(self, client: str) -> None:
        self.departed.append(client)
        await super().depart(client)

    def files_address(self, client: str) -> str:
        return f"head:6379/files-{client}"

    async def serve_files(self, client: str) -> None:
        if self.refuse is not None:
            self.refuse()
            raise FleetUnavailable("the reader did not start", "Look at `ray status`.")
        self.served.append(client)


async def cores_of(pool: LeasedPool, segments: int, *, job: str = "j", workers_max: int | None = None) -> int:
    """Return the cores of a job once all its segments may run."""
    pool.set_demand(job, replace(plain_demand(job, segments), workers_max=workers_max))
    async with asyncio.timeout(20):
        await more_slots(pool, job, min(segments, workers_max or segments) - 1)
    return pool.state.of(job).cores


@pytest.mark.parametrize(
    ("is_alone", "segments", "workers_max", "cores"),
    [
        (True, 3, None, 8),
        (True, 8, None, 8),
        # Other programs may bring work, so a job uses at most as many idle cores as it has slots.
        (False, 3, None, 6),
        (False, 6, None, 8),
        # A limit on slots also limits the cores; a limit that is never reached has no effect.
        (True, 3, 2, 4),
        (True, 3, 8, 8),
    ],
)
async def test_idle_cores_count_where_no_other_program_uses_them(
    *, is_alone: bool, segments: int, workers_max: int | None, cores: int
) -> None:
    """A job uses a whole machine if no other program does; on a cluster, it uses at most twice its slots."""
    pool, _, _ = leased_pool(8, is_alone=is_alone)
    async with pool:
        assert await cores_of(pool, segments, workers_max=workers_max) == cores


async def test_the_slots_of_a_limited_fleet_have_two_cores_each() -> None:
    """With a limit of three slots, a job may use six cores, even for a single segment."""
    pool, _, _ = leased_pool(8, 3, is_alone=True)
    async with pool:
        assert [await cores_of(pool, 1), await cores_of(pool, 3)] == [6, 6]


async def test_what_another_job_uses_is_not_idle() -> None:
    """Two jobs of one fleet never count the same cores."""
    pool, _, _ = leased_pool(8, is_alone=True)
    async with pool:
        assert await cores_of(pool, 2, job="first") == 8
        assert await cores_of(pool, 4, job="second") == 6
        assert pool.state.of("first").cores == 4
        assert pool.state.of("unknown").cores == 2


@pytest.mark.parametrize(("kills", "error"), [(8, WorkerOutOfMemory), (7, WorkerLost)])
async def test_a_kill_for_memory_is_named(kills: int, error: type[WorkerLost]) -> None:
    """If the kernel counts an OOM kill, all work of the dead worker ran out of memory; otherwise it just died."""
    count = 7
    pool, backend, _ = leased_pool(2, killed_for_memory=OomKills(lambda: count).explains_a_death)
    async with pool:
        running = [pool.submit(works.Dwell(job="j", label=label, seconds=3)) for label in "ab"]
        while not all(run.progress.worker for run in running):  # noqa: ASYNC110 - another thread's progress sets no event
            await asyncio.sleep(0.001)
        count = kills
        backend.kill(next(iter(backend.workers)), "signal 9")
        found = await asyncio.gather(*running, return_exceptions=True)
    assert [type(each) for each in found] == [error, error]
    assert str(found[0]) == str(found[1])


async def test_work_that_only_a_supervisor_cancelled_is_lost() -> None:
    """A supervisor that was cut off counts this program as gone and cancels its work, which may run again."""
    pool, backend, _ = leased_pool(2, name=ClientName("fleet"))
    async with pool:
        run = pool.submit(works.Dwell(job="j", label="a", seconds=3))
        while not run.progress.worker:  # noqa: ASYNC110 - another thread's progress sets no event
            await asyncio.sleep(0.001)
        worker = next(iter(backend.workers))
        await backend.abandon(worker, GoneClients(frozenset(["fleet.0"])))
        with pytest.raises(WorkAbandoned, match="cancelled by a supervisor") as lost:
            await run
        assert lost.value.where == worker
        assert await pool.submit(works.Count(job="j", label="a"))


async def test_connections_that_are_gone_give_their_slots_back() -> None:
    """The third connection of a fleet first reports that the two earlier ones have left."""
    pool, _, supervisor = leased_pool(1, client=Noting, name=ClientName("fleet").next.next)
    assert isinstance(supervisor, Noting)
    async with pool:
        assert supervisor.departed == ["fleet.0", "fleet.1"]
    assert supervisor.departed[2:] == ["fleet.2"]


def test_names_differ() -> None:
    """Two fleets have different names; two connections of one fleet have different names, too."""
    one, other = ClientName(), ClientName()
    assert len({str(one), str(one.next), str(other)}) == 3
    assert one.earlier == ()


async def test_files_are_served_for_the_first_work_that_ships_one() -> None:
    """The address of shipped files is known early. If they cannot be served, the work fails without taking a slot."""
    pool, _, supervisor = leased_pool(1, client=Noting, name=ClientName("fleet"))
    assert isinstance(supervisor, Noting)
    async with pool:
        assert pool.state.files_address == "head:6379/files-fleet.0"
        await pool.submit(works.Count(job="j", label="a"))
        assert supervisor.served == []
        supervisor.refuse = bool
        runs = [pool.submit(works.Count(job="j", label=label, ships=True)) for label in "bc"]
        for run in runs:
            with pytest.raises(FleetUnavailable, match="the reader did not start"):
                await run
            assert run.progress.worker == ""
        supervisor.refuse = None
        for label in "de":
            await pool.submit(works.Count(job="j", label=label, ships=True))
        assert supervisor.served == ["fleet.0"]


async def test_a_failed_start_of_the_reader_leaves_a_newer_one_alone() -> None:
    """Work that waited for a failed start does not drop the reader that newer work has started."""
    pool, _, supervisor = leased_pool(1, client=Noting, name=ClientName("fleet"))
    assert isinstance(supervisor, Noting)
    newer = []

    def submit() -> None:
        supervisor.refuse = None
        newer.extend(pool.submit(works.Count(job="j", label=label, ships=True)) for label in "bc")

    async with pool:
        supervisor.refuse = submit
        with pytest.raises(FleetUnavailable):
            await pool.submit(works.Count(job="j", label="a", ships=True))
        with pytest.raises(FleetUnavailable):
            await newer[0]  # submitted while the failed start was still known
        await newer[1]
        await pool.submit(works.Count(job="j", label="d", ships=True))
        assert supervisor.served == ["fleet.0"]
