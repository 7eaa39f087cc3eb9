"""What holds of every placement, whatever the machines, jobs and policy."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.assign.recipes import Recipe, RecipeRequest
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Device, DeviceState, Inventory, Node
from codecfleet.cluster.placement.model.placement import Lane, Placement, Route
from codecfleet.cluster.placement.model.policy import Policy, PreemptibleUse
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.hardware import MIB
from codecfleet.cluster.probes.report.device_report import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial

from .. import worlds

SOFTWARE = Policy(engines=frozenset({Engine.CPU}))
RATES = start_rates()
SLACK = 1e-6
ENGINES_OF = {
    Route.GPU: {Engine.NVDEC, Engine.NVENC},
    Route.HYBRID: {Engine.NVDEC, Engine.CPU},
    Route.UPLOAD: {Engine.NVENC, Engine.CPU},
    Route.CPU: {Engine.CPU},
}
WORLD = (worlds.demand_lists(), worlds.inventories(), worlds.policies())
ANY = st.one_of(st.tuples(*WORLD), worlds.tight_worlds(), worlds.tight_worlds())
World = tuple[Sequence[Demand], Inventory, Policy]
FEW = settings(max_examples=80, deadline=None)


def _homes(inventory: Inventory) -> dict[str, tuple[Node, Device]]:
    return {device.device: (node, device) for node in inventory.nodes for device in node.devices}


def _recipe(lane: Lane, demand: Demand, node: Node, device: Device, policy: Policy) -> Recipe:
    processor = next(each for each in node.devices if each.kind is DeviceKind.CPU)
    found = RecipeRequest(demand, lane.kinds, device, RATES, policy, processor.name, node.speed).recipes()
    assert not isinstance(found, str), found
    return next(recipe for recipe in found if recipe.route is lane.route)


def _booked(
    placement: Placement, demands: Sequence[Demand], inventory: Inventory, policy: Policy
) -> Iterator[tuple[Lane, Recipe, Node, Device]]:
    homes, by_job = _homes(inventory), {demand.job: demand for demand in demands}
    for lane in placement.lanes:
        node, device = homes[lane.device]
        yield lane, _recipe(lane, by_job[lane.job], node, device, policy), node, device


@FEW
@given(ANY)
def test_no_engine_gets_more_sessions_than_make_it_faster(world: World) -> None:
    """The sessions on an engine, slow ones counted by the part they take, end where its curve is flat."""
    demands, inventory, policy = world
    placement = place(demands, inventory, RATES, policy)
    loads, flat = defaultdict[tuple[str, str], float](float), dict[tuple[str, str], float]()
    for lane, recipe, _, device in _booked(placement, demands, inventory, policy):
        for use in recipe.engines:
            key = (device.device, use.engine)
            loads[key] += lane.sessions * use.load
            flat[key] = max(flat.get(key, 0), use.load_most)
    assert all(load <= flat[key] + SLACK for key, load in loads.items())


@FEW
@given(ANY)
def test_no_cap_of_encoder_sessions_is_passed(world: World) -> None:
    """Encoder sessions stay within the caps of a device, of a GPU with all its slices, and of a machine."""
    demands, inventory, policy = world
    placement = place(demands, inventory, RATES, policy)
    opened, most = defaultdict[str, int](int), dict[str, int]()
    for lane, _, node, device in _booked(placement, demands, inventory, policy):
        sessions = lane.sessions * sum(kind.is_nvenc for kind in lane.kinds)
        for name in {device.device, device.parent or device.device}:
            opened[name] += sessions
            if device.encoder_sessions_max is not None:
                most[name] = min(most.get(name, device.encoder_sessions_max), device.encoder_sessions_max)
        opened[node.node] += sessions
        if node.system_encoder_sessions_max is not None:
            most[node.node] = node.system_encoder_sessions_max
    assert all(opened[name] <= cap for name, cap in most.items())


@FEW
@given(ANY)
def test_no_memory_is_overbooked(world: World) -> None:
    """Sessions and one context fit into a device's free memory less the reserve, and sessions into the host's.

    A single session may take all of its host's memory.
    """
    demands, inventory, policy = world
    placement = place(demands, inventory, RATES, policy)
    on_device, on_host = defaultdict[str, int](int), defaultdict[str, int](int)
    sessions = defaultdict[str, int](int)
    for lane, recipe, node, device in _booked(placement, demands, inventory, policy):
        on_host[node.node] += lane.sessions * recipe.host_bytes
        sessions[node.node] += lane.sessions
        if device.kind is not DeviceKind.CPU:
            on_device[device.device] += lane.sessions * recipe.device_bytes
    context = RATES.hardware.memory.context_mib * MIB
    for node in inventory.nodes:
        if node.memory_bytes is not None:
            reserve = 0.0 if sessions[node.node] == 1 else policy.memory_reserve
            assert on_host[node.node] <= node.memory_bytes * (1 - reserve)
        for device in node.devices:
            if device.device in on_device and device.free_memory_bytes is not None:
                assert on_device[device.device] + context <= device.free_memory_bytes * (1 - policy.memory_reserve)


@FEW
@given(ANY)
def test_the_policy_is_kept(world: World) -> None:
    """Cores, sessions on a device, engines and preemptible nodes: never more than the policy allows."""
    demands, inventory, policy = world
    placement = place(demands, inventory, RATES, policy)
    cores, sessions = defaultdict[str, float](float), defaultdict[str, int](int)
    for lane, _, node, device in _booked(placement, demands, inventory, policy):
        assert ENGINES_OF[lane.route] <= policy.engines
        cores[node.node] += lane.cores
        if device.kind is not DeviceKind.CPU:
            sessions[device.device] += lane.sessions
        if node.preemptible:
            assert policy.preemptible is not PreemptibleUse.NEVER
    assert all(count <= policy.sessions_per_device for count in sessions.values())
    for node in inventory.nodes:
        count = sum(device.engines[Engine.CPU] for device in node.devices if device.kind is DeviceKind.CPU)
        assert cores[node.node] <= max(0, count - policy.cores_reserved) * policy.sessions_per_core + SLACK


@FEW
@given(*WORLD)
def test_work_goes_only_where_it_may(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> None:
    """Nothing runs on what is shut; one host has all of a lane."""
    placement = place(demands, inventory, RATES, policy)
    for lane, _, node, device in _booked(placement, demands, inventory, policy):
        assert lane.node == node.node == device.node
        assert node.state is DeviceState.OPEN
        assert device.state is DeviceState.OPEN


@FEW
@given(*WORLD)
def test_every_track_has_one_encoder_kind(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> None:
    """All lanes of a job encode with the same kinds, and a track that has begun keeps its own."""
    placement = place(demands, inventory, RATES, policy)
    for demand in demands:
        kinds = {lane.kinds for lane in placement.lanes if lane.job == demand.job}
        assert len(kinds) <= 1
        for settled in kinds:
            fixed = [rendition.kind for rendition in demand.renditions]
            assert all(before in (None, after) for before, after in zip(fixed, settled, strict=True))


@FEW
@given(*WORLD)
def test_no_job_gets_more_sessions_than_it_can_use(
    demands: Sequence[Demand], inventory: Inventory, policy: Policy
) -> None:
    """A job has at most one session for each segment, and no more than it allows."""
    placement = place(demands, inventory, RATES, policy)
    for demand in demands:
        sessions = sum(lane.sessions for lane in placement.lanes if lane.job == demand.job)
        assert sessions <= min(len(demand.segments), demand.workers_max or len(demand.segments))


@FEW
@given(*WORLD)
def test_every_answer_has_a_reason(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> None:
    """Each job and device is either used or refused, once, with one sentence; so is a job that gets nothing."""
    placement = place(demands, inventory, RATES, policy)
    reasons = [lane.reason for lane in placement.lanes] + [refusal.reason for refusal in placement.refusals]
    for reason in reasons:
        assert reason
        assert reason == reason.strip()
        assert "\n" not in reason
        assert not reason.endswith(".")
    everything = set(_homes(inventory))
    for demand in demands:
        used = {lane.device for lane in placement.lanes if lane.job == demand.job}
        refused = [name for refusal in placement.refusals if refusal.job == demand.job for name in refusal.devices]
        nowhere = [r for r in placement.refusals if r.job == demand.job and not r.devices]
        assert bool(nowhere) == (not used)
        if demand.segments:
            assert sorted(refused) == sorted(everything - used)


@FEW
@given(*WORLD, st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_nodes_makes_no_difference(
    demands: Sequence[Demand], inventory: Inventory, policy: Policy, random: Random
) -> None:
    """The same machines and jobs in another order give the same placement."""
    shuffled, others = list(inventory.nodes), list(demands)
    random.shuffle(shuffled)
    random.shuffle(others)
    assert place(others, Inventory(tuple(shuffled)), RATES, policy) == place(demands, inventory, RATES, policy)


@FEW
@given(*WORLD)
def test_lower_priorities_take_nothing_from_higher_ones(
    demands: Sequence[Demand], inventory: Inventory, policy: Policy
) -> None:
    """Jobs of the highest priority are placed as if no others were there."""
    most = max((demand.priority for demand in demands), default=0)
    first = [demand for demand in demands if demand.priority == most]
    alone, together = place(first, inventory, RATES, policy), place(demands, inventory, RATES, policy)
    jobs = {demand.job for demand in first}
    places = [(lane.job, lane.device, lane.route, lane.sessions) for lane in together.lanes if lane.job in jobs]
    assert places == [(lane.job, lane.device, lane.route, lane.sessions) for lane in alone.lanes]


def _most_served(usable_by_job: Sequence[frozenset[str]]) -> int:
    """Return how many jobs can have a node of their own among those they may use, by trying every order."""
    best = 0
    for order in permutations(usable_by_job):
        free = {name for usable in usable_by_job for name in usable}
        served = 0
        for usable in order:
            for name in sorted(usable & free)[:1]:
                free.discard(name)
                served += 1
        best = max(best, served)
    return best


def _decoding(node: Node, cases: Sequence[CodecCase]) -> Node:
    """Return a node whose GPU decodes these cases and no others."""
    trials = tuple(
        Trial(case=case, engine=Engine.NVDEC, implementation="nvdec", works=True, how=How.TRIED) for case in cases
    )
    gpu, *others = node.devices
    return replace(node, devices=(replace(gpu, trials=trials), *others))


@FEW
@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=5))
def test_every_job_that_could_be_served_is_served(usable_by_job: list[set[str]]) -> None:
    """With one place on each node, as many jobs get one as any way of giving them out could serve."""
    cases = [
        CodecCase(codec, Direction.DECODE)
        for codec in (MediaCodec.H264, MediaCodec.HEVC, MediaCodec.AV1, MediaCodec.VP9, MediaCodec.VP8)
    ]
    nodes = [
        _decoding(
            worlds.node(name, "L4"),
            [case for case, usable in zip(cases, usable_by_job, strict=False) if name in usable],
        )
        for name in "abcd"
    ]
    demands = [worlds.demand(f"job{job}", decode=cases[job], needs_gpu=True) for job in range(len(usable_by_job))]
    one_each = Policy(sessions_per_device=1)
    placement = place(demands, worlds.inventory(*nodes), RATES, one_each)
    served = {lane.job for lane in placement.lanes}
    assert len(served) == _most_served([frozenset(usable) for usable in usable_by_job])


@FEW
@given(st.integers(1, 5), st.integers(1, 5), st.integers(2, 40))
def test_shares_follow_weights(first: int, second: int, cores: int) -> None:
    """Two jobs that want everything share cores as their weights say, to within one session."""
    demands = [worlds.demand("one", segments=100, weight=first), worlds.demand("two", segments=100, weight=second)]
    placement = place(demands, worlds.inventory(worlds.node("n", cores=cores)), RATES, SOFTWARE)
    sessions = {lane.job: lane.sessions for lane in placement.lanes}
    assert sum(sessions.values()) == cores
    assert abs(sessions["one"] - max(1, cores * first / (first + second))) <= 1


@FEW
@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 20))
def test_what_one_does_not_use_flows_on(small: int, large: int, cores: int) -> None:
    """Cores stay idle only when every segment has a session."""
    demands = [worlds.demand("small", segments=small), worlds.demand("large", segments=large)]
    placement = place(demands, worlds.inventory(worlds.node("n", cores=cores)), RATES, SOFTWARE)
    assert sum(lane.sessions for lane in placement.lanes) == min(cores, small + large)
