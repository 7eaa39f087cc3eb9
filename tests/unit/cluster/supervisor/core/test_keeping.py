"""What stands is kept when a worker dies or a node changes, and everything is placed again soon after."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.placing import SETTLE_S
from codecfleet.cluster.supervisor.state.events import Asked, Died, NodesSeen, Order, Renewed
from codecfleet.cluster.supervisor.state.messages import ClientReport

from ..core_worlds import World, node, total, wants
from ..kept_worlds import COUNT, gpu_world_of, is_from_scratch, say, see, targets_of, worker_at, world_of


def test_a_death_on_a_full_cluster_costs_its_own_jobs_alone() -> None:
    """While the cores of a dead worker are not free again, only the jobs that used it have fewer slots."""
    world = world_of(jobs=10, pieces=20)
    before = targets_of(world)
    assert len(before) == COUNT
    world.feed(Died(worker_at(world, "n03"), "it was killed"))
    assert targets_of(world) == {name: slots for name, slots in before.items() if name != "n03/cpu#0"}


def test_a_dead_worker_gets_its_work_back_with_its_cores() -> None:
    """Once Ray has the cores of a dead worker again, its station has the same jobs as before."""
    world = world_of(jobs=10, pieces=20)
    before = targets_of(world)
    world.feed(Died(worker_at(world, "n03"), "it was killed"))
    see(world, node("n03"))
    assert targets_of(world) == before
    assert worker_at(world, "n03")


def test_a_death_on_an_idle_cluster_costs_no_job_a_slot() -> None:
    """What a dead worker did goes to nodes that are free, and the slots of other jobs stay."""
    world = world_of(jobs=4, pieces=2)
    before = targets_of(world)
    assert len(before) < COUNT
    dead = next(iter(before))
    world.feed(Died(world.core.state.stations[dead].worker, "it was killed"))
    after = targets_of(world)
    lost = before.pop(dead)
    assert dead not in after
    assert all(after[station] == slots for station, slots in before.items())
    grants = grants_for(world.core.state, "one", world.now_s)
    assert all(total(grants, job.removeprefix("one/")) == 2 for job in lost)


def test_all_is_placed_again_soon_after() -> None:
    """Two seconds after a death jobs share as if everything were placed for the first time."""
    world = world_of(jobs=10, pieces=20)
    world.feed(Died(worker_at(world, "n03"), "it was killed"))
    assert not is_from_scratch(world)
    world.wait(SETTLE_S + 0.5)
    assert is_from_scratch(world)


def test_a_job_of_higher_priority_is_soon_made_whole() -> None:
    """What a death takes of it is what a lower one has to give up two seconds later."""
    world = World(*(node(f"n{number:02d}") for number in range(COUNT)))
    high = wants("high", 20)
    say(world, replace(high, demand=replace(high.demand, priority=1)), wants("low", 100))
    see(world, *(replace(each, free_cores=0) for each in world.nodes.values()))
    world.wait(SETTLE_S + 1)
    used = next(station for station, slots in targets_of(world).items() if "one/high" in slots)
    world.feed(Died(world.core.state.stations[used].worker, "it was killed"))
    assert sum(slots.get("one/high", 0) for slots in targets_of(world).values()) == 19
    world.wait(SETTLE_S + 0.5)
    assert sum(slots.get("one/high", 0) for slots in targets_of(world).values()) == 20


def test_a_node_that_goes_takes_only_its_own_work() -> None:
    """No target has a node that is gone, and those of other nodes stay."""
    world = world_of(jobs=10, pieces=20)
    before = targets_of(world)
    del world.nodes["n05"]
    world.feed(NodesSeen(tuple(world.nodes.values())))
    after = targets_of(world)
    assert after == {name: slots for name, slots in before.items() if name != "n05/cpu#0"}
    grants_for(world.core.state, "one", world.now_s)
    world.wait(SETTLE_S + 0.5)
    assert is_from_scratch(world)


def test_work_that_has_begun_moves_nothing() -> None:
    """Reports of slots in use, and of segments that are done, change no target."""
    world = world_of(jobs=10, pieces=300)
    before = targets_of(world)
    world.report("one", *(wants(f"j{number:02d}", 299, {"n01/cpu#0:2": 1}) for number in range(10)))
    assert targets_of(world) == before


def test_a_gpu_in_quarantine_costs_its_own_job_alone() -> None:
    """Jobs on other GPUs keep them; the one that had the sick one is placed on what is free."""
    world = gpu_world_of(jobs=5, pieces=4)
    before = targets_of(world)
    sick = next(iter(before))
    for _ in range(5):
        world.feed(Died(world.core.state.stations[sick].worker, "it was killed"))
        world.now_s += 0.3
    after = targets_of(world)
    untouched = {name: slots for name, slots in before.items() if slots.keys().isdisjoint(before[sick])}
    assert untouched.items() <= after.items()
    world.wait(SETTLE_S + 0.5)
    assert is_from_scratch(world)


def test_a_few_nodes_are_placed_again_at_once() -> None:
    """On a small cluster everything is placed at each change."""
    world = world_of(jobs=3, pieces=20, count=4)
    world.feed(Died(worker_at(world, "n03"), "it was killed"))
    assert is_from_scratch(world)


def test_a_death_does_not_wait_for_a_look_at_everything() -> None:
    """While a full placement has to wait, what a death concerns is placed; a new job waits."""
    world = world_of(jobs=10, pieces=20)
    core, before = world.core, targets_of(world)
    core.take_in(Renewed(ClientReport("two", "driver two", 1, (wants("new", 5),))), world.now_s)
    core.take_in(Died(worker_at(world, "n03"), "it was killed"), world.now_s)
    core.conclude(world.now_s, may_settle=False)
    assert targets_of(world) == {name: slots for name, slots in before.items() if name != "n03/cpu#0"}
    core.conclude(world.now_s)
    assert any("two/new" in slots for slots in targets_of(world).values())


def test_a_change_of_many_nodes_waits_for_a_look_at_everything() -> None:
    """Where that may not be taken yet, the change is not forgotten."""
    world = world_of(jobs=10, pieces=20)
    for number in range(5):
        world.core.take_in(Died(worker_at(world, f"n{number:02d}"), "it was killed"), world.now_s)
    world.core.conclude(world.now_s, may_settle=False)
    assert not world.core.state.is_settled
    world.core.conclude(world.now_s)
    assert is_from_scratch(world)


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
        see(world, node(name, free=0 if what == "taken" else 2))
    elif what == "gone":
        del world.nodes[name]
        world.feed(NodesSeen(tuple(world.nodes.values())))
    else:
        world.feed(Asked(Order(what), name))


@settings(max_examples=40, deadline=None)
@given(HAPPENINGS, st.integers(1, 30))
def test_no_story_gives_out_more_than_there_is(happenings: list[tuple[str, int]], pieces: int) -> None:
    """Targets stay within lanes and stations after each event; in the end all is as placed from scratch."""
    world = world_of(jobs=8, pieces=pieces)
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
    assert is_from_scratch(world)
