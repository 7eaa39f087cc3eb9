"""The supervisor's decisions, one promise at a time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.placement.model.inventory import Inventory, processor_of
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.placing import place_or_refuse
from codecfleet.cluster.supervisor.state.events import (
    Asked,
    Died,
    Effect,
    Found,
    NodesSeen,
    Note,
    NotReserved,
    Order,
    Probed,
    Renewed,
    Reserve,
    Reserved,
    Started,
    Ticked,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, FoundWorker, JobReport, RayNode, WorkerFacts
from codecfleet.cluster.supervisor.state.state import Planner
from codecfleet.cluster.supervisor.state.stations import StationState
from codecfleet.cluster.worker_names import WorkerId

from ..core_worlds import World, decided, gpu_node, node, nvenc, total, wants


class FullWorld(World):
    """A world whose Ray reserves nothing."""

    def __init__(self, *nodes: RayNode) -> None:
        self.reserved: list[Reserve] = []  # the orders to reserve
        super().__init__(*nodes)

    def carry_out(self, effect: Effect) -> None:
        """Only keep the orders to reserve."""
        if isinstance(effect, Reserve):
            self.reserved.append(effect)


ADOPTED = WorkerId("a/cpu#0:41")


def test_withheld_reservations_are_reported() -> None:
    """While Ray has reserved nothing for a job's workers, the reason why the job waits says so."""
    (waiting,) = FullWorld(node("a")).say("one", wants("j", 10)).waiting.values()
    assert waiting.startswith("Ray has not reserved its cores and GPUs")


def test_jobs_of_two_clients_share_evenly_whatever_their_size() -> None:
    """A large and a small job get the same share, until the small job needs less."""
    world = World(node("a"), node("b"))
    world.say("one", wants("large", 1000))
    world.say("two", wants("small", 10))
    first, second = world.say("one", wants("large", 1000)), world.say("two", wants("small", 10))
    assert (total(first, "large"), total(second, "small")) == (2, 2)
    world.say("two", wants("small", 1))
    first, second = world.say("one", wants("large", 1000)), world.say("two", wants("small", 1))
    assert (total(first, "large"), total(second, "small")) == (3, 1)


def test_a_job_that_cannot_be_placed_costs_no_other() -> None:
    """A demand with which placement fails is refused by name; the other demands get their share."""
    world = World(node("a"))
    broken = JobReport(replace(plain_demand("b", 5), width=0, height=0), {})
    world.say("one", wants("j", 100))
    world.report("two", broken)
    refusal = next(each for each in world.core.state.plans.placement.refusals if each.job == "two/b")
    assert "cannot be placed" in refusal.reason
    assert total(world.say("one", wants("j", 100)), "j") == 2


class FailingTogether(Planner):
    """A planner that fails whenever it places all demands together."""

    def place(self, demands: Sequence[Demand], inventory: Inventory, *, in_full: bool = True) -> Placement:
        """Fail in the one call in which everything is placed."""
        if not in_full:
            raise ZeroDivisionError("of all together")
        return super().place(demands, inventory)


def test_jobs_that_fail_only_together_are_placed() -> None:
    """If placement fails for all jobs together but for none alone, the jobs are placed, and the defect is logged."""
    inventory = Inventory((processor_of("a", "host-a", 2),))
    placement, effects = place_or_refuse(FailingTogether(Policy()), (plain_demand("j", 5),), inventory)
    assert [lane.job for lane in placement.lanes] == ["j"]
    assert [each.line for each in effects if isinstance(each, Note)] == [
        "defect: the jobs cannot be placed together: ZeroDivisionError: of all together"
    ]


