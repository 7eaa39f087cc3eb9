"""What stands is kept when a worker dies or a node changes, and everything is placed again soon after."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.caps import with_caps
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.placement import Placement, Route
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.supervisor.core.effective import effective_nodes
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.placing import SETTLE_S
from codecfleet.cluster.supervisor.state.events import Asked, Died, NodesSeen, Order, Probed, Renewed
from codecfleet.cluster.supervisor.state.messages import ClientReport, JobReport, RayNode
from codecfleet.cluster.supervisor.state.stations import StationState

from ..core_worlds import World, gpu_node, node, nvenc, total, wants

COUNT = 20
Targets = dict[str, dict[str, int]]


def _world(jobs: int, pieces: int, count: int = COUNT) -> World:
    """Return nodes of two cores each, with workers on those that the jobs of a client need, and no core free there."""
    world = World(*(node(f"n{number:02d}") for number in range(count)))
    _say(world, *(wants(f"j{number:02d}", pieces) for number in range(jobs)))
    _see(world, *(replace(each, free_cores=0 if _worker(world, each.node) else 2) for each in world.nodes.values()))
    world.wait(SETTLE_S + 1)
    return world


def _say(world: World, *jobs: JobReport) -> None:
    grants = world.say("one", *jobs)
    world.say("one", *(replace(job, held=grants.slots[job.demand.job]) for job in jobs))


def _see(world: World, *nodes: RayNode) -> None:
    """Have Ray list these nodes as they are now, beside the others."""
    world.nodes |= {each.node: each for each in nodes}
    world.feed(NodesSeen(tuple(world.nodes.values())))


def _worker(world: World, name: str) -> str:
    book = world.core.state.stations[f"{name}/cpu#0"]
    return book.worker if book.state is StationState.READY else ""


def _targets(world: World) -> Targets:
    return {station: dict(slots) for station, slots in world.core.state.targets.items()}


def _is_from_scratch(world: World) -> bool:
    """Return whether jobs are where they would be if everything were placed now."""
    now, scratch = (_places(each) for each in (world.core.state.placement, _from_scratch(world)))
    return now == scratch


def _places(placement: Placement) -> list[tuple[str, str, Route, int]]:
    return [(lane.job, lane.device, lane.route, lane.sessions) for lane in placement.lanes]


def _from_scratch(world: World) -> Placement:
    state = world.core.state
    inventory = Inventory(tuple(effective_nodes(state.nodes, state.stations)))
    demands = [job.demand for job in state.clients.jobs()]
    return place(demands, with_caps(inventory, state.caps), start_rates(), Policy())


def test_a_death_on_a_full_cluster_costs_its_own_jobs_alone() -> None:
    """While the cores of a dead worker are not free again, only the jobs that used it have fewer slots."""
    world = _world(jobs=10, pieces=20)
    before = _targets(world)
    assert len(before) == COUNT
    world.feed(Died(_worker(world, "n03"), "it was killed"))
    assert _targets(world) == {name: slots for name, slots in before.items() if name != "n03/cpu#0"}


def test_a_dead_worker_gets_its_work_back_with_its_cores() -> None:
    """Once Ray has the cores of a dead worker again, its station has the same jobs as before."""
    world = _world(jobs=10, pieces=20)
    before = _targets(world)
    world.feed(Died(_worker(world, "n03"), "it was killed"))
    _see(world, node("n03"))
    assert _targets(world) == before
    assert _worker(world, "n03")


def test_a_death_on_an_idle_cluster_costs_no_job_a_slot() -> None:
    """What a dead worker did goes to nodes that are free, and the slots of other jobs stay."""
    world = _world(jobs=4, pieces=2)
    before = _targets(world)
    assert len(before) < COUNT
    dead = next(iter(before))
    world.feed(Died(world.core.state.stations[dead].worker, "it was killed"))
    after = _targets(world)
    lost = before.pop(dead)
    assert dead not in after
    assert all(after[station] == slots for station, slots in before.items())
    grants = grants_for(world.core.state, "one", world.now_s)
    assert all(total(grants, job.removeprefix("one/")) == 2 for job in lost)


def test_all_is_placed_again_soon_after() -> None:
    """Two seconds after a death jobs share as if everything were placed for the first time."""
    world = _world(jobs=10, pieces=20)
    world.feed(Died(_worker(world, "n03"), "it was killed"))
    assert not _is_from_scratch(world)
    world.wait(SETTLE_S + 0.5)
    assert _is_from_scratch(world)


def test_a_job_of_higher_priority_is_soon_made_whole() -> None:
    """What a death takes of it is what a lower one has to give up two seconds later."""
    world = World(*(node(f"n{number:02d}") for number in range(COUNT)))
    high = wants("high", 20)
    _say(world, replace(high, demand=replace(high.demand, priority=1)), wants("low", 100))
    _see(world, *(replace(each, free_cores=0) for each in world.nodes.values()))
    world.wait(SETTLE_S + 1)
    used = next(station for station, slots in _targets(world).items() if "one/high" in slots)
    world.feed(Died(world.core.state.stations[used].worker, "it was killed"))
    assert sum(slots.get("one/high", 0) for slots in _targets(world).values()) == 19
    world.wait(SETTLE_S + 0.5)
    assert sum(slots.get("one/high", 0) for slots in _targets(world).values()) == 20


def test_a_node_that_goes_takes_only_its_own_work() -> None:
    """No target has a node that is gone, and those of other nodes stay."""
    world = _world(jobs=10, pieces=20)
    before = _targets(world)
    del world.nodes["n05"]
    world.feed(NodesSeen(tuple(world.nodes.values())))
    after = _targets(world)
    assert after == {name: slots for name, slots in before.items() if name != "n05/cpu#0"}
    grants_for(world.core.state, "one", world.now_s)
    world.wait(SETTLE_S + 0.5)
    assert _is_from_scratch(world)


def test_work_that_has_begun_moves_nothing() -> None:
    """Reports of slots in use, and of segments that are done, change no target."""
    world = _world(jobs=10, pieces=300)
    before = _targets(world)
    world.report("one", *(wants(f"j{number:02d}", 299, {"n01/cpu#0:2": 1}) for number in range(10)))
    assert _targets(world) == before


def test_a_gpu_in_quarantine_costs_its_own_job_alone() -> None:
    """Jobs on other GPUs keep them; the one that had the sick one is placed on what is free."""
    made = [gpu_node(f"g{number:02d}", f"GPU-{number:02d}") for number in range(COUNT)]
    world = World(*(ray for ray, _ in made))
    world.gpus = {f"{probed.node}/gpu#0": probed.devices[0].device for _, probed in made}
    for _, probed in made:
        world.feed(Probed(probed))
    jobs = [replace(nvenc(f"j{number:02d}", 4)) for number in range(5)]
    _say(world, *jobs)
    world.wait(SETTLE_S + 1)
    before = _targets(world)
    sick = next(iter(before))
    for _ in range(5):
        world.feed(Died(world.core.state.stations[sick].worker, "it was killed"))
        world.now_s += 0.3
    after = _targets(world)
    untouched = {name: slots for name, slots in before.items() if slots.keys().isdisjoint(before[sick])}
    assert untouched.items() <= after.items()
    world.wait(SETTLE_S + 0.5)
    assert _is_from_scratch(world)


def test_a_few_nodes_are_placed_again_at_once() -> None:
    """On a small cluster everything is placed at each change."""
    world = _world(jobs=3, pieces=20, count=4)
    world.feed(Died(_worker(world, "n03"), "it was killed"))
    assert _is_from_scratch(world)


def test_a_death_does_not_wait_for_a_look_at_everything() -> None:
    """While a full placement has to wait, what a death concerns is placed; a new job waits."""
    world = _world(jobs=10, pieces=20)
    core, before = world.core, _targets(world)
    core.take_in(Renewed(ClientReport("two", "driver two", 1, (wants("new", 5),))), world.now_s)
    core.take_in(Died(_worker(world, "n03"), "it was killed"), world.now_s)
    core.conclude(world.now_s, may_settle=False)
    assert _targets(world) == {name: slots for name, slots in before.items() if name != "n03/cpu#0"}
    core.conclude(world.now_s)
    assert any("two/new" in slots for slots in _targets(world).values())


def test_a_change_of_many_nodes_waits_for_a_look_at_everything() -> None:
    """Where that may not be taken yet, the change is not forgotten."""
    world = _world(jobs=10, pieces=20)
    for number in range(5):
        world.core.take_in(Died(_worker(world, f"n{number:02d}"), "it was killed"), world.now_s)
    world.core.conclude(world.now_s, may_settle=False)
    assert not world.core.state.is_settled
    world.core.conclude(world.now_s)
    assert _is_from_scratch(world)


HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["death", "taken", "freed", "drain", "uncordon", "gone", "wait", "report"]),
        st.integers(0, COUNT - 1),
    ),
    max_size=12,
)


def _happen(world: World, what: str, number: int) -> None:
    name = f"n{number:02d}"
    if what == "wait":
        world.wait(0.25 * (number % 10))
    elif what == "report":
        world.say("one", *(wants(f"j{each:02d}", 20 - number // 2) for each in range(8)))
    elif name not in world.nodes:
        return
    elif what == "death":
        world.feed(Died(world.core.state.stations[f"{name}/cpu#0"].worker, "it was killed"))
    elif what in ("taken", "freed"):
        _see(world, node(name, free=0 if what == "taken" else 2))
    elif what == "gone":
        del world.nodes[name]
        world.feed(NodesSeen(tuple(world.nodes.values())))
    else:
        world.feed(Asked(Order(what), name))


@settings(max_examples=40, deadline=None)
@given(HAPPENINGS, st.integers(1, 30))
def test_no_story_gives_out_more_than_there_is(happenings: list[tuple[str, int]], pieces: int) -> None:
    """Targets stay within lanes and stations after each event; in the end all is as placed from scratch."""
    world = _world(jobs=8, pieces=pieces)
    state = world.core.state
    for what, number in happenings:
        _happen(world, what, number)
        for station, wanted in state.targets.items():
            assert sum(wanted.values()) <= state.stations[station].station.slots
            for job, slots in wanted.items():
                here = state.plan_of(job).lanes_at.get(state.stations[station].station.node, ())
                assert slots <= sum(lane.sessions for lane in here)
        for client in state.clients:
            grants_for(state, client.client, world.now_s)
    world.say("one", *(wants(f"j{number:02d}", pieces) for number in range(8)))
    world.wait(SETTLE_S + 1)
    assert _is_from_scratch(world)
