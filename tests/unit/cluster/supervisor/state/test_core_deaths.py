"""Dead and silent workers, clients and nodes, in any order."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from codecfleet.actors.worker.orders import GoneClients
from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.inventory import DeviceState, Inventory
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.effective import effective_nodes
from codecfleet.cluster.supervisor.state.events import (
    Abandon,
    Asked,
    Departed,
    Died,
    Found,
    NodesSeen,
    Order,
    Probe,
    Probed,
    Ticked,
)
from codecfleet.cluster.supervisor.state.messages import FoundWorker, Grants, JobReport
from codecfleet.cluster.supervisor.state.stations import DEATHS_IN_A_ROW_MAX, StationState

from ..core_worlds import SETTINGS, World, node, total, wants


def test_a_pause_of_the_supervisor_expires_no_client() -> None:
    """A supervisor that was suspended expires no client that had no chance to report."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    world.wait(1)
    world.now_s += 60
    world.feed(Ticked())
    assert world.core.state.clients.get("one") is not None


def test_the_work_of_a_gone_client_is_cancelled() -> None:
    """Work for a client that left or fell silent is cancelled on its workers."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 2}))
    world.feed(Departed("one"))
    assert world.abandoned == [Abandon(worker, GoneClients(frozenset({"one"})))]


def test_a_station_that_keeps_dying_is_quarantined_and_probed() -> None:
    """After five quick deaths in a row, nothing starts on a station until the node has passed another probe."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    for _ in range(DEATHS_IN_A_ROW_MAX):
        world.feed(Died(world.started[-1].worker, "out of memory"))
        world.wait(8)
        world.say("one", wants("j", 100))
    assert len(world.started) == DEATHS_IN_A_ROW_MAX
    assert "died 5 times in a row: out of memory" in world.say("one", wants("j", 100)).unrecoverable
    for _ in range(5):
        world.wait(8)
        world.say("one", wants("j", 100))
    assert world.probes[-1] == Probe("a", again=True)
    world.feed(Probed(node("a").unprobed()))
    grants = world.say("one", wants("j", 100))
    assert len(world.started) == DEATHS_IN_A_ROW_MAX + 1
    assert (grants.unrecoverable, total(grants, "j")) == ("", 2)


def test_a_long_life_clears_the_record() -> None:
    """A process that worked for a while before its death is no sign of a bad device."""
    world = World(node("a"))
    for _ in range(3 * DEATHS_IN_A_ROW_MAX):
        world.say("one", wants("j", 100))
        world.wait(9)
        world.say("one", wants("j", 100))
        world.wait(2)
        world.feed(Died(world.started[-1].worker, "killed"))
    assert world.core.state.stations["a/cpu#0"].state is not StationState.QUARANTINED


def _places(placement: Placement) -> list[tuple[str, str, int]]:
    return [(lane.job, lane.device, lane.sessions) for lane in placement.lanes]


