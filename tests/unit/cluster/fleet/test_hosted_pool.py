"""A pool whose host dies: what is lost, what goes on, and how it ends."""

import asyncio
import socket

import pytest

from codecfleet.cluster.fleet.client_name import ClientName
from codecfleet.cluster.fleet.hosted_pool import HostedPool
from codecfleet.cluster.fleet.life import LOSSES_MAX
from codecfleet.cluster.fleet.link import SILENT_BEATS
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.process.process import StartedProcess
from codecfleet.errors import Cancelled, FleetUnavailable, UsageError, WorkerLost
from codecfleet.testing import FakeHosts, LocalPool, works

ENDLESS_S = 3600


class AskedPool(LocalPool):
    """A pool of one slot that remembers what it was told, and may refuse to start."""

    def __init__(self, refusal: Exception | None = None) -> None:
        super().__init__(1)
        self.demands: list[Demand] = []
        self.cleared: list[str] = []
        self.behind: list[tuple[str, str, int, int]] = []
        self.wrong: list[tuple[str, str, str]] = []
        self.refusal = refusal

    @property
    def notes(self) -> tuple[str, ...]:
        """Return one."""
        return ("it is a fake",)

    async def start(self) -> None:
        """Refuse, if it is to."""
        if self.refusal is not None:
            raise self.refusal

    def set_demand(self, demand: Demand) -> None:
        """Remember it."""
        self.demands.append(demand)

    def clear_demand(self, job: str) -> None:
        """Remember it."""
        self.cleared.append(job)

    def set_behind(self, batch: str, like: str, segments: int, frames: int) -> None:
        """Remember it."""
        self.behind.append((batch, like, segments, frames))

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        """Remember it."""
        self.wrong.append((job, label, reason))

    def waits_for(self, job: str) -> str:
        """Say something of the job."""
        return f"nothing stops {job}"

    async def more_slots(self, job: str, beyond: int) -> None:
        """Have one slot."""
        if beyond:
            await super().more_slots(job, beyond)


class Rests:
    """Rests that take no time, and are counted."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        """Rest."""
        self.seconds.append(seconds)


def hosted(*pools: Pool) -> tuple[HostedPool, FakeHosts]:
    """Return a pool whose hosts serve these."""
    hosts = FakeHosts(pools)
    return HostedPool(hosts, rest=Rests()), hosts


async def running(pool: Pool) -> "asyncio.Task[tuple[float, float]]":
    """Submit endless work, and wait until it runs."""
    task = asyncio.create_task(pool.submit(works.Dwell(job="j", label="a", seconds=ENDLESS_S)))
    while not await pool.progress("j"):  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0)
    return task


async def test_lost_with_its_host_and_done_by_the_next() -> None:
    """Work of a dead host is lost, as with a worker; the next host knows the demands, and the report is told."""
    first, second = AskedPool(), AskedPool()
    pool, hosts = hosted(first, second)
    async with pool:
        demand = plain_demand("j", 3)
        pool.set_demand(demand)
        pool.set_behind("b", "j", 30, 9000)
        pool.set_behind("over", "j", 30, 9000)
        pool.set_behind("over", "j", 0, 0)
        task = await running(pool)
        hosts.kill()
        with pytest.raises(WorkerLost, match="the host of a's worker is gone: it was killed by SIGKILL"):
            await task
        assert (pool.slots_for("j"), await pool.progress("j")) == (0, {})
        assert "started again: it was killed" in pool.waits_for("j")
        await pool.more_slots("j", 0)
        assert (pool.slots_for("j"), pool.waits_for("j")) == (1, "nothing stops j")
        assert await pool.submit(works.Count(job="j", label="a", frames=3)) == 3
        assert second.demands == first.demands == [demand]
        assert second.behind == [("b", "j", 30, 9000)]
        pool.found_wrong("j", "a", "it is short")
        pool.clear_demand("j")
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        assert (first.cleared, second.cleared, second.wrong) == ([], ["j"], [("j", "a", "it is short")])
        assert pool.notes == (
            "it is a fake",
            "the process that holds Ray was replaced during the run: it was killed by SIGKILL",
        )
    assert hosts.started == 2
    assert [name.rpartition(".")[2] for name in hosts.names] == ["0", "1"]


async def test_waits_across_hosts() -> None:
    """What only asks is asked again of the next host."""
    pool, hosts = hosted(AskedPool(), LocalPool(1))
    async with pool:
        waiting = asyncio.create_task(pool.more_slots("j", 1))
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
            task = await running(pool)
            hosts.kill()
            with pytest.raises(WorkerLost):
                await task
            await pool.more_slots("j", 0)
        task = await running(pool)
        hosts.kill()
        for doomed in (task, pool.submit(works.Count(job="j", label="b")), pool.more_slots("j", 0), pool.start()):
            with pytest.raises(FleetUnavailable, match="ended 4 times in a row, last: it was killed by SIGKILL"):
                await doomed


async def test_an_error_is_not_answered_once_ray_is_lost() -> None:
    """What the end of Ray looks like to running work does not reach its job: the host's end does."""
    pool, hosts = hosted(AskedPool(), AskedPool())
    async with pool:
        hosts.lose_ray()
        task = asyncio.create_task(pool.submit(works.RaiseError(job="j", label="a", error=FleetUnavailable("gone"))))
        assert await pool.submit(works.Count(job="j", label="b")) == 1
        hosts.kill()
        with pytest.raises(WorkerLost):
            await task


async def test_what_refuses_the_start_is_raised() -> None:
    """The first start is not repeated; a later job's is."""
    pool, hosts = hosted(AskedPool(UsageError("no such address")), AskedPool())
    with pytest.raises(UsageError, match="no such address"):
        await pool.start()
    with pytest.raises(UsageError, match="no such address"):
        await pool.start()
    assert hosts.started == 1
    pool.prepare()
    await pool.start()
    assert hosts.started == 2
    await pool.aclose()


async def test_a_host_that_cannot_be_spawned() -> None:
    """The kernel's refusal is told."""

    def spawn(_name: ClientName) -> StartedProcess:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with pytest.raises(FleetUnavailable, match=r"did not start: .*Resource temporarily unavailable"):
        await HostedPool(spawn).start()


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
    monkeypatch.setattr("codecfleet.cluster.fleet.link.BEAT_S", 0)
    gone = asyncio.Event()
    ends: list[socket.socket] = []

    def spawn(_name: ClientName) -> StartedProcess:
        ours, theirs = socket.socketpair()
        ends.append(theirs)

        def kill() -> None:
            theirs.close()
            gone.set()

        return StartedProcess(ours, kill, lambda: "it was killed by SIGKILL")

    pool = HostedPool(spawn, rest=lambda _: asyncio.Event().wait())  # type: ignore[arg-type]
    pool.prepare()
    await gone.wait()
    assert SILENT_BEATS > 10
    await pool.aclose()
    assert len(ends) == 1
