"""How many nodes each group should have, which nodes end, and for which reasons."""

from dataclasses import replace
from math import inf

import pytest

from codecfleet.cluster.autoscale.config import Group
from codecfleet.cluster.autoscale.deciding import decide
from codecfleet.cluster.autoscale.values import Decision, JobWork

from .groups import config, group, node, work


def wanted(decision: Decision) -> dict[str, int]:
    """Return the wanted number of nodes of each group."""
    return {size.group: size.wanted for size in decision.sizes}


def test_the_cheapest_group_that_finishes_on_time_is_chosen() -> None:
    """New nodes come from the group with the cheapest frames, and are just enough to finish the work on time."""
    groups = config(group("a", "1.00"), group("b", "3.00"))
    found = decide(groups, [work(a=50.0, b=100.0)], [], None, 0.0)
    # 90,000 frames at 50 a second take 1,800 node-seconds. A node provides 90 % of 1,000 s, less 100 s of start: 800 s.
    assert wanted(found) == {"a": 3, "b": 0}
    assert found.size("a").reason == (
        "3 more for 1 job, to end within 17 min: a million frames cost 5.56 on a; 8.33 on b"
    )


def test_a_short_clip_has_a_plain_reason() -> None:
    """If a node takes longer to start than the work takes, the reason compares start costs."""
    groups = config(group("a", "1.00"), group("b", "3.00"))
    clip = work(a=50.0, b=1000.0, frames=100, at_once=1)
    found = decide(groups, [clip], [], None, 0.0)
    assert found.size("a").reason == (
        "1 more for 1 job of about 2 s of work: starting and releasing a node costs least on a"
    )
    assert decide(groups, [clip], [], found, 1.0).size("a").reason == "1 node pending"
    over = decide(groups, [], [], found, 2.0)
    assert over.size("a").reason == "1 node pending, no longer needed"
    soon = config(group("a", "1.00", start_s=600.0), group("b", "9.00", start_s=60.0))
    urgent = work(a=50.0, b=100.0, frames=100, at_once=1, due_s=90.0, is_promised=True)
    assert decide(soon, [urgent], [], None, 0.0).size("b").reason == "1 more for 1 job of about 1 s of work"


@pytest.mark.parametrize(
    ("groups", "job", "found", "late"),
    [
        (  # the cheap group's nodes cannot start in time
            [group("a", "1.00", start_s=600.0), group("b", "9.00", start_s=60.0)],
            work(a=50.0, b=100.0, due_s=500.0, frames=30_000, is_promised=True),
            {"a": 0, "b": 1},
            "",
        ),
        (  # the cheap group is at its limit
            [group("a", "1.00", nodes_max=2), group("b", "3.00")],
            work(a=50.0, b=100.0, frames=100_000, is_promised=True),
            {"a": 2, "b": 1},
            "",
        ),
        (  # work without a promised time waits rather than costing more than twice the least
            [group("a", "1.00", nodes_max=2), group("b", "9.00")],
            work(a=50.0, b=100.0, frames=900_000),
            {"a": 2, "b": 0},
            "the limits allow no more nodes",
        ),
        (  # late work gets nodes that end it soon after they can start
            [group("a", nodes_max=100)],
            work(a=50.0, due_s=10.0, is_promised=True),
            {"a": 30},
            "later than promised: nodes cannot start sooner",
        ),
        ([group("a", "1.00"), group("own", "0")], work(a=50.0, own=5.0, frames=1000), {"a": 0, "own": 1}, ""),
        ([group("a")], work(b=5.0), {"a": 0}, "no group can run the job now"),
    ],
)
def test_groups_by_price_limit_and_time(groups: list[Group], job: JobWork, found: dict[str, int], late: str) -> None:
    """New nodes are of the cheapest group that can end the work in time; otherwise a forecast says why not."""
    decision = decide(config(*groups), [job], [], None, 0.0)
    (forecast,) = decision.forecasts
    assert wanted(decision) == found
    assert late in forecast.reason
    assert (forecast.late_s > 0) == bool(late)


def test_later_work_is_served_last_and_requested_once() -> None:
    """A late job gets nodes before a batch's waiting jobs; nodes that already start are not requested again."""
    groups = config(group("a", "1.00", nodes_max=3))
    later = replace(work("later", a=50.0, frames=900_000, at_once=20), is_later=True)
    late = work("late", a=50.0, frames=90_000, due_s=2000.0)
    served = {each.job: each.late_s for each in decide(groups, [later, late], [], None, 0.0).forecasts}
    assert served["late"] == 0.0 < served["later"]
    many = config(group("a", "1.00", nodes_max=50))
    last = None
    for now_s in (0.0, 10.0, 20.0, 30.0):
        last = decide(many, [later, work("job", a=50.0, frames=500, at_once=5)], [], last, now_s)
        assert wanted(last) == {"a": 3}


@pytest.mark.parametrize(
    ("fast", "is_promised"),
    [
        (group("fast", "90.00", start_s=20.0), False),  # costs too much for work without a promised time
        (group("fast", "1.00", start_s=20.0, nodes_max=0), True),
        (group("fast", "51.00", start_s=20.0), True),  # above the limit for all groups
    ],
)
def test_a_fast_group_that_cannot_serve_a_job_does_not_hide_a_slow_one(fast: Group, *, is_promised: bool) -> None:
    """A late job gets nodes of a slow group if the limits or the cost exclude a faster group."""
    groups = config(group("slow", "1.00", start_s=400.0), fast, price="50.00")
    late = work(slow=100.0, fast=400.0, segment_frames=1600, at_once=10, due_s=300.0, is_promised=is_promised)
    found = decide(groups, [late], [], None, 0.0)
    assert wanted(found) == {"slow": 1, "fast": 0}
    assert found.forecasts[0].late_s < inf


