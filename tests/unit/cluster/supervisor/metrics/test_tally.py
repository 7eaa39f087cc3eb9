"""Metrics: every series in the table, and what happens to workers, jobs and devices, each counted once."""

import math
import time
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from codecfleet.actors.device.pieces import Ending
from codecfleet.actors.worker.heartbeat import Heartbeat
from codecfleet.cluster.autoscale.config import AutoscaleConfig
from codecfleet.cluster.autoscale.values import Decision, GroupSize
from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.supervisor.metrics import table
from codecfleet.cluster.supervisor.metrics.table import METRICS, Metric, MetricKind, MetricSample
from codecfleet.cluster.supervisor.metrics.tally import GAUGES_S, MetricTally
from codecfleet.cluster.supervisor.runner.runner import LOOK_S, TICK_S, SupervisorRunner
from codecfleet.cluster.supervisor.state.events import Asked, Order
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.cluster.supervisor.state.state import SupervisorState
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

from ...autoscale.groups import config, group
from ..core.test_guests import Cluster
from ..core_worlds import World, node, wants
from ..runner.test_runner import MakeRunner, report, two_nodes
from ..watched_nodes import NOW, Watched


class Monitor:
    """A monitor with the last values of gauges, the sums of counters and the observations of histograms."""

    def __init__(self) -> None:
        self.told: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))

    def take(self, samples: tuple[MetricSample, ...]) -> None:
        """Record samples whose labels are in the table."""
        for sample in samples:
            assert set(sample.tags) == set(sample.metric.labels)
            assert sample.value > 0 or sample.metric.kind is not MetricKind.COUNTER
            self.told[sample.metric.name][sample.labels].append(sample.value)

    def of(self, metric: Metric, *labels: str) -> float:
        """Return the value of a series; 0 if it has no sample."""
        told = self.told[metric.name][labels]
        return sum(told) if metric.kind is MetricKind.COUNTER else (told or [0])[-1]


class Metered(Monitor):
    """The monitor of a supervisor that has a node with two cores."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.backend = FakeClusterBackend((RayNode(node="a", name="host-a", cores=2, free_cores=2),))
        self.runner: SupervisorRunner

    async def at_work(self) -> str:
        """Give the node's worker two pieces of work; return the worker."""
        await self.runner.renew(report(1, 10))
        await all_quiet()
        (worker,) = (await self.runner.renew(report(2, 10))).slots["j"]
        await self.runner.renew(report(3, 10, {worker: 2}))
        await self.clock.advance(GAUGES_S + TICK_S)
        return worker

    async def beat(self, worker: str, heartbeat: Heartbeat) -> None:
        """Make this the worker's heartbeat from now on."""
        self.backend.heartbeats[worker] = heartbeat
        await self.clock.advance(2.5)


@pytest.fixture
async def metered(make_runner: MakeRunner, clock: FakeClock) -> Metered:
    """A monitor whose supervisor has started."""
    found = Metered(clock)
    found.runner = await make_runner(found.backend, take_samples=found.take)
    return found


async def test_a_look_tells_every_gauge(metered: Metered) -> None:
    """Each series of each gauge gets a value at each look, even if it is 0, so no old value remains."""
    await metered.clock.advance(TICK_S)
    for metric in METRICS:
        of_queue = (table.QUEUE_ANSWERS, table.SUBMITTED_JOBS, table.SUBMITTED_AGE)
        if metric.kind is MetricKind.GAUGE and table.ANY not in metric.labels.values() and metric not in of_queue:
            assert metered.told[metric.name].keys() == set(product(*metric.labels.values())), metric.name
    assert metered.of(table.NODES, "open") == 1
    assert metered.runner.status().nodes[0].name == "host-a"


async def test_work_is_told(metered: Metered) -> None:
    """The metrics have jobs and their remaining work, slots in use, starts, and time in use."""
    worker = await metered.at_work()
    assert metered.of(table.WORKERS, "cpu", "ready") == 1
    assert (metered.of(table.SLOTS, "cpu"), metered.of(table.SLOTS_IN_USE, "cpu")) == (2, 2)
    assert (metered.of(table.JOBS, "working"), metered.of(table.JOBS, "waiting")) == (1, 0)
    assert (metered.of(table.QUEUE_SEGMENTS), metered.of(table.QUEUE_FRAMES)) == (10, 2500)
    assert metered.of(table.WORKERS_STARTED, "cpu") == 1
    assert metered.told[table.JOB_WAIT.name][()] == [0.0]
    assert metered.told[table.PLACEMENT.name][()]
    before_s = metered.of(table.SLOT_SECONDS, "cpu")
    await metered.runner.renew(report(4, 10, {worker: 2}))
    await metered.clock.advance(GAUGES_S)
    assert metered.of(table.SLOT_SECONDS, "cpu") - before_s == pytest.approx(2 * GAUGES_S)
    assert metered.of(table.WORKER_SECONDS, "cpu") >= GAUGES_S
    assert metered.backend.reserved_cores == 2


