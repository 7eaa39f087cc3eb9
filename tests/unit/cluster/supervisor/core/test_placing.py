"""Everything is placed from scratch when something has changed, as often as that may be."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.caps import with_caps
from codecfleet.cluster.placement.model.inventory import DeviceState, Inventory
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.device_kinds import Route
from codecfleet.cluster.supervisor.core.effective import effective_nodes
from codecfleet.cluster.supervisor.state.events import Asked, Died, NodesSeen, Order, Renewed, Reserve, Ticked
from codecfleet.cluster.supervisor.state.messages import ClientReport, RayNode
from codecfleet.cluster.supervisor.state.planner import Planner
from codecfleet.cluster.supervisor.state.stations import StationState

from ..core_worlds import World, node, total, wants

COUNT = 8


def _worker_at(world: World, name: str) -> str:
    """Return the worker on a node's processor; "" while it has none."""
    book = world.core.state.stations.get(f"{name}/cpu#0")
    return "" if book is None or book.state is not StationState.READY else book.worker


def _see(world: World, *nodes: RayNode) -> None:
    """Have Ray list these nodes as they are now, beside the others."""
    world.nodes |= {each.node: each for each in nodes}
    world.feed(NodesSeen(tuple(world.nodes.values())))


def _used(world: World) -> dict[str, int]:
    """Return how many slots jobs have, by node."""
    used: Counter[str] = Counter()
    for station, slots in world.core.state.targets.items():
        used[station.partition("/")[0]] += sum(slots.values())
    return dict(used)


def _places(placement: Placement) -> list[tuple[str, str, Route, int]]:
    return [(lane.job, lane.device, lane.route, lane.sessions) for lane in placement.lanes]


def _is_from_scratch(world: World) -> bool:
    """Return whether jobs are where they would be if everything were placed now."""
    state = world.core.state
    inventory = Inventory(tuple(effective_nodes(state.nodes, state.stations)))
    demands = [job.demand for job in state.clients.jobs()]
    return _places(state.placement) == _places(
        place(demands, with_caps(inventory, state.caps), start_rates(), Policy())
    )


def _world_of(jobs: int, pieces: int) -> World:
    world = World(*(node(f"n{number}") for number in range(COUNT)))
    world.say("one", *(wants(f"j{number}", pieces) for number in range(jobs)))
    return world


def test_a_dead_worker_s_station_is_reserved_again_at_once() -> None:
    """In the decision of its death, however far the next placement is; and jobs keep what they had."""
    world = _world_of(jobs=2, pieces=2)
    dead = next(iter(world.core.state.targets))
    effects = world.core.decide(Died(world.core.state.stations[dead].worker, "it was killed"), world.now_s)
    assert [effect.station.station for effect in effects if isinstance(effect, Reserve)] == [dead]
    world.pending += effects
    world.feed(Ticked())
    assert {job: total(world.told("one"), job) for job in ("j0", "j1")} == {"j0": 2, "j1": 2}


def test_the_next_pass_comes_after_five_times_the_last_one_s_duration() -> None:
    """So that placing takes a fifth of a core at most; what changed meanwhile waits, and is placed at once then."""
    world = _world_of(jobs=1, pieces=20)
    core, now_s = world.core, world.now_s
    placed_s = core.state.placed_s
    core.decide(Asked(Order.DRAIN, "n0"), now_s)
    core.decide(Ticked(pass_s=0.1), now_s + 0.4)
    assert (core.state.placed_s, core.state.is_dirty) == (placed_s, True)
    core.decide(Ticked(pass_s=0.1), now_s + 0.5)
    assert (core.state.placed_s, core.state.is_dirty) == (now_s + 0.5, False)


def test_a_tick_without_a_change_places_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a report that says the same, or of work that has begun."""
    world = _world_of(jobs=2, pieces=4)
    monkeypatch.setattr(Planner, "place", lambda *_, **__: pytest.fail("it placed"))
    world.wait(2)
    world.say("one", *(wants(f"j{number}", 4) for number in range(2)))
    worker = next(iter(world.told("one").slots["j0"]))
    world.say("one", wants("j0", 4, {worker: 1}), wants("j1", 4))


def test_effects_have_the_number_of_the_event_that_caused_them() -> None:
    """Events are counted from 1; what a tick orders is the tick's."""
    world = World()
    joined = world.core.decide(NodesSeen((node("a"),)), world.now_s)
    number = world.core.state.event
    assert {effect.event for effect in joined} == {number}
    world.core.decide(Renewed(ClientReport("one", "driver one", 1, (wants("j", 4),))), world.now_s)
    placed = world.core.decide(Ticked(), world.now_s)
    assert [effect.event for effect in placed if isinstance(effect, Reserve)] == [number + 2]


HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["death", "taken", "freed", "drain", "uncordon", "gone", "report", "wait"]),
        st.integers(0, COUNT - 1),
    ),
    max_size=14,
)
"""What happens, and to which node."""


def _happen(world: World, what: str, number: int) -> None:
    name = f"n{number}"
    match what:
        case "wait":
            world.wait(0.25 * number)
        case "report":
            world.say("one", *(wants(f"j{each}", 1 + number) for each in range(COUNT)))
        case "death" if worker := _worker_at(world, name):
            world.feed(Died(worker, "it was killed"))
        case "taken" | "freed":
            _see(world, node(name, free=0 if what == "taken" else 2))
        case "gone" if name in world.nodes:
            del world.nodes[name]
            _see(world)
        case "drain" | "uncordon":
            world.feed(Asked(Order(what), name))


@settings(max_examples=40, deadline=None)
@given(HAPPENINGS, st.integers(1, 4))
def test_no_story_gives_out_what_is_not_there(happenings: list[tuple[str, int]], pieces: int) -> None:
    """Stations have no more than their slots, drained nodes no more than before; and all is as from scratch."""
    world = _world_of(jobs=COUNT, pieces=pieces)
    state = world.core.state
    for what, number in happenings:
        before = _used(world)
        _happen(world, what, number)
        for station, wanted in state.targets.items():
            assert sum(wanted.values()) <= state.stations[station].station.slots
        for name, slots in _used(world).items():
            if state.nodes.find(name).state is DeviceState.DRAINING:
                assert slots <= before.get(name, 0)
    world.say("one", *(wants(f"j{number}", pieces) for number in range(COUNT)))
    world.feed(NodesSeen(tuple(replace(each, memory_bytes=1 << 40) for each in world.nodes.values())))
    assert _is_from_scratch(world)
