"""Simulated hours of arriving jobs: jobs finish, limits hold, no group flaps, and the cost stays near the least."""

from collections.abc import Sequence
from math import ceil

import pytest
from bench.arrivals import days
from bench.demand_day import Arrival, Cluster, Day, Kind, least_cost
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.autoscale.deciding import decide
from codecfleet.cluster.autoscale.values import JobWork

from .groups import config, group

LOOK_S = 10.0
KINDS = {
    "software": Kind({"cpu": 100.0, "decoder": 40.0}, {"cpu": 16, "decoder": 4}),
    "encoder": Kind({"encoder": 400.0}, {"encoder": 4}),
    "anywhere": Kind({"cpu": 50.0, "decoder": 80.0, "encoder": 80.0}, {"cpu": 8, "decoder": 8, "encoder": 8}),
}
SHARED_MOST = 2.0
"""Limits may send some work to dearer groups; 1.31 was the most in 300 drawn clusters."""
PATIENCE_S = 400_000.0


@st.composite
def clusters(draw: st.DrawFn) -> AutoscaleConfig:
    """Draw three groups, each with its own price, limits and start time."""

    def some_group(name: str) -> Group:
        price = draw(st.sampled_from(["0.25", "1.00", "3.50", "9.00"]))
        limits = {"nodes_max": draw(st.integers(1, 12)), "nodes_min": draw(st.sampled_from([0, 0, 0, 1]))}
        return group(name, price, start_s=draw(st.sampled_from([20.0, 120.0, 400.0])), **limits)

    return config(
        *map(some_group, ("cpu", "decoder", "encoder")),
        finish_within_s=draw(st.sampled_from([600.0, 1800.0])),
        idle_s=draw(st.sampled_from([60.0, 300.0])),
        turn_s=draw(st.sampled_from([60.0, 300.0])),
        nodes_max=draw(st.sampled_from([3, 30])),
        price=draw(st.sampled_from([None, "27.50"])),
    )


def arrivals(most: int, files: Sequence[int] = (1,)) -> st.SearchStrategy[list[Arrival]]:
    """Draw jobs over some hours: single jobs, bursts and batches, small and large, some with a promised time."""
    one = st.builds(
        Arrival,
        at_s=st.integers(0, 12_000).map(float) | st.sampled_from([100.0, 4000.0]),
        kind=st.sampled_from(sorted(KINDS)),
        segments=st.integers(1, 60),
        segment_frames=st.sampled_from([250, 1000]),
        within_s=st.sampled_from([None, None, 60.0, 900.0]),
        files=st.sampled_from(files),
    )
    return st.lists(one, min_size=1, max_size=most)


def _stays(groups: AutoscaleConfig, day: Day) -> float:
    """Return the cost of ``nodes_min`` nodes over a day."""
    return sum(each.nodes_min * each.price_per_s for each in groups.groups) * day.ended_s


def _cost_alone(groups: AutoscaleConfig, arrival: Arrival) -> float:
    """Return what a job costs alone: by its first plan with all waits, or more if later looks add nodes."""
    day = Cluster(groups, KINDS, LOOK_S).run([arrival], PATIENCE_S)
    return max(_planned_cost(groups, arrival), day.cost - _stays(groups, day))


def _planned_cost(groups: AutoscaleConfig, arrival: Arrival) -> float:
    kind = KINDS[arrival.kind]
    work = JobWork(
        job="job",
        frames=arrival.segments * arrival.segment_frames,
        at_once=arrival.segments,
        waiting=arrival.segments,
        longest_frames=arrival.segment_frames,
        due_s=groups.finish_within_s if arrival.within_s is None else arrival.within_s,
        is_promised=arrival.within_s is not None,
        fps=kind.fps,
        sessions=kind.sessions,
    )
    found = decide(groups, [work], [], None, 0.0)
    waits = 0.0
    for size in found.sizes:
        of = next(each for each in groups.groups if each.name == size.group)
        longest_s = work.longest_s(of.name) if of.name in kind.fps else 0.0
        waits += (size.wanted - of.nodes_min) * of.price_per_s * (groups.turn_s + 2 * longest_s + 4 * LOOK_S)
    return found.forecasts[0].cost + waits


def check_rules(day: Day, groups: AutoscaleConfig, jobs: Sequence[Arrival]) -> None:
    """Check the rules of every day: all jobs end, limits hold, no group flaps, only ``nodes_min`` nodes are left."""
    assert day.broken == []
    assert len(day.finished) == sum(job.files for job in jobs)
    for each in groups.groups:
        assert day.changes_of_direction(each.name) <= ceil(3600 / groups.turn_s) + 1
    last = day.counts[-1][1]
    assert last == {each.name: each.nodes_min for each in groups.groups}


