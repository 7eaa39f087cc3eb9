"""A placement that follows changes of single nodes: what stands is kept, and no limit is passed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.assign.standing import Replaced, StandingPlacement
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice
from codecfleet.cluster.placement.model.inventory import DeviceState, Inventory, Node
from codecfleet.cluster.placement.model.placement import Lane, Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.engines import Engine

from .. import limits, worlds

RATES = limits.RATES
SOFTWARE = Policy(engines=frozenset({Engine.CPU}))
GONE = {"state": DeviceState.DRAINING, "state_reason": "it is gone"}
Lanes = Mapping[str, Mapping[str, tuple[Lane, ...]]]
"""By job and node."""
World = tuple[Sequence[Demand], Inventory, Policy]


def _by_job(placement: Placement) -> dict[str, dict[str, tuple[Lane, ...]]]:
    found: dict[str, dict[str, tuple[Lane, ...]]] = {}
    for lane in placement.lanes:
        here = found.setdefault(lane.job, {})
        here[lane.node] = (*here.get(lane.node, ()), lane)
    return found


def _after(lanes: Lanes, replaced: Replaced) -> dict[str, dict[str, tuple[Lane, ...]]]:
    return {job: {**lanes.get(job, {}), **replaced.lanes.get(job, {})} for job in {**lanes, **replaced.lanes}}


def _placement(lanes: Lanes) -> Placement:
    return Placement(tuple(lane for nodes in lanes.values() for here in nodes.values() for lane in here), ())


def _sessions(lanes: Lanes, job: str) -> int:
    return sum(lane.sessions for here in lanes.get(job, {}).values() for lane in here)


@st.composite
def _changed(draw: st.DrawFn, node: Node) -> Node:
    """Draw what may become of a node: other cores, states, memory, caps and use by others; its devices stay."""
    other = draw(worlds.nodes(node.node))
    devices = [
        replace(
            device,
            state=draw(worlds.STATES),
            engines={Engine.CPU: draw(st.integers(0, 12))} if Engine.CPU in device.engines else device.engines,
            free_memory_bytes=draw(st.sampled_from([device.free_memory_bytes, 1 << 30])),
            encoder_sessions_max=draw(st.sampled_from([device.encoder_sessions_max, 1])),
            busy=draw(st.sampled_from([device.busy, {Engine.NVDEC: 0.7}])) if device.trials else device.busy,
        )
        for device in node.devices
    ]
    return replace(other, devices=tuple(devices))


@st.composite
def _stories(draw: st.DrawFn) -> tuple[World, list[list[Node]]]:
    """Draw a world, and one change after the other of some of its nodes."""
    demands, inventory, policy = draw(
        st.one_of(
            st.tuples(worlds.demand_lists(), worlds.inventories(), worlds.policies()),
            worlds.tight_worlds(),
        )
    )
    changes = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(inventory.nodes), min_size=1, unique_by=lambda node: node.node))
        changes.append([draw(_changed(node)) for node in chosen])
    return (demands, inventory, policy), changes


FEW = settings(max_examples=40, deadline=None)


@FEW
@given(_stories())
def test_what_follows_a_change_passes_no_limit(story: tuple[World, list[list[Node]]]) -> None:
    """Engines, caps, memory, cores, states and encoder kinds hold on the nodes as they have become."""
    (demands, inventory, policy), changes = story
    standing = StandingPlacement(demands, inventory, RATES, policy)
    lanes: Lanes = _by_job(standing.placement)
    nodes = {node.node: node for node in inventory.nodes}
    for change in changes:
        lanes = _after(lanes, standing.take_in(change))
        nodes |= {node.node: node for node in change}
        now, placement = Inventory(tuple(nodes.values())), _placement(lanes)
        limits.engines_are_kept(placement, demands, now, policy)
        limits.caps_are_kept(placement, demands, now, policy)
        limits.memory_is_kept(placement, demands, now, policy)
        limits.policy_is_kept(placement, demands, now, policy)
        limits.states_are_kept(placement, demands, now, policy)
        limits.kinds_are_kept(placement, demands)
        limits.sessions_are_of_use(placement, demands)


@FEW
@given(_stories())
def test_what_a_change_does_not_concern_is_kept(story: tuple[World, list[list[Node]]]) -> None:
    """Jobs without a lane on a node that changes keep all they have; the others lose nothing on other nodes."""
    (demands, inventory, policy), (change, *_) = story
    standing = StandingPlacement(demands, inventory, RATES, policy)
    before: Lanes = _by_job(standing.placement)
    replaced = standing.take_in(change)
    after, names = _after(before, replaced), {node.node for node in change}
    for job, nodes in before.items():
        if not names & nodes.keys():
            assert after[job] == nodes
        for node in nodes.keys() - names:
            had, has = (
                Counter({(lane.device, lane.route): lane.sessions for lane in each[job].get(node, ())})
                for each in (before, after)
            )
            assert had <= has
        assert _sessions(after, job) <= _sessions(before, job)


@FEW
@given(_stories())
def test_a_change_that_takes_nothing_moves_nothing(story: tuple[World, list[list[Node]]]) -> None:
    """Nodes that come out as they were leave every lane where it was."""
    (demands, inventory, policy), _ = story
    standing = StandingPlacement(demands, inventory, RATES, policy)
    before = _by_job(standing.placement)
    replaced = standing.take_in(inventory.nodes)
    assert not replaced.is_moved
    assert {
        job: {node: here for node, here in nodes.items() if here} for job, nodes in _after(before, replaced).items()
    } == before


@FEW
@given(_stories())
def test_the_same_changes_lead_to_the_same_lanes(story: tuple[World, list[list[Node]]]) -> None:
    """Nothing in it is left to chance."""
    (demands, inventory, policy), changes = story
    first, second = (StandingPlacement(demands, inventory, RATES, policy) for _ in range(2))
    assert [first.take_in(change) for change in changes] == [second.take_in(change) for change in changes]


def _machines(count: int, cores: int = 8) -> Inventory:
    return worlds.inventory(*(worlds.node(f"n{number}", cores=cores) for number in range(count)))


def _with_cores(node: Node, cores: int) -> Node:
    (processor,) = node.devices
    return replace(node, devices=(replace(processor, engines={Engine.CPU: cores}),))


def test_a_full_fleet_keeps_what_fits_and_owes_the_rest() -> None:
    """Where no room is left elsewhere, a node that loses cores costs its own jobs sessions, until it has them again."""
    demands = [worlds.demand(f"job{number}", segments=100) for number in range(4)]
    machines = _machines(4)
    standing = StandingPlacement(demands, machines, RATES, SOFTWARE)
    before: Lanes = _by_job(standing.placement)
    node = machines.nodes[1]
    lanes = _after(before, standing.take_in([_with_cores(node, 5)]))
    assert sum(_sessions(lanes, demand.job) for demand in demands) == 29
    again = _after(lanes, standing.take_in([node]))
    assert _placement(again).lanes == _placement(before).lanes


def test_an_idle_fleet_gives_all_of_it_another_place() -> None:
    """A node that goes while others are idle costs no job a session."""
    demands = [worlds.demand(f"job{number}", segments=4) for number in range(2)]
    machines = _machines(4)
    standing = StandingPlacement(demands, machines, RATES, SOFTWARE)
    before: Lanes = _by_job(standing.placement)
    lost = next(node for node in machines.nodes if any(node.node in nodes for nodes in before.values()))
    replaced = standing.take_in([replace(lost, **GONE)])
    after = _after(before, replaced)
    assert replaced.is_moved
    assert [_sessions(after, demand.job) for demand in demands] == [4, 4]
    assert all(lane.node != lost.node for lane in _placement(after).lanes)


def test_the_first_of_two_priorities_is_placed_again_first() -> None:
    """What one node loses is taken from its lower priority."""
    demands = [worlds.demand("low", segments=4), worlds.demand("high", segments=4, priority=1)]
    machines = _machines(1)
    standing = StandingPlacement(demands, machines, RATES, SOFTWARE)
    after = _after(_by_job(standing.placement), standing.take_in([_with_cores(machines.nodes[0], 5)]))
    assert (_sessions(after, "high"), _sessions(after, "low")) == (4, 1)


def test_a_session_goes_only_to_an_encoder_of_its_kind() -> None:
    """A track that an Ada NVENC writes is not continued by a Turing one, however idle."""
    machines = worlds.inventory(worlds.node("a", "L4"), worlds.node("b", "L4"), worlds.node("c", "T4"))
    standing = StandingPlacement([worlds.demand(segments=40, encoder=EncoderChoice.NVENC)], machines, RATES, Policy())
    before = _by_job(standing.placement)
    after = _after(before, standing.take_in([replace(machines.nodes[0], **GONE)]))
    assert {lane.node for lane in _placement(before).lanes} == {"a", "b"}
    assert {lane.node for lane in _placement(after).lanes} == {"b"}


def test_it_follows_no_node_with_other_devices() -> None:
    """A node that is new, or was given other devices, has to be placed on from scratch."""
    machines = worlds.inventory(worlds.node("a", "L4"))
    standing = StandingPlacement([], machines, RATES, Policy())
    assert standing.follows(machines.nodes[0])
    assert not standing.follows(worlds.node("a", "L4", "L4"))
    assert not standing.follows(worlds.node("b", "L4"))


def test_it_begins_with_what_place_says() -> None:
    """Before any change its lanes are those that are placed without it."""
    demands, machines = [worlds.demand(segments=30)], worlds.inventory(worlds.node("a", "L4"), worlds.node("b"))
    placement = StandingPlacement(demands, machines, RATES, Policy()).placement
    assert placement.lanes == place(demands, machines, RATES, Policy()).lanes
