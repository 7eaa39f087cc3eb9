"""A warm fleet without processes: which programs it serves, what each takes back, and when the fleet ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from codecfleet.actors.process.process import StartedProcess
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.cluster.fleet.host import running as host
from codecfleet.cluster.fleet.host.running import WarmServer
from codecfleet.cluster.fleet.meeting_place import Greeting, MeetingPlace, code_name, locked_place
from codecfleet.cluster.fleet.pool import Asked, ClientName
from codecfleet.cluster.fleet.remote_pool import RemotePool
from codecfleet.cluster.fleet.serving import ServedPool
from codecfleet.cluster.fleet.warm import find_warm, take_down, warm_or_own
from codecfleet.cluster.operate.desk import Seen, fleet_status, watch_status
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.supervisor.status import History, Status
from codecfleet.errors import Cancelled, FleetUnavailable, UsageError, WorkerLost
from codecfleet.testing import FakeHosts, LocalPool, works

from .test_remote_pool import ENDLESS_S, running


class Noted(LocalPool):
    """A pool that records its demands."""

    def __init__(self, slots: int = 2) -> None:
        super().__init__(slots)
        self.demands: dict[str, Demand] = {}

    def set_demand(self, job: str, demand: Asked | None) -> None:
        self.demands.pop(job, None)
        if isinstance(demand, Demand):
            self.demands[job] = demand


class Watched:
    """A supervisor whose status differs each time."""

    asked = 0

    def status(self) -> Status:
        self.asked += 1
        return Status(pid=self.asked, host="here", nodes=(), devices=(), workers=(), jobs=(), quarantine=(), log=())

    def history(self, stations: tuple[str, ...]) -> History:
        del stations
        return History()


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory for this test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@asynccontextmanager
async def warm(
    pool: LocalPool,
    *,
    name: str = "",
    idle_s: float = ENDLESS_S,
    useless: str = "",
    supervisor: Watched | None = None,
) -> AsyncIterator[tuple[WarmServer, "asyncio.Task[None]"]]:
    """Keep a warm fleet, of this code or of another, during the block."""
    await pool.start()
    name = name or code_name()
    with locked_place() as place:
        listener = place.listen(name)
    greeting = Greeting("1.2.3", pool.state.slots, idle_s)
    served = ServedPool(pool, spent=lambda: useless, supervisor=lambda: supervisor)
    kept = WarmServer(listener, served, greeting)
    running = asyncio.create_task(kept.run())
    try:
        yield kept, running
    finally:
        kept.stop()
        await running


async def found() -> str:
    """Look for a warm fleet as a program does; return the greeting or the reason."""
    fleet, note = await asyncio.to_thread(find_warm)
    if fleet is None:
        return note
    fleet.end.close()
    return f"found {fleet.greeting.version}"


class Program:
    """A program's pool, on a warm fleet or on hosts of the program."""

    def __init__(self, slots: int | None = None, *own: LocalPool) -> None:
        self.hosts = FakeHosts(own)
        self.slots = slots

    async def pool(self) -> RemotePool:
        """Return the pool. A thread looks for the warm fleet, which this event loop serves."""
        loop = asyncio.get_running_loop()

        def own(name: ClientName) -> StartedProcess:
            return asyncio.run_coroutine_threadsafe(self._start(name), loop).result()

        first = await asyncio.to_thread(partial(warm_or_own, own, self.slots, ClientName()))
        started = [first]
        return RemotePool(lambda name: started.pop() if started else self.hosts(name), slots=self.slots)

    async def _start(self, name: ClientName) -> StartedProcess:
        return self.hosts(name)


async def test_programs_share_it_and_each_takes_back_its_own() -> None:
    """A program that closes takes back its own work and demands; those of other programs continue."""
    pool = Noted()
    async with warm(pool):
        first, second = await Program().pool(), await Program().pool()
        async with second:
            async with first:
                assert first.state.warm_fleet
                first.set_demand("j", plain_demand("j", 3))
                second.set_demand("k", plain_demand("k", 3))
                mine, theirs = await running(first, "j"), await running(second, "k")
                assert set(pool.demands) == {"j", "k"}
            with pytest.raises(Cancelled):
                await mine
            assert set(pool.demands) == {"k"}
            assert not theirs.result.done()
            assert await second.submit(works.Count(job="k", label="b", frames=7)) == 7
            theirs.cancel()
            with suppress(asyncio.CancelledError):
                await theirs
        third = await Program().pool()
        async with third:
            assert await third.submit(works.Count(job="l", label="c", frames=3)) == 3


async def test_a_program_that_dies_gives_all_back() -> None:
    """If a program's connection ends, its work is cancelled, and its demands are cleared."""
    pool = Noted(1)
    async with warm(pool) as (kept, _):
        program = await Program(None, LocalPool(1)).pool()
        await program.start()
        program.set_demand("j", plain_demand("j", 3))
        task = await running(program, "j")
        assert program._host is not None
        program._host.child.kill()
        with pytest.raises(WorkerLost, match=r"the warm fleet .* ended"):
            await task
        while kept._programs:  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0)
        assert pool.demands == {}
        await program.aclose()


async def test_a_job_goes_on_without_it() -> None:
    """If the fleet ends, running work is lost, and the next attempt runs on a host of the program's own."""
    pool, own = Noted(1), LocalPool(1)
    program = Program(None, own)
    async with warm(pool) as (kept, _):
        mine = await program.pool()
        await mine.start()
        task = await running(mine, "j")
        kept.stop()
        with pytest.raises(WorkerLost, match=r"the warm fleet .* ended"):
            await task
        assert await mine.submit(works.Count(job="j", label="a", frames=5)) == 5
        assert (program.hosts.started, mine.state.warm_fleet) == (1, None)
        assert "was replaced during the run: the warm fleet" in mine.state.notes[0]
        await mine.aclose()