async def test_the_worst_clock_is_told(metered: Metered) -> None:
    """The gauge is the largest difference in either direction, and the status names the node's clock."""
    worker = await metered.at_work()
    assert metered.of(table.CLOCK_SKEW) == 0
    await metered.beat(worker, Heartbeat(0, (), sent_utc_s=time.time() + 3600))
    await metered.clock.advance(GAUGES_S)
    assert metered.of(table.CLOCK_SKEW) == pytest.approx(3600, abs=60)
    assert metered.runner.status().nodes[0].clock.endswith(" ahead")


async def test_frames_are_told_by_codec(metered: Metered) -> None:
    """Frames count for the codec of the job that had the worker, even if the job has just ended."""
    worker = await metered.at_work()
    await metered.beat(worker, Heartbeat(50, (("j", "segment 1"),)))
    assert metered.of(table.FRAMES, "cpu", "h264", "software") == 50
    await metered.runner.depart("one")
    await metered.beat(worker, Heartbeat(80, ()))
    assert metered.of(table.FRAMES, "cpu", "h264", "software") == 80
    assert metered.told[table.FRAMES.name].keys() == {("cpu", "h264", "software")}


async def test_ended_work_is_told_by_its_ending(metered: Metered) -> None:
    """Each piece of work counts once, by how it ended, from the start of its worker on."""
    await metered.runner.renew(report(1, 10))
    await all_quiet()
    (worker,) = (await metered.runner.renew(report(2, 10))).slots["j"]
    await metered.beat(worker, Heartbeat(30, (), ended={Ending.DONE: 2}))
    await metered.beat(worker, Heartbeat(30, (), ended={Ending.DONE: 5, Ending.RETRY: 1}))
    told = {labels: sum(values) for labels, values in metered.told[table.WORK_ENDED.name].items()}
    assert told == {("cpu", "done"): 5, ("cpu", "retry"): 1}
    assert metered.of(table.FRAMES, "cpu", "h264", "software") == 30


async def test_a_death_is_told_with_the_work_it_cost(metered: Metered) -> None:
    """A dead worker counts once, with the pieces of work that must run again."""
    worker = await metered.at_work()
    metered.backend.kill(worker, "signal 9")
    await metered.clock.advance(LOOK_S)
    assert metered.told[table.WORKERS_LOST.name] == {("cpu", "died"): [1]}
    assert metered.told[table.WORK_LOST.name] == {("cpu", "died"): [2]}


async def test_hung_work_is_told_once(metered: Metered) -> None:
    """A worker that a driver writes off counts as hung; its end is not counted again."""
    worker = await metered.at_work()
    for sequence in (4, 5):
        said = replace(report(sequence, 10, {worker: 2}), written_off={worker: "no progress for 60 s"})
        await metered.runner.renew(said)
    await metered.clock.advance(LOOK_S)
    assert metered.told[table.WORKERS_LOST.name] == {("cpu", "hung"): [1]}
    assert metered.of(table.WORK_LOST, "cpu", "hung") == 2


async def test_a_node_that_leaves_is_told(metered: Metered) -> None:
    """Workers that end with a node that Ray drains count for the node; a job without a slot then waits."""
    await metered.at_work()
    metered.backend.join(RayNode(node="a", name="host-a", cores=2, free_cores=0, draining=True))
    await metered.clock.advance(LOOK_S + TICK_S)
    metered.backend.lose("a")
    await metered.clock.advance(LOOK_S + TICK_S)
    assert metered.told[table.WORKERS_LOST.name] == {("cpu", "node"): [1]}
    assert metered.of(table.WORK_LOST, "cpu", "node") == 2
    await metered.runner.renew(report(4, 10))
    await metered.clock.advance(2 * GAUGES_S)
    assert metered.of(table.JOBS, "waiting") == 1
    assert GAUGES_S <= metered.of(table.QUEUE_AGE) <= 2 * GAUGES_S


