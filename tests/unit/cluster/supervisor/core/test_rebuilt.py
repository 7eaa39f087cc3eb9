"""A supervisor may die at any moment; within a tick, its successor knows what an undisturbed one would know."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from codecfleet.actors.worker.orders import GoneClients
from codecfleet.cluster.device_fault import DeviceFault, FaultVerdict
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.worker_events import ORPHANS_S
from codecfleet.cluster.supervisor.state.events import (
    Abandon,
    Asked,
    Departed,
    Died,
    Effect,
    Encoding,
    Found,
    KeepQuarantines,
    NodesSeen,
    Order,
    Probe,
    Probed,
    QuarantinesRecalled,
    Remember,
    Renewed,
    Ticked,
)
from codecfleet.cluster.supervisor.state.kept import pack_kept, unpack_quarantines
from codecfleet.cluster.supervisor.state.messages import ClientReport, FoundWorker, JobReport, RayNode
from codecfleet.cluster.supervisor.state.stations import StationBook, StationState
from codecfleet.cluster.worker_names import StationId

from ..core_worlds import SETTINGS, World, decided, gpu_node, node, nvenc, wants

UTC_S = 1000.0
"""What the clock lacks to UTC."""
GPUS = ("GPU-0", "GPU-1")
RAY_GPUS, PROBED_GPUS = gpu_node("g", *GPUS)


class Kept(World):
    """A world with two CPU nodes and a GPU node whose probes answer; it keeps what a supervisor stores."""

    def __init__(self, first_epoch: int = 1, now_s: float = 100.0, orders: dict[str, Order] | None = None) -> None:
        self.records: bytes | None = None
        self.orders = dict(orders or {})
        self.encoding: dict[str, Encoding] = {}
        self.passed: set[str] = set()
        super().__init__()
        self.now_s = now_s
        self.core = Core(SETTINGS, Policy(), first_epoch, now_s)
        self.gpus = {f"g/gpu#{number}": uuid for number, uuid in enumerate(GPUS)}

    def carry_out(self, effect: Effect) -> None:
        """Store what must be kept, and answer probes."""
        match effect:
            case KeepQuarantines():
                self.records = pack_kept(effect, self.now_s)[1]
            case Remember(orders):
                self.orders = orders
            case Probe("g"):
                self.probes.append(effect)
                self.pending += decided(self.core, Probed(PROBED_GPUS), self.now_s)
            case _:
                super().carry_out(effect)

    def successor(self) -> "Kept":
        """Return this supervisor's successor, rebuilt from workers, clients, Ray and the store.

        Each change of the quarantines is stored at once. Their ages are as fresh as if they were stored just now.
        """
        state = self.core.state
        held = {key: each for key, each in state.nodes.quarantines.items() if each.quarantine is not None}
        assert unpack_quarantines(self.records, self.now_s).keys() == held.keys()
        self.records = pack_kept(KeepQuarantines(held), self.now_s)[1]
        other = Kept(state.epoch + 1000, self.now_s, self.orders)
        other.sequence, other.records = self.sequence, self.records
        other.see(*(book.ray for book in state.nodes))
        other.feed(Found(tuple(_found(book) for book in state.stations.values() if book.facts is not None)))
        for name, order in other.orders.items():
            other.feed(Asked(order, name, is_recalled=True))
        other.feed(QuarantinesRecalled(unpack_quarantines(self.records, self.now_s)))
        for worker, said in self.encoding.items():
            if state.is_live(worker):  # its first heartbeat
                other.hear(said)
        other.passed = set(self.passed)
        for client in state.clients:
            jobs = tuple(JobReport(replace(job.demand, job=name), dict(job.held)) for name, job in client.jobs.items())
            other.feed(Renewed(ClientReport(client.client, client.where, client.sequence + 1, jobs)))
        return other

    def see(self, *nodes: RayNode) -> None:
        """Let Ray list its nodes."""
        self.feed(NodesSeen(nodes, UTC_S + self.now_s, {each.node: 0.0 for each in nodes}))

    def hear(self, said: Encoding) -> None:
        """Report the encoder sessions and the last refusal of a worker."""
        before = self.encoding.get(said.worker, Encoding(said.worker, 0))
        last = said.refused_at if said.refused_at is not None else before.refused_at
        self.encoding[said.worker] = replace(said, refused_at=last)
        if said.refused_at is not None:
            self.passed.discard(said.worker)
        elif last is not None and said.sessions > last:
            self.passed.add(said.worker)
        self.feed(said)

    def caps(self) -> dict[str, int | None]:
        """Return the caps on encoder sessions that were learnt from refusals."""
        return {device: cap.refused_at for device, cap in self.core.state.caps.items()}

    def refusing(self) -> set[str]:
        """Return the devices on which the last refusals of live workers still hold.

        A worker reports its last refusal even if more sessions were open since. A successor can know that only if they
        are open now.
        """
        state = self.core.state
        said = {
            worker
            for worker, each in self.encoding.items()
            if each.refused_at is not None and (worker not in self.passed or each.sessions > each.refused_at)
        }
        return {book.device for book in state.stations.values() if book.worker in said and state.is_live(book.worker)}

    def knowledge(self) -> dict[str, Any]:
        """Return what a supervisor must know: nodes, devices, workers, clients and their slots."""
        state = self.core.state
        return {
            "nodes": {book.ray.node: (book.ray, book.state, book.order) for book in state.nodes},
            "quarantines": {
                key: replace(
                    record, faults=(), quarantine=replace(held, rest_until_s=max(held.rest_until_s, self.now_s))
                )
                for key, record in state.nodes.quarantines.items()
                if (held := record.quarantine) is not None
            },
            "workers": {
                book.worker: (book.ready_slots, book.device, book.reserved_cores, book.encoding)
                for book in state.stations.values()
                # An idle worker of a draining node ends at once; under a successor it ends after the clients' reports.
                if book.state is StationState.READY and state.node_of(book).state is not DeviceState.DRAINING
            },
            "caps": {device: at for device, at in self.caps().items() if device in self.refusing()},
            "drained": {book.ray.node: book.leaves_s for book in state.nodes},
            "jobs": {job.key: (job.demand, job.held) for job in state.clients.jobs()},
            "dead": {client.client: grants_for(state, client.client, self.now_s).dead for client in state.clients},
        }


def _found(book: StationBook) -> FoundWorker:
    """Return an adopted worker, which knows how many cores are reserved for it."""
    assert book.facts is not None
    return FoundWorker(book.worker, replace(book.facts, cores=book.reserved_cores))


class Rebuilt(RuleBasedStateMachine):
    """Events in any order; at any moment, a successor is compared with the supervisor before."""

    @initialize()
    def begin(self) -> None:
        """Begin with three nodes."""
        self.alive = {"a": node("a", 2), "b": node("b", 4), "g": RAY_GPUS}
        self.world = Kept()
        self.world.see(*self.alive.values())
        self.world.say("v", nvenc("j", 40))
        self.faults = 0

    @rule(client=st.sampled_from("xyz"), pieces=st.integers(0, 20), takes=st.integers(0, 8), is_nvenc=st.booleans())
    def client_works(self, client: str, pieces: int, takes: int, *, is_nvenc: bool) -> None:
        """A client reports, and uses some of its slots."""
        demand = nvenc("j", pieces).demand if is_nvenc else plain_demand("j", pieces)
        held: dict[str, int] = {}
        for worker, slots in self.world.say(client, JobReport(demand, {})).slots.get("j", {}).items():
            held[worker] = min(slots, takes)
            takes -= held[worker]
        self.world.say(client, JobReport(demand, {worker: slots for worker, slots in held.items() if slots}))

    @rule(client=st.sampled_from("xyz"))
    def client_leaves(self, client: str) -> None:
        """A client leaves."""
        self.world.feed(Departed(client))

    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        """A worker dies after it has worked for a while."""
        ready = [book for book in self.world.core.state.stations.values() if book.state is StationState.READY]
        if ready:
            self.world.now_s += 11
            self.world.core.state.clients.excuse(11)
            book = data.draw(st.sampled_from(sorted(ready, key=lambda each: each.station.station)))
            self.world.feed(Died(book.worker, "killed"))

    @rule(name=st.sampled_from("abg"), order=st.sampled_from(list(Order)))
    def user_asks(self, name: str, order: Order) -> None:
        """A user cordons, drains or opens a node."""
        self.world.feed(Asked(order, name))

    @precondition(lambda self: "a" in self.alive)
    @rule()
    def node_dies(self) -> None:
        """A node dies."""
        del self.alive["a"]
        self.world.see(*self.alive.values())

    @rule(number=st.sampled_from([0, 1]))
    def gpu_fails(self, number: int) -> None:
        """A GPU's sessions fail for three files."""
        worker = self.world.core.state.stations[StationId(f"g/gpu#{number}")].worker
        for _ in range(3):
            self.faults += 1
            self.world.sequence += 1
            fault = DeviceFault(worker, f"f{self.faults}", "999", FaultVerdict.FAILED, self.faults)
            report = ClientReport("w", "driver w", self.world.sequence, (), faults=(fault,))
            self.world.feed(Renewed(report))

    @rule(number=st.sampled_from([0, 1]), sessions=st.integers(0, 5), refused=st.booleans())
    def gpu_encodes(self, number: int, sessions: int, *, refused: bool) -> None:
        """A worker has encoder sessions open, and its driver may refuse one more.

        A refusal with no open session would teach nothing, and hide an earlier refusal; a successor learns from the
        next one.
        """
        book = self.world.core.state.stations[f"g/gpu#{number}"]
        if book.state is StationState.READY:
            self.world.hear(Encoding(book.worker, sessions, (sessions or None) if refused else None))

    @rule(notice_s=st.sampled_from([None, 20.0, 500.0]))
    def node_is_to_leave(self, notice_s: float | None) -> None:
        """Ray drains a node, with or without a notice."""
        leaves = None if notice_s is None else UTC_S + self.world.now_s + notice_s
        self.alive["b"] = replace(self.alive["b"], draining=True, leaves_utc_s=leaves)
        self.world.see(*self.alive.values())

    @rule(seconds=st.sampled_from([0.25, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        """Time passes, while clients keep reporting."""
        _pass(self.world, seconds)

    @rule()
    def supervisor_dies(self) -> None:
        """One tick later, the successor knows what its predecessor would know, and takes over."""
        successor = self.world.successor()
        successor.wait(0.25)
        self.world.wait(0.25)
        assert successor.knowledge() == self.world.knowledge()
        self.world = successor

    @rule()
    def supervisor_dies_and_work_goes_on(self) -> None:
        """After the clients' grace period, jobs may use as many slots under the successor as without the death."""
        successor = self.world.successor()
        for world in (self.world, successor):
            _pass(world, SETTINGS.recovery_s + 1)
        is_alike = successor.knowledge()["workers"] == self.world.knowledge()["workers"]
        if is_alike and successor.caps() == self.world.caps():
            assert _shares(successor) == _shares(self.world)


def _pass(world: World, seconds: float) -> None:
    """Let time pass while clients repeat their reports."""
    until_s = world.now_s + seconds
    while world.now_s < until_s:
        step_s = min(1.0, until_s - world.now_s)
        world.core.state.clients.excuse(step_s)
        world.now_s += step_s
        world.feed(Ticked())


def _shares(world: World) -> dict[str, int]:
    state = world.core.state
    targets = state.plans.targets.values()
    return {job.key: sum(wanted.get(job.key, 0) for wanted in targets) for job in state.clients.jobs()}


Rebuilt.TestCase.settings = hypothesis_settings(max_examples=12, stateful_step_count=10, deadline=None)
test_a_successor_knows_the_same_within_a_tick = pytest.mark.filterwarnings("default")(Rebuilt.TestCase)


def test_work_of_clients_that_died_meanwhile_is_dropped() -> None:
    """A driver that ended while no supervisor ran cannot say so; its work is stopped once the driver stays silent."""
    world = Kept()
    world.feed(NodesSeen((node("a"),)))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 50, {worker: 1}))
    world.say("gone", wants("k", 50, {worker: 1}))
    world.feed(Departed("gone"))
    successor = world.successor()
    for _ in range(int(ORPHANS_S)):
        assert successor.abandoned == []
        successor.wait(1)
        successor.say("one", wants("j", 50, {worker: 1}))
    assert successor.abandoned == [Abandon(worker, GoneClients(frozenset({"one"}), are_left=True))]
    successor.wait(5)
    assert len(successor.abandoned) == 1
