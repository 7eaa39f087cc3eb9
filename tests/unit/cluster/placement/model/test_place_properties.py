"""Properties of every placement, whatever the machines, jobs and policy."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Inventory, Node
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, How, MediaCodec, Trial

from .. import limits, worlds

SOFTWARE = Policy(engines=frozenset({Engine.CPU}))
RATES = limits.RATES
WORLD = (worlds.demand_lists(), worlds.inventories(), worlds.policies())
ANY = st.one_of(st.tuples(*WORLD), worlds.tight_worlds(), worlds.tight_worlds())
World = tuple[Sequence[Demand], Inventory, Policy]


@settings(max_examples=3 * settings().max_examples)
@given(ANY)
def test_no_limit_is_exceeded(world: World) -> None:
    """Engines, caps, memory, policy, states, encoder kinds and sessions keep their limits (``limits.py``)."""
    demands, inventory, policy = world
    limits.check(place(demands, inventory, RATES, policy), demands, inventory, policy)


@given(*WORLD)
def test_every_answer_has_a_reason(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> None:
    """For each job, each device is either used or refused once, in one sentence."""
    placement = place(demands, inventory, RATES, policy)
    reasons = [lane.reason for lane in placement.lanes] + [refusal.reason for refusal in placement.refusals]
    for reason in reasons:
        assert reason
        assert reason == reason.strip()
        assert "\n" not in reason
        assert not reason.endswith(".")
    everything = set(limits.homes(inventory))
    for demand in demands:
        used = {lane.device for lane in placement.lanes if lane.job == demand.job}
        refused = [name for refusal in placement.refusals if refusal.job == demand.job for name in refusal.devices]
        nowhere = [r for r in placement.refusals if r.job == demand.job and not r.devices]
        assert bool(nowhere) == (not used)
        if demand.segments:
            assert sorted(refused) == sorted(everything - used)


@given(*WORLD, st.randoms(use_true_random=False))
def test_the_order_of_jobs_and_nodes_makes_no_difference(
    demands: Sequence[Demand], inventory: Inventory, policy: Policy, random: Random
) -> None:
    """The order of machines and jobs makes no difference to the placement."""
    shuffled, others = list(inventory.nodes), list(demands)
    random.shuffle(shuffled)
    random.shuffle(others)
    assert place(others, Inventory(tuple(shuffled)), RATES, policy) == place(demands, inventory, RATES, policy)


@given(*WORLD)
def test_lower_priorities_take_nothing_from_higher_ones(
    demands: Sequence[Demand], inventory: Inventory, policy: Policy
) -> None:
    """Jobs of the highest priority are placed as if there were no others."""
    most = max((demand.priority for demand in demands), default=0)
    first = [demand for demand in demands if demand.priority == most]
    alone, together = place(first, inventory, RATES, policy), place(demands, inventory, RATES, policy)
    jobs = {demand.job for demand in first}
    places = [(lane.job, lane.device, lane.route, lane.sessions) for lane in together.lanes if lane.job in jobs]
    assert places == [(lane.job, lane.device, lane.route, lane.sessions) for lane in alone.lanes]


def _most_served(usable_by_job: Sequence[frozenset[str]]) -> int:
    """Return how many jobs can each have a usable node of their own, by trying every order."""
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
    """Return a node whose GPU decodes only these cases."""
    trials = tuple(
        Trial(case=case, engine=Engine.NVDEC, implementation="nvdec", works=True, how=How.TRIED) for case in cases
    )
    gpu, *others = node.devices
    return replace(node, devices=(replace(gpu, trials=trials), *others))


@given(st.lists(st.sets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=5))
def test_every_job_that_could_be_served_is_served(usable_by_job: list[set[str]]) -> None:
    """If each node has one place, as many jobs get a place as with the best assignment."""
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


@given(st.integers(1, 5), st.integers(1, 5), st.integers(2, 40))
def test_shares_follow_weights(first: int, second: int, cores: int) -> None:
    """Two jobs that can use all cores share them by weight, to within one session."""
    demands = [worlds.demand("one", segments=100, weight=first), worlds.demand("two", segments=100, weight=second)]
    placement = place(demands, worlds.inventory(worlds.node("n", cores=cores)), RATES, SOFTWARE)
    sessions = {lane.job: lane.sessions for lane in placement.lanes}
    assert sum(sessions.values()) == cores
    assert abs(sessions["one"] - max(1, cores * first / (first + second))) <= 1


@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 20))
def test_unused_shares_go_to_others(small: int, large: int, cores: int) -> None:
    """Cores stay idle only if every segment has a session."""
    demands = [worlds.demand("small", segments=small), worlds.demand("large", segments=large)]
    placement = place(demands, worlds.inventory(worlds.node("n", cores=cores)), RATES, SOFTWARE)
    assert sum(lane.sessions for lane in placement.lanes) == min(cores, small + large)