async def test_it_ends_when_no_program_has_come_for_a_while() -> None:
    """The idle time begins with the start of the fleet, and again when the last program has gone."""
    async with warm(Noted(), idle_s=0) as (_, done):
        await done
    async with warm(Noted(), idle_s=ENDLESS_S) as (kept, _):
        program = await Program().pool()
        await program.start()
        assert kept._idle is not None
        assert kept._idle.cancelled()
        await program.aclose()
        while kept._programs:  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0)
        assert not kept._idle.cancelled()


async def test_other_code_is_left_alone_with_a_word() -> None:
    """A program of another version starts a host of its own, and its report says why."""
    pool = Noted()
    async with warm(pool, name="0123456789abcdef"):
        program = await Program(None, LocalPool(1)).pool()
        async with program:
            assert program.state.warm_fleet is None
            (note,) = program.state.notes
        assert note.endswith("was not used: it runs different code (codecfleet 1.2.3)")


async def test_too_few_slots() -> None:
    """A program that requests more slots than the fleet has starts a host; one that requests fewer gets no more."""
    pool = Noted(2)
    async with warm(pool):
        many = await Program(3, LocalPool(3)).pool()
        async with many:
            assert (many.state.warm_fleet, many.state.slots) == (None, 3)
            assert "it has 2 slots, not 3" in many.state.notes[0]
        few = await Program(1).pool()
        async with few:
            few.set_demand("j", plain_demand("j", 5))
            await few.preview(plain_demand("j", 5))  # an answer shows that earlier requests have arrived
            assert (few.state.slots, pool.demands["j"].workers_max) == (1, 1)


async def test_one_that_will_never_work_again_ends() -> None:
    """If a fleet can never work again, it ends, and a later program may find a new fleet."""
    pool = Noted()
    async with warm(pool, useless="every worker process died 5 times in a row") as (_, done):
        assert await found() == ""
        await done


async def test_no_other_user_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection from another user is closed without a greeting."""
    pool = Noted()
    monkeypatch.setattr(host, "peer_of", lambda _end: (1, -1))
    async with warm(pool):
        assert await found() == ""


async def test_what_cannot_be_read_ends_its_own_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    """A program that sends invalid data is disconnected, and the log says so."""
    pool = Noted()
    async with warm(pool):
        with MeetingPlace.open(make=False) as place:
            end = place.connect(code_name())
        with end:
            await asyncio.to_thread(Greeting.received, end, ENDLESS_S)
            end.sendall(b"\0\0\0\4junk")
            while await asyncio.to_thread(end.recv, 1):
                pass
        assert await found() == "found 1.2.3"
    (dropped,) = [each.message for each in caplog.records]
    assert dropped.startswith("a program was disconnected: ")


def test_without_a_fleet_nothing_is_said() -> None:
    """If no fleet was ever started, there is no note, and nothing ends."""
    assert find_warm() == (None, "")
    assert take_down() == []


async def test_who_looks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet that stays on this machine looks for a warm fleet, unless CODECFLEET_WARM is "never" or DLAs are used."""
    looked: list[int | None] = []

    def refuse(*_settings: object) -> StartedProcess:
        raise OSError(11, "not in this test")

    def look(_own: object, slots: int | None, _name: ClientName) -> StartedProcess:
        looked.append(slots)
        return refuse()

    # independent of what ran earlier in this process
    monkeypatch.setattr("codecfleet.cluster.fleet.default.holds_ray", bool)
    monkeypatch.setattr("codecfleet.cluster.fleet.default.warm_or_own", look)
    monkeypatch.setattr("codecfleet.cluster.fleet.default.start_host", refuse)
    for value, expected in (("never", []), ("", [3, 3])):
        monkeypatch.setenv("CODECFLEET_WARM", value)
        for address, dlas in ((None, 0), ("local", 0), (None, 1), ("head:6379", 0)):
            with pytest.raises(FleetUnavailable, match="not in this test"):
                await default_pool(address, 3, dlas=dlas).start()
        assert looked == expected


async def test_its_status_is_that_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no cluster is named, the status is that of the warm fleet, read over one connection."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    async with warm(Noted(), supervisor=Watched()) as (_, running_):
        first = await fleet_status(None)
        assert first is not None
        assert (first.host, first.pid) == ("here", 1)
        seen: list[Seen] = []
        watching = asyncio.create_task(watch_status("local", seen.append, 0.0))
        while len(seen) < 3:  # noqa: ASYNC110 - a list of the test sets no event
            await asyncio.sleep(0)
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        assert [each.pid for each in seen[:3] if isinstance(each, Status)] == [2, 3, 4]
        assert not running_.done()


async def test_a_fleet_that_ends_is_no_longer_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch ends with a next step when the warm fleet ends, and fails if there is no fleet."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    async with warm(Noted(), supervisor=Watched()) as (kept, _):
        watching = asyncio.create_task(watch_status(None, lambda _: kept.stop(), 0.0))
        with pytest.raises(FleetUnavailable, match="codecfleet up"):
            await watching
    with pytest.raises(UsageError, match="no cluster is named, and no warm fleet runs"):
        await fleet_status(None)
