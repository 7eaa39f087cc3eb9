"""A cluster that grows and shrinks with its work: orders are carried out, and nothing is lost or done twice."""

import asyncio
from collections import deque
from decimal import Decimal

import pytest

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.autoscale.values import WantedNodes
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.inventory import processor_of
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.metrics.table import NODES_WANTED, MetricSample
from codecfleet.cluster.supervisor.runner.orders import Leading, Resizing
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.events import Resize, Resized, SupervisorEvent
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants, JobReport, RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.terms import Tenure
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

MOST = 3
PIECES = 24
LAST_TAKES_S = 30
SMALL = Group(
    name="small",
    labels={"group": "small"},
    resources={"CPU": 1.0},
    node=processor_of("small", "small", 1, None),
    nodes_max=MOST,
    price_per_hour=Decimal("0.1"),
    start_s=20.0,
)
HEAD = RayNode(node="head", name="head", cores=0, free_cores=0)


class Driver:
    """A program with one job, whose segments take a second each, except for the longer last one."""

    def __init__(self, runner: SupervisorRunner, pieces: int) -> None:
        self._runner = runner
        self._waiting = deque(range(pieces))
        self._last = pieces - 1
        self._running: dict[str, int] = {}
        self._last_takes = LAST_TAKES_S
        self._sequence = 0
        self.done: list[int] = []

    async def live_on(self) -> None:
        """Finish what runs, and start what may run now; no worker is lost while it works."""
        if self._last in self._running.values():
            self._last_takes -= 1
        done = [worker for worker, piece in self._running.items() if piece != self._last or not self._last_takes]
        self.done += [self._running.pop(worker) for worker in done]
        grants = await self._report()
        for worker in grants.slots.get("j", {}):
            if self._waiting and worker not in self._running:
                self._running[worker] = self._waiting.popleft()
        grants = await self._report()
        assert not grants.dead & self._running.keys()

    async def _report(self) -> Grants:
        self._sequence += 1
        left = len(self._waiting) + len(self._running)
        jobs = (JobReport(plain_demand("j", left), dict.fromkeys(self._running, 1)),) if left else ()
        return await self._runner.renew(ClientReport("one", "driver one", self._sequence, jobs))


async def test_a_batch_grows_the_cluster_from_nothing_and_back() -> None:
    """The cluster grows from 0 workers to all and back to 0, and each segment runs exactly once."""
    clock, backend = FakeClock(), FakeClusterBackend((HEAD,))
    backend.offers = {"small": MOST}
    config = AutoscaleConfig(groups=(SMALL,), finish_within_s=60.0, idle_s=10.0, turn_s=10.0)
    settings = SupervisorSettings(idle_release_s=2.0, autoscale=config)
    core = Core(settings, Policy(), 1, clock())
    told: list[MetricSample] = []
    runner = SupervisorRunner(backend, core, settings, clock=clock, sleep=clock.sleep, take_samples=told.extend)
    await runner.open()
    driver, counts = Driver(runner, PIECES), []
    for _ in range(150):
        counts.append(len(await backend.look()) - 1)
        await driver.live_on()
        await clock.advance(1)
    assert sorted(driver.done) == list(range(PIECES))
    assert (counts[0], max(counts), counts[-1]) == (0, MOST, 0)
    assert (backend.workers, backend.reserved_cores) == ({}, 0)
    assert max(sum(group.count for group in order.wanted) for order in backend.resized) == MOST
    wanted = [sample.value for sample in told if sample.metric is NODES_WANTED]
    assert (max(wanted), wanted[-1]) == (MOST, 0)
    await runner.close("the test is over")


def want(count: int) -> Resize:
    """Return an order for a number of nodes."""
    return Resize((WantedNodes("small", SMALL.labels, SMALL.resources, count),))


class SlowCluster(FakeClusterBackend):
    """A cluster that carries out an order when the test says so."""

    def __init__(self) -> None:
        super().__init__((HEAD,))
        self.offers = {"small": MOST}
        self.may_resize = asyncio.Event()

    async def resize(self, order: Resize) -> None:
        """Wait, then carry out the order."""
        await self.may_resize.wait()
        await super().resize(order)


@pytest.fixture
def backend() -> SlowCluster:
    """A cluster without workers."""
    return SlowCluster()


def resizing(backend: SlowCluster, heard: list[SupervisorEvent]) -> Resizing:
    """Return an object that resizes this cluster, for a supervisor of term 0."""
    clock = FakeClock()
    return Resizing(backend, Leading(backend, Tenure(0, clock()), 60.0, clock, clock.sleep), heard.append)


async def test_only_the_newest_waiting_order_is_carried_out(backend: SlowCluster) -> None:
    """Orders run one after the other: none overtakes another, and outdated orders are skipped."""
    heard: list[SupervisorEvent] = []
    orders = resizing(backend, heard)
    busy = asyncio.create_task(orders.resize(want(1)))
    await all_quiet()
    await orders.resize(want(3))
    await orders.resize(want(2))
    backend.may_resize.set()
    await busy
    assert backend.resized == [want(1), want(2)]
    assert heard == [Resized(), Resized()]


async def test_the_reason_for_missing_nodes_is_reported(backend: SlowCluster) -> None:
    """The reason for missing nodes is reported in one line, as the cluster gives it."""
    heard: list[SupervisorEvent] = []
    backend.may_resize.set()
    await resizing(backend, heard).resize(want(MOST + 1))
    (event,) = heard
    assert isinstance(event, Resized)
    assert event.trouble.startswith("there are too few nodes for the request, so none is added. ")


async def test_a_deposed_supervisor_orders_nothing(backend: SlowCluster) -> None:
    """The orders of a newer supervisor stay in force."""
    heard: list[SupervisorEvent] = []
    backend.may_resize.set()
    backend.term = 1
    await resizing(backend, heard).resize(want(1))
    assert (backend.resized, heard) == ([], [])


async def test_the_request_for_nodes_is_withdrawn_at_the_end(backend: SlowCluster) -> None:
    """At the end, the request for nodes is withdrawn, since it would stay in force for ever."""
    backend.may_resize.set()
    orders = resizing(backend, [])
    await orders.withdraw()
    assert backend.resized == [Resize(())]
    backend.offers = None
    await orders.withdraw()