async def test_each_fault_is_told_once(metered: Metered) -> None:
    """Reports repeat faults, but each fault counts once, by its kind."""
    worker = await metered.at_work()
    faults = tuple(DeviceFault(worker, "a.mp4", "r", kind, number) for number, kind in enumerate(FaultVerdict, 1))
    await metered.runner.renew(replace(report(4, 10), faults=faults[:2]))
    await metered.runner.renew(replace(report(5, 10), faults=faults))
    counts = {kind: metered.of(table.DEVICE_FAULTS, kind) for kind in ("failed", "wrong", "doubtful")}
    assert counts == {"failed": 1, "wrong": 1, "doubtful": 1}


async def test_a_defect_ends_the_metering_alone(
    make_runner: MakeRunner, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """If samples cannot be recorded, the supervisor continues, and its log has one line about this."""

    def refuse(_samples: tuple[MetricSample, ...]) -> None:
        raise RuntimeError("no agent")

    runner = await make_runner(two_nodes(), take_samples=refuse)
    await clock.advance(3 * GAUGES_S)
    assert Counter(record.message for record in caplog.records)["metrics are no longer measured"] == 1
    assert runner.status().nodes


async def test_an_adopted_workers_past_is_not_told_again(metered: Metered, make_runner: MakeRunner) -> None:
    """Work of an adopted worker that an earlier supervisor counted is not counted again."""
    worker = await metered.at_work()
    metered.backend.heartbeats[worker] = Heartbeat(500, (), ended={Ending.DONE: 9})
    later = Monitor()
    await make_runner(metered.backend, take_samples=later.take)
    await metered.clock.advance(2.5)
    await metered.beat(worker, Heartbeat(520, (), ended={Ending.DONE: 10}))
    assert later.of(table.FRAMES, "cpu", "none", "software") == 20
    assert later.of(table.WORK_ENDED, "cpu", "done") == 1


def test_a_sick_gpu_is_told(watched: Watched) -> None:
    """Devices count by state, and a new quarantine by its cause, unless an earlier supervisor counted it."""
    state = watched.world.core.state
    tally, monitor, restarted = MetricTally(state, watched.world.now_s), Monitor(), Monitor()
    monitor.take(tuple(tally.look({}, watched.world.now_s)))
    kind = watched.device.kind.value
    count = monitor.of(table.DEVICES, kind, "open")
    assert count == len(watched.gpus)
    watched.nvml.device(watched.raw).recovery_action = 1
    watched.poll()
    monitor.take(tuple(tally.look({}, watched.world.now_s)))
    assert monitor.of(table.DEVICES, kind, "quarantined") == 1
    assert monitor.of(table.DEVICES, kind, "open") == count - 1
    assert monitor.told[table.QUARANTINES.name] == {("poll",): [1]}
    assert monitor.of(table.GPU_MEMORY) > 100 << 30
    restarted.take(tuple(MetricTally(state, watched.world.now_s).look({}, watched.world.now_s)))
    assert restarted.told[table.QUARANTINES.name] == {}


class OfDevices:
    """What a look reports of each device, by its labels."""

    def __init__(self, state: SupervisorState) -> None:
        found = Monitor()
        found.take(tuple(MetricTally(state, 0.0).look({}, GAUGES_S)))
        self.opened = self._values(found, table.DEVICE_OPEN)
        self.quarantined = self._values(found, table.DEVICE_QUARANTINED)
        self.licence_ends_s = self._values(found, table.LICENCE_ENDS)

    def _values(self, found: Monitor, metric: Metric) -> dict[tuple[str, ...], float]:
        return {labels: value for labels, (value,) in found.told[metric.name].items()}


def test_each_device_is_told(watched: Watched) -> None:
    """A device has one series, with its driver and verdict, which is 0 while the device or its node takes no work."""
    device = watched.device
    labels = (watched.ray.name, device.device, device.kind.value)
    named = (*labels, device.driver, "unknown", "none")
    assert "." in device.driver
    told = OfDevices(watched.world.core.state)
    assert (told.opened[named], told.quarantined[labels], told.licence_ends_s) == (1, 0, {})
    assert len(told.opened) == len(told.quarantined) == len(watched.gpus)
    watched.nvml.device(watched.raw).recovery_action = 1
    watched.poll()
    told = OfDevices(watched.world.core.state)
    assert (told.opened[named], told.quarantined[labels]) == (0, 1)
    assert sum(told.quarantined.values()) == 1
    watched.world.feed(Asked(Order.CORDON, watched.ray.node))
    assert set(OfDevices(watched.world.core.state).opened.values()) == {0}


def test_a_licence_is_told_with_its_end(watched: Watched) -> None:
    """A device that needs a licence has its state and, if it ends, the time of that in seconds since 1970."""
    device, end = watched.nvml.device(watched.raw), NOW + timedelta(days=1)
    for licensed, expires, state, ends in (
        (True, end, "licensed", [end.timestamp()]),
        (True, NOW, "expired", [NOW.timestamp()]),
        (True, None, "licensed", []),
        (False, None, "missing", []),
    ):
        device.licensed, device.licence_expires = licensed, expires
        watched.poll()
        told = OfDevices(watched.world.core.state)
        assert [labels[-1] for labels in told.opened if labels[1] == watched.gpus[0].device] == [state]
        assert list(told.licence_ends_s.values()) == ends


def test_a_host_tells_what_its_guest_does_not() -> None:
    """If a guest's driver does not report its licence, the host's report counts."""
    cluster = Cluster()
    cluster.host.nvml.devices[0].vgpus[0].licensed = False
    cluster.guest.nvml.faults = {"nvmlDeviceGetGridLicensableFeatures": 3}
    cluster.poll()
    (guest,) = [labels for labels in OfDevices(cluster.core.state).opened if labels[2] == DeviceKind.VGPU.value]
    assert (guest[1].startswith(f"{guest[0]}/"), guest[-1]) == (True, "missing")


def test_a_group_whose_nodes_did_not_come_is_told(watched: Watched) -> None:
    """A group counts as closed until nodes may be requested again."""
    now_s = watched.world.now_s
    sizes = tuple(GroupSize(group=f"{each}", closed_until_s=each) for each in (None, now_s - 1, now_s + 1))
    watched.world.core.state.scaling.decision = Decision(sizes=sizes)
    monitor = Monitor()
    monitor.take(tuple(MetricTally(watched.world.core.state, 0.0).look({}, now_s)))
    assert monitor.of(table.GROUPS_CLOSED) == 1


def test_a_label_that_the_table_does_not_list_is_refused() -> None:
    """The name of a job, file, node or device cannot become the value of a label."""
    with pytest.raises(ValueError, match=r"codecfleet_nodes has no state 'film.mkv'"):
        assert MetricSample(table.NODES, 1, ("film.mkv",)).tags


CHEAP, DEAR = group("cheap", "0.36"), group("dear", "7.20")


def labelled(name: str, labels: dict[str, str]) -> RayNode:
    """Return a node with labels."""
    return replace(node(name), labels=labels)


def costs(world: World, seconds: float) -> dict[str, float]:
    """Return the cost that a look reports, this long after the previous look."""
    tally = MetricTally(world.core.state, 0.0)
    return {each.labels[0]: each.value for each in tally.look({}, seconds) if each.metric is table.COST}


def world_of(autoscale: AutoscaleConfig | None) -> World:
    """Return two cheap nodes, an expensive node and a node of no group; a job uses the first node."""
    cheap = {"group": "cheap"}
    nodes = (
        labelled("a", {**cheap, "zone": "z"}),
        labelled("b", cheap),
        labelled("c", {"group": "dear"}),
        labelled("d", {}),
    )
    world = World(*nodes, settings=SupervisorSettings(idle_release_s=30, autoscale=autoscale))
    world.say("one", wants("j", 50))
    world.wait(1.0)
    (worker,) = (each for each in world.say("one", wants("j", 50)).slots["j"] if each.startswith("a/"))
    world.say("one", wants("j", 50, {worker: 1}))
    return world


def test_nodes_cost_their_groups_price() -> None:
    """A node costs money while it exists, as busy if work runs on it, otherwise as idle; a node of no group is free."""
    world = world_of(config(CHEAP, DEAR))
    assert costs(world, 10 * GAUGES_S) == {
        "busy": pytest.approx(0.36 / 3600 * 10 * GAUGES_S),
        "idle": pytest.approx((0.36 + 7.20) / 3600 * 10 * GAUGES_S),
    }


def test_without_prices_no_cost_is_reported() -> None:
    """If there are no groups, or only free ones, no cost is reported."""
    assert costs(world_of(None), GAUGES_S) == {}
    assert costs(world_of(config(group("cheap", "0"))), GAUGES_S) == {}


SERIES_MAX, DEVICE_SERIES_MAX = 400, 3
"""Of a whole cluster, and of each device."""


def test_names_are_unique_and_series_few() -> None:
    """No two metrics share a name, and the total number of series is small."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    series = sum(
        (len(metric.bounds) + 3 if metric.bounds else 1) * math.prod(map(len, metric.labels.values()))
        for metric in METRICS
    )
    assert series <= SERIES_MAX
    assert sum(metric.labels.get("device") == table.ANY for metric in METRICS) <= DEVICE_SERIES_MAX