@pytest.mark.parametrize(("nodes_max", "price"), [(0, None), (10, "9.50"), (10, "10.50")])
def test_a_group_without_nodes_makes_no_other_too_costly(nodes_max: int, price: str | None) -> None:
    """Work without a promised time does not wait for a cheap group that may have no node."""
    groups = config(
        group("cheap", "10.00", nodes_max=nodes_max), group("dear", "1.00"), group("kept", nodes_min=1), price=price
    )
    found = decide(groups, [work(cheap=1000.0, dear=10.0)], [], None, 0.0)
    assert (wanted(found)["cheap"], wanted(found)["dear"] > 0) == (0, True)


def test_starting_nodes_are_kept_for_long_segments() -> None:
    """A late promised job keeps its only possible node while the node starts, however long a segment takes."""
    groups = config(group("a", start_s=120.0, nodes_max=1), turn_s=60.0)
    late = work(a=20.0, segment_frames=1600, frames=4800, at_once=3, due_s=60.0, is_promised=True)
    last = None
    for now_s in range(0, 120, 20):
        last = decide(groups, [late], [], last, float(now_s))
        assert wanted(last) == {"a": 1}


def test_nodes_that_are_there_are_used_first() -> None:
    """Running and requested nodes count, so the same work requests them only once."""
    groups, jobs = config(group("a")), [work(a=50.0)]
    first = decide(groups, jobs, [], None, 0.0)
    again = decide(groups, jobs, [], first, 10.0)
    assert wanted(first) == wanted(again) == {"a": 3}
    there = decide(groups, jobs, [node(f"n{number}") for number in range(3)], again, 100.0)
    assert wanted(there) == {"a": 3}
    assert there.size("a").reason == "all busy"


def test_the_least_number_is_always_wanted() -> None:
    """Even without work, ``nodes_min`` nodes are wanted, and replaced if they are lost."""
    groups = config(group("a", nodes_min=2))
    first = decide(groups, [], [], None, 0.0)
    lost = decide(groups, [], [node("n", idle_since_s=100.0)], first, 1000.0)
    assert wanted(first) == wanted(lost) == {"a": 2}
    assert lost.drain == ()


def test_an_idle_node_ends_after_its_time() -> None:
    """A node ends once it has been idle for ``idle_s``, not earlier."""
    groups = config(group("a"))
    before = decide(groups, [], [node("n", idle_since_s=0.0)], None, 299.0)
    after = decide(groups, [], [node("n", idle_since_s=0.0)], before, 300.0)
    assert (before.drain, wanted(before)) == ((), {"a": 1})
    assert [order.node for order in after.drain] == ["n"]
    assert wanted(after) == {"a": 0}


def test_an_idle_node_stays_while_work_needs_it() -> None:
    """A node stays despite a long idle time if the remaining work needs it."""
    found = decide(config(group("a")), [work(a=50.0, due_s=6000.0)], [node("n", idle_since_s=0.0)], None, 5000.0)
    assert found.drain == ()


def test_a_group_whose_nodes_do_not_arrive_is_closed() -> None:
    """A group whose requested nodes do not arrive is closed for a while; another group takes over."""
    groups, jobs = config(group("a", "1.00"), group("b", "9.00")), [work(a=50.0, b=100.0, due_s=3000.0)]
    last = decide(groups, jobs, [], None, 0.0)
    for now_s in range(10, 371, 10):
        last = decide(groups, jobs, [], last, float(now_s))
        assert wanted(last) == {"a": 1, "b": 0}
    closed = decide(groups, jobs, [], last, 380.0)
    assert wanted(closed) == {"a": 0, "b": 1}
    assert "did not arrive" in closed.size("a").reason


def test_pending_nodes_are_cancelled_when_the_work_is_gone() -> None:
    """Pending nodes are no longer wanted once the work is gone."""
    groups = config(group("a"))
    grown = decide(groups, [work(a=50.0)], [], None, 0.0)
    assert wanted(decide(groups, [], [], grown, 200.0)) == {"a": 0}


def test_a_few_segments_do_not_keep_many_nodes() -> None:
    """If the remaining segments fill fewer nodes for a while, the surplus nodes get no new work and end once idle."""
    groups = config(group("a"))
    nodes = [node(f"n{number}") for number in range(4)]
    small = [work(a=50.0, frames=1000, at_once=10, due_s=9000.0)]
    first = decide(groups, small, nodes, None, 1000.0)
    later = decide(groups, small, nodes, first, 1300.0)
    assert first.surplus == ()
    assert [order.node for order in later.surplus] == ["n0", "n1", "n2"]
    idle = [node("n0", idle_since_s=1305.0), *nodes[1:]]
    ended = decide(groups, small, idle, later, 1310.0)
    assert [order.node for order in ended.drain] == ["n0"]
    busy = decide(groups, [work(a=50.0, due_s=9000.0)], nodes, later, 1310.0)
    assert busy.surplus == ()
