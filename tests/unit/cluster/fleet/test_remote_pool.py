"""A pool whose host dies: which work is lost, how jobs continue, and when the pool ends."""

import asyncio
import socket

import pytest

from codecfleet.actors.process.process import StartedProcess
from codecfleet.cluster.autoscale.later import LaterDemand
from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.fleet import serving
from codecfleet.cluster.fleet.pool import Asked, ClientName, JobState, Pool, PoolState, more_slots
from codecfleet.cluster.fleet.remote_pool import SILENT_BEATS, RemotePool
from codecfleet.cluster.fleet.run import WorkRun
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.errors import Cancelled, FleetUnavailable, WorkerLost
from codecfleet.testing import FakeHosts, LocalPool, works
from codecfleet.testing.fleet.local_pool import HERE

ENDLESS_S = 3600
PATIENCE_S = 10


class AskedPool(LocalPool):
    """A pool with one slot that records demands."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked: list[tuple[str, Asked | None]] = []
        self.never: FleetUnavailable | None = None

    @property
    def state(self) -> PoolState:
        job = JobState(1, 1, waits_for="nothing stops it")
        return PoolState(1, ("it is a fake",), {"j": job}, JobState(1, 1, never=self.never))

    def set_demand(self, job: str, demand: Asked | None) -> None:
        self.asked.append((job, demand))


class GrantingPool(LocalPool):
    """A pool that grants a job its first slot when the job has a demand."""

    def __init__(self) -> None:
        super().__init__(1)
        self._state = PoolState(1, jobs={"j": JobState()})

    @property
    def state(self) -> PoolState:
        return self._state

    def set_demand(self, job: str, demand: Asked | None) -> None:
        before, self._state = self._state, PoolState(1, jobs={job: JobState(int(demand is not None), 1)})
        before.changed.set()


class Rests:
    """Counts pauses, which take no time."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def hosted(*pools: Pool) -> tuple[RemotePool, FakeHosts]:
    """Return a remote pool and its fake hosts, which serve the given pools in order."""
    hosts = FakeHosts(pools)
    return RemotePool(hosts, rest=Rests()), hosts


async def running(pool: Pool, job: str = "j") -> WorkRun[tuple[float, float]]:
    """Submit endless work, and wait until it runs."""
    run = pool.submit(works.Dwell(job=job, label="a", seconds=ENDLESS_S))
    while not run.progress.worker:  # noqa: ASYNC110 - progress sets no event
        await asyncio.sleep(0.001)
    return run


async def test_lost_with_its_host_and_done_by_the_next() -> None:
    """If a host dies, its work is lost; the next host gets the demands, and the report gets a note."""
    first, second = AskedPool(), AskedPool()
    pool, hosts = hosted(first, second)
    async with pool:
        demand, later = plain_demand("j", 3), LaterDemand("j", 30, 9000)
        pool.set_demand("j", demand)
        pool.set_demand("b", later)
        pool.set_demand("over", later)
        pool.set_demand("over", None)
        run = await running(pool)
        hosts.kill()
        with pytest.raises(WorkerLost, match="the host of a's worker is gone: it was killed by SIGKILL"):
            await run
        lost = pool.state.of("j")
        assert lost.slots == 0
        assert "being restarted: it was killed" in lost.waits_for
        await more_slots(pool, "j", 0)
        assert pool.state.of("j") == JobState(1, 1, waits_for="nothing stops it")
        done = pool.submit(works.Count(job="j", label="a", frames=3))
        assert await done == 3
        assert first.asked[:4] == [("j", demand), ("b", later), ("over", later), ("over", None)]
        assert second.asked == [("j", demand), ("b", later)]
        assert done.origin is not None
        done.origin.found_wrong("it is short")
        pool.set_demand("j", None)
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert second.asked[2:] == [("j", None)]
        assert second.faults == [DeviceFault(HERE, "j", "it is short", FaultVerdict.WRONG)]
        assert pool.state.notes == (
            "it is a fake",
            "the process connected to Ray was replaced during the run: it was killed by SIGKILL",
        )
    assert hosts.started == 2
    assert [name.rpartition(".")[2] for name in hosts.names] == ["0", "1"]


