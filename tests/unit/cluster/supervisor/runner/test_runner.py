"""The supervisor's runner on a cluster in memory: decisions are carried out, and results are fed back."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

import pytest

from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.cluster.logs.entry import LogStyle
from codecfleet.cluster.logs.writing import logged_to
from codecfleet.cluster.placement.model.demand import EncoderChoice, plain_demand
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.ray.keeper import Driving
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.node_events import TELL_AGAIN_S
from codecfleet.cluster.supervisor.runner.recording import Decided, decide
from codecfleet.cluster.supervisor.runner.runner import (
    LOOK_S,
    PROBE_WAIT_S,
    SWEEP_LOOKS,
    TICK_S,
    SupervisorRunner,
)
from codecfleet.cluster.supervisor.state import events
from codecfleet.cluster.supervisor.state.events import Order
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.silence import INTERVAL_S, TOGETHER_FACTOR
from codecfleet.cluster.supervisor.state.terms import first_epoch
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.past import EVENTS_KEY, EVERY_S
from codecfleet.cluster.worker_names import NodeId
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

SETTINGS = SupervisorSettings(idle_release_s=30)


class MakeRunner(Protocol):
    """Creates and opens the next supervisor of a cluster, with options of ``SupervisorRunner``."""

    async def __call__(
        self, backend: FakeClusterBackend, settings: SupervisorSettings = SETTINGS, **options: Any
    ) -> SupervisorRunner:
        """Return it."""
        ...


@pytest.fixture
def clock() -> FakeClock:
    """A clock that does not move by itself."""
    return FakeClock()


@pytest.fixture
async def make_runner(clock: FakeClock) -> AsyncIterator[MakeRunner]:
    """A maker of opened runners, which are closed after the test."""
    runners: list[SupervisorRunner] = []

    async def make(
        backend: FakeClusterBackend, settings: SupervisorSettings = SETTINGS, **options: Any
    ) -> SupervisorRunner:
        core = Core(settings, Policy(), first_epoch(len(runners) + 1), clock())
        runners.append(SupervisorRunner(backend, core, settings, clock=clock, sleep=clock.sleep, **options))
        await runners[-1].open()
        return runners[-1]

    yield make
    for runner in runners:
        await runner.close("the test is over")


def two_nodes() -> FakeClusterBackend:
    """Two nodes of two cores."""
    return FakeClusterBackend(tuple(RayNode(node=name, name=f"host-{name}", cores=2, free_cores=2) for name in "ab"))


def report(sequence: int, pieces: int, held: dict[str, int] | None = None, client: str = "one") -> ClientReport:
    """Return the report of a client with one job."""
    return ClientReport(client, f"driver {client}", sequence, (JobReport(plain_demand("j", pieces), held or {}),))


async def settled(runner: SupervisorRunner, said: ClientReport) -> Grants:
    """Renew, let everything that follows happen, and return the client's grants."""
    await runner.renew(said)
    await all_quiet()
    return await runner.renew(said)


async def at_work(make_runner: MakeRunner) -> tuple[FakeClusterBackend, SupervisorRunner, dict[str, int]]:
    """Return a cluster of two nodes, its supervisor, and the slots of a client's job by worker."""
    backend = two_nodes()
    runner = await make_runner(backend)
    return backend, runner, dict((await settled(runner, report(1, 50))).slots["j"])