@settings(deadline=None, max_examples=settings().max_examples // 5)
@given(groups=clusters(), jobs=arrivals(8, files=(1, 1, 1, 30)))
@example(
    groups=config(
        group("cpu", start_s=400.0),
        group("decoder", "9.00", start_s=120.0),
        group("encoder", "0.25"),
        finish_within_s=600.0,
        idle_s=60.0,
        turn_s=60.0,
        nodes_max=3,
        price="27.50",
    ),
    jobs=[Arrival(100.0, "software", segments=27, segment_frames=1000)],
)
def test_any_arrivals_keep_the_rules(groups: AutoscaleConfig, jobs: list[Arrival]) -> None:
    """Whatever jobs arrive, every job ends, no limit is exceeded, no busy node ends, and no group flaps."""
    day = Cluster(groups, KINDS, LOOK_S).run(jobs, PATIENCE_S)
    check_rules(day, groups, jobs)


@settings(deadline=None, max_examples=settings().max_examples // 5)
@given(groups=clusters(), jobs=arrivals(8))
@example(  # with the requested cpu node, the job can be on time, so the second look adds a decoder node
    groups=config(
        group("cpu", "0.25", start_s=20.0, nodes_max=1),
        group("decoder", "9.00", start_s=20.0, nodes_max=1),
        group("encoder", "9.00", start_s=20.0, nodes_max=1, nodes_min=1),
        finish_within_s=600.0,
        idle_s=60.0,
        turn_s=300.0,
        nodes_max=3,
    ),
    jobs=[Arrival(100.0, "anywhere", segments=21, segment_frames=250, within_s=60.0)],
)
def test_shared_cluster_costs_no_more_than_one_for_each_job(groups: AutoscaleConfig, jobs: list[Arrival]) -> None:
    """Jobs cost at least their frames on full nodes, and at most twice as much as on separate nodes."""
    day = Cluster(groups, KINDS, LOOK_S).run(jobs, PATIENCE_S)
    assert day.cost >= least_cost(groups, KINDS, jobs) * (1 - 1e-9)
    assert day.cost <= _stays(groups, day) + SHARED_MOST * sum(_cost_alone(groups, job) for job in jobs)


def test_a_batch_gets_nodes_for_its_waiting_files() -> None:
    """A batch that reports waiting files gets as many nodes as its files can fill; any other batch gets one node."""
    groups = config(group("cpu", nodes_max=100), finish_within_s=3600.0)
    kinds = {"software": Kind({"cpu": 100.0}, {"cpu": 16})}
    batch = [Arrival(0.0, "software", segments=12, segment_frames=1000, files=400)]
    told, untold = (
        Cluster(groups, kinds, LOOK_S, tells_later=tells_later).run(batch, PATIENCE_S) for tells_later in (True, False)
    )
    for day in (told, untold):
        check_rules(day, groups, batch)
    assert (told.most, untold.most) == (16, 1)
    assert told.ended_s < untold.ended_s / 10
    assert told.cost < 1.25 * least_cost(groups, kinds, batch)
    assert told.changes_of_direction("cpu") == 1


def _day(name: str, groups: AutoscaleConfig, jobs: int, segments: int) -> tuple[Day, list[Arrival]]:
    arrivals_of_day = days(sorted(KINDS), jobs, segments)[name]()
    return Cluster(groups, KINDS, 30.0).run(arrivals_of_day, PATIENCE_S), arrivals_of_day


NAMES = ("even", "daily wave", "bursts", "one batch", "files of a batch", "trickle")


@pytest.mark.parametrize("name", NAMES)
def test_day_ends_within_the_rules(name: str) -> None:
    """Jobs that arrive evenly, in waves, in bursts, all at once or slowly all finish, and no group flaps."""
    groups = config(group("cpu", "1.00"), group("decoder", "1.50"), group("encoder", "2.00"), finish_within_s=3600.0)
    day, jobs = _day(name, groups, 48, 6)
    check_rules(day, groups, jobs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_day_on_a_thousand_nodes_costs_little_more_than_the_least(name: str) -> None:
    """A day on up to 1,000 nodes costs at most 1.6 times the least, unless only a few jobs arrive."""
    groups = config(
        group("cpu", "1.00", nodes_max=500),
        group("decoder", "1.50", nodes_max=200),
        group("encoder", "2.00", nodes_max=300),
        finish_within_s=3600.0,
        nodes_max=1000,
    )
    day, jobs = _day(name, groups, 1000, 100)
    check_rules(day, groups, jobs)
    least = least_cost(groups, KINDS, jobs)
    assert least <= day.cost <= 1.6 * least or name == "trickle"