async def test_a_change_after_the_start_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first grant of slots does not wait for the host's next sign of life."""
    monkeypatch.setattr(serving, "BEAT_S", ENDLESS_S)
    monkeypatch.setattr(serving, "NEWS_S", 0)
    pool, _ = hosted(GrantingPool())
    async with asyncio.timeout(PATIENCE_S), pool:
        pool.set_demand("j", plain_demand("j", 3))
        await more_slots(pool, "j", 0)


async def test_waits_across_hosts() -> None:
    """Waits and previews continue with the next host."""
    pool, hosts = hosted(AskedPool(), LocalPool(1))
    async with pool:
        waiting = asyncio.create_task(more_slots(pool, "j", 1))
        await pool.submit(works.Count(job="j", label="a"))
        hosts.kill()
        assert await pool.preview(plain_demand("j", 1))
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert not waiting.done()
        waiting.cancel()


async def test_a_defect_at_its_start_ends_the_pool() -> None:
    """After an unexpected error no work waits for ever; the error names the failed task."""

    def spawn(_name: ClientName) -> StartedProcess:
        raise KeyError("a defect")

    pool = RemotePool(spawn)
    with pytest.raises(FleetUnavailable, match="the pool failed at the start of a host: KeyError: 'a defect'"):
        await pool.start()
    with pytest.raises(FleetUnavailable, match="the start of a host"):
        await pool.submit(works.Count(job="j", label="a"))
    assert isinstance(pool.state.of("j").never, FleetUnavailable)
    await pool.aclose()


async def test_an_error_is_not_answered_once_ray_is_lost() -> None:
    """If Ray ends, a running job gets the end of the host as its error, not the error of its work."""
    pool, hosts = hosted(AskedPool(), AskedPool())
    async with pool:
        hosts.lose_ray()
        run = pool.submit(works.RaiseError(job="j", label="a", error=FleetUnavailable("gone")))
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        hosts.kill()
        with pytest.raises(WorkerLost):
            await run


async def test_the_end_of_ray_is_not_the_end_of_jobs() -> None:
    """A pool that lost its Ray never has slots again, but jobs get no error, because the next host has slots."""
    first = AskedPool()
    pool, hosts = hosted(first, AskedPool())
    async with pool:
        hosts.lose_ray()
        first.never = FleetUnavailable("Ray itself ended")
        run = await running(pool)  # the progress arrives with the state
        assert pool.state.others.never is None
        run.cancel()


async def test_a_host_that_cannot_be_spawned() -> None:
    """If a host cannot be started, the error has the kernel's reason."""

    def spawn(_name: ClientName) -> StartedProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.raises(FleetUnavailable, match=r"did not start: .*Resource temporarily unavailable"):
        await RemotePool(spawn).start()


async def test_closed_while_it_starts() -> None:
    """The host is killed, and whatever waits for it is cancelled."""

    class Slow(LocalPool):
        async def start(self) -> None:
            await asyncio.Event().wait()

    pool, hosts = hosted(Slow())
    starting = asyncio.create_task(pool.start())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await pool.aclose()
    with pytest.raises(Cancelled):
        await starting
    assert hosts.started <= 1


async def test_a_silent_host_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is killed after too many missing beats, which are counted rather than timed."""
    monkeypatch.setattr("codecfleet.cluster.fleet.remote_pool.BEAT_S", 0)
    gone = asyncio.Event()
    ends: list[socket.socket] = []

    def spawn(_name: ClientName) -> StartedProcess:
        ours, theirs = socket.socketpair()
        ends.append(theirs)

        def kill() -> None:
            theirs.close()
            gone.set()

        return StartedProcess(ours, kill, lambda: "it was killed by SIGKILL")

    pool = RemotePool(spawn, rest=lambda _: asyncio.Event().wait())  # type: ignore[arg-type]
    starting = asyncio.create_task(pool.start())
    await gone.wait()
    assert SILENT_BEATS > 10
    await pool.aclose()
    with pytest.raises(Cancelled):
        await starting
    assert len(ends) == 1