async def test_a_lease_reserves_starts_and_gives_back(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A job's cores are reserved with its workers, and are free again half a minute after the job has gone."""
    backend, runner, held = await at_work(make_runner)
    assert sum(held.values()) == 4
    assert (backend.reserved_cores, len(backend.workers)) == (4, 2)
    await runner.depart("one")
    await clock.advance(31)
    assert (backend.reserved_cores, backend.workers) == (0, {})


async def test_clients_that_vanish_leave_nothing(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A supervisor that runs for months keeps nothing about killed programs."""
    runner = await make_runner(two_nodes())
    await runner.renew(report(1, 50))
    waiting = asyncio.create_task(runner.renew(report(2, 50), 1))
    await all_quiet()
    await clock.advance(SETTINGS.client_expiry_s + LOOK_S * SWEEP_LOOKS + TICK_S)
    await waiting
    assert runner._calls == {}
    assert len(runner._core.state.clients) == 0


async def test_drivers_are_told_what_they_may_do(make_runner: MakeRunner, clock: FakeClock) -> None:
    """Each supervisor tells each driver once, and again if that failed; nodes without a driver are told nothing."""
    backend = two_nodes()
    backend.drivers = {NodeId("a")}
    runner = await make_runner(backend)
    await clock.advance(TICK_S)
    assert backend.told == [("a", Driving.CLAIMS)]
    backend.tell_error = OSError("the node does not answer")
    for order in (Order.CORDON, Order.DRAIN):
        for node in ("a", "b"):
            runner.ask(order, NodeId(node))
        await clock.advance(TICK_S)
    assert len(backend.told) == 1
    await clock.advance(TELL_AGAIN_S + TICK_S)
    assert backend.told[1:] == [("a", Driving.RESTS)]
    await clock.advance(SETTINGS.retire_s)
    assert runner.idle_s == 0, "what Xids of a resting driver's node said is not stored"
    await runner.close()
    await make_runner(backend)
    await clock.advance(TICK_S)
    assert backend.told[2:] == [("a", Driving.RESTS)]


async def test_a_supervisor_without_resting_drivers_retires(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A user's order for a node without a driver is stored."""
    backend = two_nodes()
    runner = await make_runner(backend)
    runner.ask(Order.DRAIN, NodeId("b"))
    await clock.advance(SETTINGS.retire_s)
    assert runner.idle_s > 0


async def test_an_unprobed_node_may_have_a_driver(make_runner: MakeRunner, clock: FakeClock) -> None:
    """It is told at once what its driver must not do, and after a failed probe what it may do."""
    backend = two_nodes()
    backend.may_probe.clear()
    runner = await make_runner(backend)
    runner.ask(Order.DRAIN, NodeId("a"))
    await clock.advance(TICK_S)
    assert backend.told == [("a", Driving.RESTS)]
    for node in "ab":
        runner.feed(events.ProbeFailed(NodeId(node), "no answer"))
    await clock.advance(TICK_S)
    assert backend.told[1:] == [("b", Driving.CLAIMS)]


async def test_an_urgent_change_moves_the_planned_placement_forward(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A new job is placed at once, although the next placement was planned for an hour later."""
    _, runner, _ = await at_work(make_runner)
    await clock.advance(TICK_S)
    runner._pass_s = 1000.0
    runner.ask(Order.UNCORDON, "a")
    planned = runner._ticking
    grants = await runner.renew(report(1, 1, client="two"), 60)
    assert grants.slots.keys() == {"j"}
    assert planned is not None
    assert planned.cancelled()


async def test_a_planned_placement_need_not_know_its_time(
    make_runner: MakeRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray uses uvloop where it is installed: its ``call_later`` without a delay returns a handle without ``when()``."""
    loop = asyncio.get_running_loop()
    later = loop.call_later

    def as_uvloop(delay: float, callback: Any, *arguments: Any) -> asyncio.Handle:
        return later(delay, callback, *arguments) if delay > 0 else loop.call_soon(callback, *arguments)

    monkeypatch.setattr(loop, "call_later", as_uvloop)
    _, runner, _ = await at_work(make_runner)
    for node in "aba":
        runner.ask(Order.UNCORDON, node)
        assert type(runner._ticking) is asyncio.Handle
    grants = await runner.renew(report(1, 1, client="two"), 60)
    assert grants.slots.keys() == {"j"}


async def test_one_slow_placement_does_not_delay_the_next(
    make_runner: MakeRunner, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next placement waits five times as long as the shorter of the last two took."""
    _, runner, _ = await at_work(make_runner)
    took_s = [0.5, 9.0, 0.5, 8.0, 9.0]

    def slow(core: Core, event: events.SupervisorEvent, now_s: float) -> Decided:
        clock._now_s += took_s.pop(0) if took_s else 0.0
        return decide(core, event, now_s)

    monkeypatch.setattr("codecfleet.cluster.supervisor.runner.runner.decide", slow)
    found = []
    for _ in range(5):
        runner._core.state.is_dirty, runner._core.state.placed_s = True, None
        runner.feed(events.Ticked())
        found.append(runner._pass_s)
    assert found == [0.0, 0.5, 0.5, 0.5, 8.0]


async def test_a_client_hears_news_at_once(make_runner: MakeRunner) -> None:
    """A client that waits for news learns of a worker's death at once, not when the call times out."""
    backend, runner, held = await at_work(make_runner)
    waiting = asyncio.create_task(runner.renew(report(2, 50, held), 60))
    await all_quiet()
    assert not waiting.done()
    victim = next(iter(held))
    backend.kill(victim, "signal 9")
    await all_quiet()
    assert (await waiting).dead == {victim}


async def test_the_next_supervisor_takes_over(make_runner: MakeRunner, clock: FakeClock) -> None:
    """After a supervisor's death, its workers are adopted, its orders hold, and unused reservations are released."""
    backend, first, held = await at_work(make_runner)
    assert first.ask(Order.CORDON, "host-b")
    await all_quiet()
    survivors = dict(backend.workers)
    second = await make_runner(backend)
    assert backend.workers == survivors
    assert (await second.renew(report(2, 50, held))).slots["j"] == held
    await clock.advance(4)
    grants = await settled(second, report(3, 50, held))
    assert set(grants.slots["j"]) == {worker for worker in held if worker.startswith("a/")}
    assert backend.starts == 2


async def test_a_worker_that_does_not_answer_is_replaced(make_runner: MakeRunner, clock: FakeClock) -> None:
    """After 20 s, and at most two seconds later; the other worker stays. Nothing is asked twice meanwhile."""
    backend, _, held = await at_work(make_runner)
    frozen, other = sorted(held)
    backend.frozen.add(frozen)
    await clock.advance(SETTINGS.ping_limit_s)
    assert set(backend.workers) == {frozen, other}
    asked = backend.renewed.count(frozen)
    await clock.advance(2 * INTERVAL_S)
    assert other in backend.workers
    assert frozen not in backend.workers
    assert backend.renewed.count(frozen) == asked


async def test_workers_that_are_late_together_stay(make_runner: MakeRunner, clock: FakeClock) -> None:
    """If no node's worker answers in time, the supervisor is slow; workers that answer later go on."""
    backend, _, held = await at_work(make_runner)
    backend.frozen |= set(held)
    await clock.advance((TOGETHER_FACTOR - 1) * SETTINGS.ping_limit_s)
    assert (set(backend.workers), backend.starts) == (set(held), 2)
    await clock.advance(SETTINGS.ping_limit_s + 2 * INTERVAL_S)
    assert not set(backend.workers) & set(held)


async def test_the_next_supervisor_knows_what_was_before(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A successor begins with the events of the one before, except the last seconds, and logs its start."""
    backend, first, _ = await at_work(make_runner)
    await clock.advance(EVERY_S + INTERVAL_S)
    before = first.status().log
    second = await make_runner(backend)
    lines = [line for _, line in second.status().log]
    assert lines[: len(before) + 1] == [*(line for _, line in before), "the supervisor of term 2 takes over"]
    assert any("was adopted" in line for line in lines[len(before) :])


async def test_the_next_supervisor_names_the_node_that_died_with_the_last_one(
    make_runner: MakeRunner, clock: FakeClock
) -> None:
    """Ray restarts a supervisor only once it has dropped the dead node, so the successor names that node."""
    backend, *_ = await at_work(make_runner)
    await clock.advance(EVERY_S + INTERVAL_S)
    backend.lose("a")
    lines = [line for _, line in (await make_runner(backend)).status().log]
    assert [line for line in lines if "left while" in line] == ["node host-a left while no supervisor ran"]


async def test_a_failing_store_loses_only_the_past(make_runner: MakeRunner, clock: FakeClock) -> None:
    """While Ray's control service is down, the supervisor continues, and does not log this every few seconds."""
    backend = two_nodes()
    backend.keep_error = ConnectionError("the control service restarts")
    runner = await make_runner(backend)
    await clock.advance(EVERY_S)
    before = runner.status().log
    assert before
    await clock.advance(3 * EVERY_S)
    assert runner.status().log == before
    backend.keep_error = None
    await clock.advance(EVERY_S + INTERVAL_S)
    assert await backend.kept(EVENTS_KEY)


async def test_a_worker_that_does_not_answer_is_dead(make_runner: MakeRunner) -> None:
    """A failed start is tried again, and the log has its reason."""
    backend = two_nodes()
    backend.start_errors = [RuntimeError("no memory")]
    runner = await make_runner(backend)
    grants = await settled(runner, report(1, 50))
    assert sum(grants.slots["j"].values()) == 4
    assert backend.starts == 3
    assert any("no memory" in line for _, line in runner.status().log)


@pytest.mark.parametrize("is_death_seen", [True, False])
async def test_the_world_may_end(make_runner: MakeRunner, clock: FakeClock, *, is_death_seen: bool) -> None:
    """When Ray itself is gone, all callers are told so, even if no worker has died yet."""
    backend, runner, held = await at_work(make_runner)
    backend.ended = "Ray itself ended"
    if is_death_seen:
        backend.kill(next(iter(held)))
        await all_quiet()
    else:
        await clock.advance(2 * TICK_S)
    assert (await runner.renew(report(2, 50, held))).unrecoverable == "Ray itself ended"
    again = asyncio.create_task(runner.renew(report(3, 50, held), 1))
    await clock.advance(1 + TICK_S)
    assert (await again).unrecoverable == "Ray itself ended"


async def test_history_tells_what_workers_did(make_runner: MakeRunner, clock: FakeClock) -> None:
    """The history has what heartbeats report about a station's work, with its age; lost work is marked."""
    backend, runner, held = await at_work(make_runner)
    worker = min(held)
    station = worker.rpartition(":")[0]
    done, runs = ("c:1", "j", "segment 1", -4.0, -1.0, "done"), ("c:2", "j", "segment 2", -1.0, None, "")
    backend.heartbeats[worker] = Heartbeat(0, (("j", "segment 2"),), pieces=(done, runs))
    await clock.advance(2.5)
    found = runner.history((station, "unknown/cpu#0"))
    assert [(each.label, each.ending) for each in found.pieces[station]] == [
        ("segment 1", "done"),
        ("segment 2", "running"),
    ]
    assert list(found.pieces) == [station]
    assert found.speeds
    backend.kill(worker)
    await all_quiet()
    assert [each.ending for each in runner.history((station,)).pieces[station]] == ["done", "lost"]


async def test_status_shows_who_uses_what(make_runner: MakeRunner, clock: FakeClock) -> None:
    """The status has workers with their leases and speed, and jobs with their share; no line is too wide."""
    backend, runner, held = await at_work(make_runner)
    worker = min(held)
    running = (("j", "segment 1"), ("j", "segment 2"))
    backend.heartbeats[worker] = Heartbeat(0, running)
    await clock.advance(2.5)
    backend.heartbeats[worker] = Heartbeat(50, running)
    await clock.advance(2)
    await runner.renew(report(2, 44, held))
    status = runner.status()
    (job,) = status.jobs
    assert (job.used_slots, job.granted_slots, job.segments_left) == (4, 4, 44)
    assert {found.worker: found.fps for found in status.workers}[worker.rpartition(":")[0]] == 25.0
    assert max(map(len, status_lines(status))) <= 120


async def test_a_job_that_may_use_nvenc_waits_for_the_first_probe(make_runner: MakeRunner, clock: FakeClock) -> None:
    """A preview that depends on unprobed GPUs waits for their probe, or says that the probe still runs."""
    backend = FakeClusterBackend((RayNode(node="a", name="host-a", cores=2, free_cores=2, gpus=1),))
    backend.may_probe.clear()
    runner = await make_runner(backend)
    demand = plain_demand("j", 2)
    open_demand = replace(
        demand, encoder=EncoderChoice.AUTO, renditions=tuple(replace(each, kind=None) for each in demand.renditions)
    )
    assert not (await runner.probed_preview(demand)).is_probing, "software needs no GPU to be known"
    asked = asyncio.ensure_future(runner.probed_preview(open_demand))
    await all_quiet()
    assert not asked.done()
    await clock.advance(PROBE_WAIT_S + 1)
    assert (await asked).is_probing
    asked = asyncio.ensure_future(runner.probed_preview(open_demand))
    await all_quiet()
    backend.may_probe.set()
    await clock.advance(1)
    answer = await asked
    assert (answer.unknown, answer.is_probing, answer.encoder_kind) == ("", False, None)


async def test_events_are_logged_with_their_ids(make_runner: MakeRunner, clock: FakeClock) -> None:
    """Each entry has the action and the ids that an operator searches for."""
    stream = io.StringIO()
    with logged_to(stream, LogStyle.JSON, "supervisor"):
        backend, runner, held = await at_work(make_runner)
        victim = min(held)
        backend.kill(victim, "signal 9")
        await all_quiet()
        await runner.depart("one")
        backend.lose("b")
        await clock.advance(LOOK_S)
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    found = {each["action"]: each for each in said}
    assert [each["node"] for each in said if each["action"] == "node.joined"] == ["a", "b"]
    assert (found["lease.granted"]["job"], found["lease.granted"]["message"]) == ("j", "job j got 4 slots")
    lost = [each for each in said if each["action"] == "worker.lost" and "signal 9" in each["message"]]
    assert [(each["worker"], each["node"]) for each in lost] == [(victim, victim[0])]
    assert found["client.left"]["client"] == "one"
    assert found["node.gone"]["node"] == "b"


class Defective(FakeClusterBackend):
    """A cluster that raises an error that the supervisor does not expect."""

    is_defective = False

    def world_is_gone(self) -> str:
        """Fail where a defect would show."""
        if self.is_defective:
            raise ZeroDivisionError("a defect")
        return super().world_is_gone()


async def test_a_failing_task_ends_the_supervisor(make_runner: MakeRunner, clock: FakeClock) -> None:
    """Waiting clients learn which task failed and why, and the supervisor can still be closed."""
    ended = list[str]()
    backend = Defective(tuple(await two_nodes().look()))
    runner = await make_runner(backend, on_failure=lambda: ended.append(runner.failure))
    held = (await settled(runner, report(1, 50))).slots["j"]
    waiting = asyncio.create_task(runner.renew(report(2, 50, held), 60))
    await all_quiet()
    backend.is_defective = True
    await clock.advance(0.25)
    said = "the supervisor's task failed: ticks: ZeroDivisionError: a defect"
    assert (ended, (await waiting).unrecoverable) == ([said], said)