def test_a_cordoned_node_gets_nothing_new() -> None:
    """A cordoned node finishes its work, and gets no more until it is uncordoned."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    world.feed(Asked(Order.CORDON, "host-a"))
    assert set(world.say("one", wants("j", 100, dict(held))).slots["j"]) == {w for w in held if w.startswith("b/")}
    assert world.core.state.stations["a/cpu#0"].state is StationState.READY
    world.feed(Asked(Order.UNCORDON, "host-a"))
    assert total(world.say("one", wants("j", 100)), "j") == 4


def test_a_node_is_known_by_each_of_its_names() -> None:
    """A node is found by its id, the beginning of its id, its host name, or its title in the status."""
    first, second = replace(node("a" * 12), name="pod"), replace(node("b" * 12), name="pod")
    nodes = World(first, second, node("c")).core.state.nodes
    for wanted in ("b" * 12, "bb", nodes.title("b" * 12)):
        assert (found := nodes.find(wanted)) is not None
        assert found.ray.node == "b" * 12
    assert nodes.find("pod") is None
    assert nodes.find("host-c") is nodes.get("c")


def test_a_drained_node_is_released_once_its_work_is_done() -> None:
    """Draining waits for running work and for nothing else."""
    world = World(node("a"))
    (worker,) = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, {worker: 1}))
    world.feed(Asked(Order.DRAIN, "a"))
    world.wait(1)
    world.say("one", wants("j", 100, {worker: 1}))
    assert world.core.state.stations["a/cpu#0"].state is StationState.READY
    world.say("one", wants("j", 99))
    world.wait(1)
    assert world.core.state.stations["a/cpu#0"].state is StationState.EMPTY


def test_a_full_cluster_is_shared_rather_than_waited_for() -> None:
    """If nothing can be reserved anywhere, one worker shares the cores of others."""
    world = World(node("a", 2, free=0))
    core, now_s = world.core, world.now_s
    report = ClientReport("one", "driver", 1, (wants("j", 100),))
    (reserve,) = [e for e in decided(core, Renewed(report), now_s) if isinstance(e, Reserve)]
    decided(core, NotReserved(reserve.worker, "taken"), now_s)
    effects = decided(core, Ticked(), now_s + 1)
    (again,) = [effect for effect in effects if isinstance(effect, Reserve)]
    assert (again.cores, again.worker.epoch > reserve.worker.epoch) == (0, True)


def test_a_worker_whose_cores_are_free_starts_without_a_bundle() -> None:
    """If Ray reserves nothing though the cores are free, every worker reserves its own cores when it starts."""
    world = FullWorld(node("a"), node("b", 3))
    world.report("one", wants("j", 100))
    orders = _refused(world)
    assert {(each.station.node, each.cores, each.is_bundled) for each in orders} == {("a", 2, False), ("b", 3, False)}
    for order in orders:
        world.feed(Reserved(order.worker, order.cores), Started(order.worker, WorkerFacts(9, order.cores)))
    world.feed(NodesSeen((node("a", 2, free=0), node("b", 3, free=0))))
    assert total(world.told("one"), "j") == 5
    world.reserved.clear()
    world.feed(Died(orders[0].worker, "killed"))
    assert [each.is_bundled for each in world.reserved] == [True]


def test_only_a_gpu_of_its_own_is_reserved_without_a_bundle() -> None:
    """A free GPU is reserved by the worker itself; one that Ray has given away, or that stations share, is not."""
    for free_gpus, is_bundled in ((1.0, False), (0.4, True)):
        ray, probed = gpu_node("g", "GPU-1")
        world = FullWorld(replace(ray, free_gpus=free_gpus))
        world.feed(Probed(probed))
        world.report("one", nvenc("j", 100))
        orders = [each for each in _refused(world) if each.station.kind.takes_gpu]
        assert [each.is_bundled for each in orders] == [is_bundled]


@pytest.mark.parametrize(("free_gpus", "withheld"), [(1.0, set()), (0.0, {"GPU-1"})])
def test_a_gpu_counts_as_held_only_if_ray_has_no_free_gpu(free_gpus: float, withheld: set[str]) -> None:
    """A worker keeps an unwanted GPU, and Ray makes no bundle for the next: other Ray work holds its GPU, or nobody."""
    ray, probed = gpu_node("g", "GPU-0", "GPU-1")
    world = FullWorld(replace(ray, cores=64, free_cores=64, free_gpus=free_gpus))
    world.feed(Probed(probed))
    world.report("one", JobReport(replace(nvenc("j", 400).demand, workers_max=2), {}))
    first, second = (each for each in world.reserved if each.station.kind.takes_gpu)
    book = world.core.state.stations[second.station.station]
    assert book.chosen == "GPU-1"
    world.feed(Reserved(first.worker, 1), Started(first.worker, WorkerFacts(7, 1, "")))
    world.feed(NotReserved(second.worker, "Ray had reserved nothing after 10 s"))
    assert set(world.core.state.node_of(book).withheld) == withheld


def _refused(world: "FullWorld") -> list[Reserve]:
    """Refuse all reservations that a world has ordered; return the orders that follow."""
    refused, world.reserved = world.reserved, []
    for order in refused:
        world.feed(NotReserved(order.worker, "Ray had reserved nothing after 10 s"))
    world.wait(1)
    return [*world.reserved]


def test_a_worker_that_shares_cores_is_replaced_once_some_are_free() -> None:
    """A worker without a reservation is replaced by one with a reservation once cores are free."""
    world = World(node("a", 2, free=0))
    found = FoundWorker(ADOPTED, WorkerFacts(99, 2))
    world.feed(Found((found,)))
    world.say("one", wants("j", 50, {ADOPTED: 1}))
    world.wait(4)
    assert world.stopped == []
    world.feed(NodesSeen((node("a", 2),)))
    assert total(world.say("one", wants("j", 50, {ADOPTED: 1})), "j") == 0
    assert world.stopped == []
    world.say("one", wants("j", 49))
    assert world.stopped == ["a/cpu#0:41"]
    grants = world.say("one", wants("j", 49))
    assert (total(grants, "j"), world.core.state.stations["a/cpu#0"].reserved_cores) == (2, 2)


def test_a_cluster_without_a_cpu_is_given_half_a_minute() -> None:
    """For half a minute, nodes may still be joining; after that, clients learn that nothing can run."""
    world = World(node("a", 0))
    assert world.say("one", wants("j", 1)).unrecoverable == ""
    world.now_s += 31
    assert world.say("one", wants("j", 1)).unrecoverable == "the Ray cluster has no node with a CPU"


def test_an_older_report_changes_nothing() -> None:
    """Reports that overtake each other are recognised by their sequence numbers."""
    world = World(node("a"))
    world.say("one", wants("j", 100))
    world.feed(Renewed(ClientReport("one", "driver one", 0, ())))
    assert [job.key for job in world.core.state.clients.jobs()] == ["one/j"]


@pytest.mark.parametrize("probed", [False, True])
def test_a_preemptible_node_comes_last(*, probed: bool) -> None:
    """Ray's label of a preemptible node counts before and after the probe of the node."""
    spot = replace(node("a"), preemptible=True)
    world = World(spot, node("b"))
    if probed:
        world.feed(Probed(replace(spot, preemptible=False).unprobed()))
    (worker,) = world.say("one", wants("j", 2)).slots["j"]
    assert worker.startswith("b/cpu#0:")


def test_a_job_that_is_too_large_is_told_so_at_once_and_others_are_served() -> None:
    """A job of huge pictures gets no slots, but both figures; another job that fits gets slots."""
    huge = replace(plain_demand("huge", 4), width=15000, height=15000)
    huge = replace(huge, renditions=(replace(huge.renditions[0], width=15000, height=15000),))
    world = World(replace(node("a", 8), memory_bytes=4 * 10**9))
    grants = world.say("one", JobReport(huge), JobReport(plain_demand("film", 4)))
    assert set(grants.too_large) == {"huge"}
    assert "GB of memory, and this machine has 4.0 GB for work" in grants.too_large["huge"]
    assert (total(grants, "huge"), total(grants, "film") > 0) == (0, True)