class Deaths(RuleBasedStateMachine):
    """Nodes, workers and clients join, leave and die in any order."""

    @initialize()
    def begin(self) -> None:
        """Begin with one node."""
        self.world = World(node("n0", 3))
        self.alive = {"n0": node("n0", 3)}
        self.held: dict[str, dict[str, int]] = {}
        self.granted: dict[str, Grants] = {}
        self.counter = 0
        self.used = Counter[str]()

    @rule(cores=st.integers(1, 20))
    def node_joins(self, cores: int) -> None:
        """A node joins."""
        self.counter += 1
        name = f"n{self.counter}"
        self.alive[name] = node(name, cores)
        self.world.feed(NodesSeen(tuple(self.alive.values())))

    @precondition(lambda self: len(self.alive) > 1)
    @rule(data=st.data())
    def node_dies(self, data: st.DataObject) -> None:
        """A node dies."""
        name = data.draw(st.sampled_from(sorted(self.alive)))
        del self.alive[name]
        self.world.feed(NodesSeen(tuple(self.alive.values())))

    @rule(data=st.data(), steady=st.booleans())
    def worker_dies(self, data: st.DataObject, *, steady: bool) -> None:
        """A worker dies, soon after its start or later."""
        stations = [book for book in self.world.core.state.stations.values() if book.state is StationState.READY]
        if not stations:
            return
        book = data.draw(st.sampled_from(sorted(stations, key=lambda each: each.station.station)))
        if steady:
            self.world.now_s += 11
        self.world.feed(Died(book.worker, "killed"))

    @rule(
        client=st.sampled_from("xyz"), pieces=st.integers(0, 30), takes=st.integers(0, 30), priority=st.integers(0, 1)
    )
    def client_reports(self, client: str, pieces: int, takes: int, priority: int) -> None:
        """A client reports, and uses some of its promised slots, but never more."""
        held: dict[str, int] = {}
        before = self.granted.get(client)
        for worker, slots in ({} if before is None else before.slots.get("j", {})).items():
            held[worker] = min(slots, takes)
            takes -= held[worker]
        held = {worker: slots for worker, slots in held.items() if slots}
        demand = replace(plain_demand("j", pieces), priority=priority)
        self.held[client] = held
        grants = self.world.say(client, JobReport(demand, held))
        self.granted[client] = grants
        for worker in grants.dead:
            held.pop(worker, None)

    @rule(client=st.sampled_from("xyz"))
    def client_leaves(self, client: str) -> None:
        """A client leaves."""
        self.world.feed(Departed(client))
        self.held.pop(client, None)
        self.granted.pop(client, None)

    @rule(order=st.sampled_from(list(Order)), data=st.data())
    def user_asks(self, order: Order, data: st.DataObject) -> None:
        """A user cordons, drains or opens a node."""
        self.world.feed(Asked(order, data.draw(st.sampled_from(sorted(self.alive)))))

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        """Time passes, while live clients keep reporting."""
        self.world.wait(seconds)
        for client in list(self.granted):
            if self.world.core.state.clients.get(client) is None:
                self.held.pop(client)
                self.granted.pop(client)

    @rule()
    def supervisor_dies(self) -> None:
        """The supervisor dies; its successor knows only what workers and clients report."""
        old = self.world.core.state
        survivors = tuple(
            FoundWorker(book.worker, book.facts)
            for book in old.stations.values()
            if book.facts is not None and book.station.node in self.alive
        )
        now_s, sequence = self.world.now_s, self.world.sequence
        self.world, self.used = World(settings=SETTINGS), Counter[str]()
        self.world.now_s, self.world.sequence = now_s, sequence
        self.world.core = Core(SETTINGS, Policy(), old.epoch + 1000, now_s)
        self.world.feed(NodesSeen(tuple(self.alive.values())))
        self.world.feed(Found(survivors))
        for client, held in list(self.held.items()):
            self.granted[client] = self.world.say(client, JobReport(plain_demand("j", 10), held))

    @invariant()
    def promises_never_exceed_a_worker(self) -> None:
        """The slots on a worker that clients use or may use never exceed the worker's slots."""
        state = self.world.core.state
        for book in state.stations.values():
            if book.state is StationState.READY:
                used = sum(job.occupied.get(book.worker, 0) for job in state.clients.jobs())
                assert used <= book.ready_slots, book

    @invariant()
    def only_live_nodes_have_stations(self) -> None:
        """No station is on a node that is gone."""
        assert {name.rpartition("/")[0] for name in self.world.core.state.stations} <= set(self.alive)

    @invariant()
    def epochs_are_unique(self) -> None:
        """No two processes ever have the same name."""
        names = [start.worker for start in self.world.started]
        assert len(names) == len(set(names))

    @invariant()
    def nothing_is_given_out_that_is_not_there(self) -> None:
        """Stations have no more jobs than slots, and draining nodes get nothing new."""
        state, before = self.world.core.state, self.used
        self.used = Counter[str]()
        for station, wanted in state.plans.targets.items():
            assert sum(wanted.values()) <= state.stations[station].station.slots
            self.used[station.node] += sum(wanted.values())
        for book in state.nodes:
            assert book.state is not DeviceState.DRAINING or self.used[book.ray.node] <= before[book.ray.node]

    def teardown(self) -> None:
        """Jobs are where a new placement would put them; when all clients have left, everything is released."""
        self.world.wait(SETTINGS.recovery_s + 1)
        self.world.feed(NodesSeen(tuple(replace(each, memory_bytes=1 << 40) for each in self.alive.values())))
        state = self.world.core.state
        demands = [job.demand for job in state.clients.jobs()]
        again = place(demands, Inventory(tuple(effective_nodes(state.nodes, state.stations))), start_rates(), Policy())
        assert _places(state.plans.placement) == _places(again)
        for client in list(self.granted):
            self.world.feed(Departed(client))
        self.world.wait(SETTINGS.idle_release_s + 5)  # type: ignore[operator]
        held = {book.state for book in self.world.core.state.stations.values()}
        assert held <= {StationState.EMPTY, StationState.RESTING, StationState.QUARANTINED}


Deaths.TestCase.settings = hypothesis_settings(
    max_examples=hypothesis_settings().max_examples, stateful_step_count=25, deadline=None
)


test_invariants_under_random_deaths = pytest.mark.filterwarnings("default")(Deaths.TestCase)
