"""A pool whose host dies: what is lost, what goes on, and how it ends."""

import asyncio
import socket
from typing import NoReturn

import pytest

from codecfleet.actors.process.process import StartedProcess
from codecfleet.cluster.autoscale.later import LaterDemand
from codecfleet.cluster.fleet.life import LOSSES_MAX
from codecfleet.cluster.fleet.pool import Asked, ClientName, JobState, Pool, PoolState, more_slots
from codecfleet.cluster.fleet.remote_pool import SILENT_BEATS, RemotePool
from codecfleet.cluster.fleet.run import Doubt, WorkRun
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.errors import Cancelled, FleetUnavailable, UsageError, WorkerLost
from codecfleet.testing import FakeHosts, LocalPool, works
from codecfleet.testing.fleet.local_pool import HERE

ENDLESS_S = 3600


class AskedPool(LocalPool):
    """A pool of one slot that remembers what it was told, and may refuse to start."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__(1)
        self.asked: list[tuple[str, Asked | None]] = []
        self.refusal = refusal
        self.never: FleetUnavailable | None = None

    @property
    def state(self) -> PoolState:
        """Have a note, and something to say of each job."""
        job = JobState(1, 1, waits_for="nothing stops it")
        return PoolState(1, ("it is a fake",), {"j": job}, JobState(1, 1, never=self.never))

    async def start(self) -> None:
        """Refuse, if it is to."""
        if self.refusal is not None:
            raise self.refusal

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Remember it."""
        self.asked.append((job, demand))


class Rests:
    """Rests that take no time, and are counted."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Rest."""
        self.seconds.append(seconds)


def hosted(*pools: Pool) -> tuple[RemotePool, FakeHosts]:
    """Return a pool whose hosts serve these."""
    hosts = FakeHosts(pools)
    return RemotePool(hosts, rest=Rests()), hosts


async def running(pool: Pool) -> WorkRun[tuple[float, float]]:
    """Submit endless work, and wait until it runs."""
    run = pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S))
    while not run.progress.worker:  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0.001)
    return run


async def test_lost_with_its_host_and_done_by_the_next() -> None:
    """Work of a dead host is lost, as with a worker; the next host knows the demands, and the report is told."""
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
        assert "started again: it was killed" in lost.waits_for
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
        assert second.doubts == [Doubt(HERE, "j", "it is short", is_wrong=True)]
        assert pool.state.notes == (
            "it is a fake",
            "the process that holds Ray was replaced during the run: it was killed by SIGKILL",
        )
    assert hosts.started == 2
    assert [name.rpartition(".")[2] for name in hosts.names] == ["0", "1"]


async def test_waits_across_hosts() -> None:
    """What only asks is asked again of the next host."""
    pool, hosts = hosted(AskedPool(), LocalPool(1))
    async with pool:
        waiting = asyncio.create_task(more_slots(pool, "j", 1))
        await pool.submit(works.Count(job="j", label="a"))
        hosts.kill()
        assert await pool.preview(plain_demand("j", 1))
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert not waiting.done()
        waiting.cancel()


async def test_too_many_hosts_lost() -> None:
    """Once too many hosts are lost there is nothing to run on, for what runs and for what comes."""
    pool, hosts = hosted(*(AskedPool() for _ in range(LOSSES_MAX + 1)))
    async with pool:
        for _ in range(LOSSES_MAX):
            run = await running(pool)
            hosts.kill()
            with pytest.raises(WorkerLost):
                await run
            await more_slots(pool, "j", 0)
        run = await running(pool)
        hosts.kill()
        for doomed in (run, pool.submit(works.Count(job="j", label="b")), more_slots(pool, "j", 0)):
            with pytest.raises(FleetUnavailable, match="ended 4 times in a row, last: it was killed by SIGKILL"):
                await doomed


async def test_a_defect_at_its_start_ends_the_pool() -> None:
    """An unexpected error does not leave work waiting without end: its task and name are reported."""

    def spawn(_name: ClientName) -> StartedProcess:
        raise KeyError("a defect")

    pool = RemotePool(spawn)
    with pytest.raises(FleetUnavailable, match="the pool failed at the start of a host: KeyError: 'a defect'"):
        await pool.start()
    with pytest.raises(FleetUnavailable, match="the start of a host"):
        await pool.submit(works.Count(job="j", label="a"))
    assert isinstance(pool.state.of("j").never, FleetUnavailable)
    await pool.aclose()


async def test_a_defect_while_it_runs_ends_the_work() -> None:
    """A host whose beats cannot be read is replaced; its work fails with the reason."""
    pool, hosts = hosted(AskedPool())
    async with pool:
        run = await running(pool)

        def fail(_seconds: float) -> NoReturn:
            raise RuntimeError("a defect")

        pool._rest = fail
        hosts.kill()
        with pytest.raises(WorkerLost):
            await run
        with pytest.raises(FleetUnavailable, match="the pool failed at the start of a host: RuntimeError"):
            await pool.submit(works.Count(job="j", label="b"))


async def test_an_error_is_not_answered_once_ray_is_lost() -> None:
    """What the end of Ray looks like to running work does not reach its job: the host's end does."""
    pool, hosts = hosted(AskedPool(), AskedPool())
    async with pool:
        hosts.lose_ray()
        run = pool.submit(works.RaiseError(job="j", label="a", error=FleetUnavailable("gone")))
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        hosts.kill()
        with pytest.raises(WorkerLost):
            await run


async def test_the_end_of_ray_is_not_the_end_of_jobs() -> None:
    """A pool without its Ray will never have slots again; the next host will, so jobs do not hear of it."""
    first = AskedPool()
    pool, hosts = hosted(first, AskedPool())
    async with pool:
        hosts.lose_ray()
        first.never = FleetUnavailable("Ray itself ended")
        run = await running(pool)  # its progress comes with what is said of the state
        assert pool.state.others.never is None
        run.cancel()


async def test_what_refuses_the_start_is_raised() -> None:
    """The first start is not repeated; a later job's is."""
    pool, hosts = hosted(AskedPool(UsageError("no such address")), AskedPool())
    with pytest.raises(UsageError, match="no such address"):
        await pool.start()
    assert hosts.started == 1
    await pool.start()
    assert hosts.started == 2
    await pool.aclose()


async def test_a_host_that_cannot_be_spawned() -> None:
    """The kernel's refusal is told."""

    def spawn(_name: ClientName) -> StartedProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.raises(FleetUnavailable, match=r"did not start: .*Resource temporarily unavailable"):
        await RemotePool(spawn).start()


async def test_not_started() -> None:
    """Work for a pool that was never started is refused."""
    pool, _ = hosted()
    with pytest.raises(FleetUnavailable, match="not started"):
        await pool.submit(works.Count(job="j", label="a"))


async def test_closed_while_it_starts() -> None:
    """The host is killed, and what waits for it is cancelled."""

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
    """One that says nothing for too many beats is given up; they are counted, not timed."""
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
