"""A node that is about to end: its clients know when, and its workers end before the node."""

from dataclasses import replace
from typing import Any

import pytest

from codecfleet.cluster.logs.actions import LogAction
from codecfleet.cluster.ray.keeper import Driving
from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.node_events import HAND_BACK_S
from codecfleet.cluster.supervisor.state.events import Asked, NodesSeen, Note, Order, Probed, Renewed
from codecfleet.cluster.supervisor.state.messages import ClientReport
from codecfleet.cluster.supervisor.state.terms import term_of
from codecfleet.cluster.supervisor.status.lines import status_lines
from codecfleet.cluster.supervisor.status.status import status_of

from ..core_worlds import World, node, total, wants

UTC_S = 1_000_000.0
NOTICE_S = 30.0


def _noticed(skew_s: float = 0.0) -> tuple[World, str]:
    """Return a world whose node "a" ends in 30 s, with its busy worker; the node's clock is ``skew_s`` behind."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, dict(held)))
    leaving = replace(node("a"), draining=True, leaves_utc_s=UTC_S - skew_s + NOTICE_S)
    world.feed(NodesSeen((leaving, node("b")), UTC_S, {"a": skew_s}))
    return world, next(worker for worker in held if worker.startswith("a/"))


@pytest.mark.parametrize(
    ("found", "orders", "driving"),
    [
        ({}, [], Driving.CLAIMS),
        ({}, [Order.CORDON], Driving.HOLDS),
        ({}, [Order.DRAIN], Driving.RESTS),
        ({}, [Order.DRAIN, Order.CORDON], Driving.HOLDS),
        ({}, [Order.DRAIN, Order.UNCORDON], Driving.CLAIMS),
        ({"surplus": "no work"}, [], Driving.CLAIMS),
        ({"surplus": "no work"}, [Order.CORDON], Driving.HOLDS),
        ({"ending": "no work"}, [Order.UNCORDON], Driving.RESTS),
        ({"lost": "Xid 79"}, [Order.CORDON], Driving.RESTS),
        ({"lost": "Xid 79"}, [Order.UNCORDON], Driving.CLAIMS),
        ({"ray": replace(node("a"), draining=True)}, [Order.UNCORDON], Driving.RESTS),
    ],
)
def test_what_keeps_work_off_a_node_holds_for_its_driver(
    found: dict[str, Any], orders: list[Order], driving: Driving
) -> None:
    """A driver rests while its node drains for any cause, and claims no job while its node is cordoned by a user."""
    world = World(node("a"), node("b"))
    book = world.core.state.nodes[node("a").node]
    for name, value in found.items():
        setattr(book, name, value)
    for order in orders:
        world.feed(Asked(order, book.ray.node))
    assert book.driving is driving


def test_jobs_tell_the_driver_of_a_node_that_ray_drains() -> None:
    """Ray starts no task there that could tell it. Ray may take another node of the same machine for the client's."""
    world = World(node("a"), node("b"))
    for name in "ab":
        world.feed(Probed(replace(node(name).unprobed(), keeper=f"keeper of {name}")))
    report = ClientReport("one", "driver one", 1, (), node=node("b").node, keeper="keeper of a")
    world.feed(Renewed(report))
    before, word = world.core.state.event, world.grants["one"].word
    assert word is None
    world.feed(NodesSeen((replace(node("a"), draining=True), node("b"))))
    world.feed(Renewed(replace(report, sequence=2)))
    world.feed(Renewed(replace(report, client="two", keeper="keeper of b")))
    world.feed(Renewed(replace(report, client="three", keeper="")))
    world.wait(1)
    word = world.grants["one"].word
    assert word is not None
    assert before < word.event <= world.core.state.event
    assert (word.term, word.driving) == (term_of(world.core.state.epoch), Driving.RESTS)
    assert (world.grants["two"].word, world.grants["three"].word) == (None, None)
    assert not world.core.state.nodes[node("a").node].is_untold(world.now_s)


@pytest.mark.parametrize("skew_s", [0, 3600, -3600])
def test_clients_learn_when_their_workers_end(skew_s: float) -> None:
    """After the notice, nothing new goes to the node, and running work continues, whatever the node's clock shows."""
    world, worker = _noticed(skew_s)
    grants = world.say("one", wants("j", 100, {worker: 2}))
    assert grants.leaving == {worker: pytest.approx(NOTICE_S)}
    assert worker not in grants.slots["j"]
    assert total(grants, "j") == 2
    for _ in range(int(NOTICE_S - HAND_BACK_S) - 1):
        world.wait(1)
        world.report("one", wants("j", 100, {worker: 2}))
    assert worker not in world.stopped
    grants = world.say("one", wants("j", 100, {worker: 2}))
    assert grants.leaving == {worker: pytest.approx(HAND_BACK_S + 1)}


def test_a_notice_is_news_once() -> None:
    """A client that waits for news learns of a notice at once, and not of each second that passes."""
    world, worker = _noticed()
    jobs = (wants("j", 100, {worker: 2}),)
    world.say("one", *jobs)
    heard = world.grants["one"].number
    world.feed(Renewed(ClientReport("one", "driver one", world.sequence + 1, jobs, acknowledged=heard), 60))
    world.wait(5)
    assert world.grants["one"].number == heard
    world.feed(NodesSeen((node("a"), node("b")), UTC_S + 5))
    assert world.grants["one"].number > heard
    assert world.grants["one"].leaving == {}


def test_an_unknown_clock_ends_no_worker() -> None:
    """A new supervisor waits for the first heartbeat before it counts the time that a node has left."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    worker = next(worker for worker in held if worker.startswith("a/"))
    ray = (replace(node("a"), draining=True, leaves_utc_s=UTC_S - 3600 + NOTICE_S), node("b"))
    world.feed(NodesSeen(ray, UTC_S))
    world.wait(1)
    assert world.say("one", wants("j", 100, {worker: 2})).leaving == {}
    world.feed(NodesSeen(ray, UTC_S + 1, {"a": 3600.0}))
    assert world.say("one", wants("j", 100, {worker: 2})).leaving == {worker: pytest.approx(NOTICE_S - 1)}
    assert worker not in world.stopped


def test_the_supervisor_s_own_node_is_left_on_notice() -> None:
    """A supervisor leaves its own node only if Ray drains it and another node stays; a user's order does not count."""
    world, _ = _noticed()
    nodes = world.core.state.nodes
    assert [nodes.is_left(each) for each in ("a", "b", "gone")] == [True, False, False]
    world.feed(Asked(Order.DRAIN, "b"))
    assert not nodes.is_left("b")
    world.feed(NodesSeen(tuple(replace(node(each), draining=True) for each in "ab"), UTC_S))
    assert not nodes.is_left("a")


@pytest.mark.parametrize("skew_s", [0, 3600, -3600])
def test_workers_are_ended_before_their_node(skew_s: float) -> None:
    """Unfinished work is lost early enough to run elsewhere."""
    world, worker = _noticed(skew_s)
    for _ in range(int(NOTICE_S - HAND_BACK_S) + 1):
        world.wait(1)
        world.report("one", wants("j", 100, {worker: 2}))
    assert worker in world.stopped
    assert grants_for(world.core.state, "one", world.now_s).dead == {worker}


def test_a_withdrawn_notice_ends_nothing() -> None:
    """A node whose notice was withdrawn gets work again."""
    world, worker = _noticed()
    world.feed(NodesSeen((node("a"), node("b")), UTC_S + 1))
    for _ in range(40):
        world.wait(1)
        grants = world.say("one", wants("j", 100, {worker: 2}))
    assert worker not in world.stopped
    assert (total(grants, "j"), grants.leaving) == (4, {})


def test_a_clock_that_is_off_is_reported_once() -> None:
    """Status and log name the difference; a node without workers keeps its last known one."""
    world = World(node("a"), node("b"), node("c"))
    effects = [
        effect
        for skews in ({"a": 12.3, "b": -4.0, "c": 1.9}, {"a": 12.4, "b": -4.1})
        for effect in world.core.decide(NodesSeen(tuple(world.nodes.values()), UTC_S, skews), world.now_s)
    ]
    status = status_of(world.core.state, {}, (), world.now_s)
    assert [(each.skew_s, each.clock) for each in status.nodes] == [
        (12.4, "its clock is 12 s behind"),
        (-4.1, "its clock is 4 s ahead"),
        (1.9, ""),
    ]
    lines = [each.line for each in effects if isinstance(each, Note) and each.action is LogAction.NODE_SKEWED]
    assert lines == ["node host-a: its clock is 12 s behind", "node host-b: its clock is 4 s ahead"]
    assert sum("its clock is" in line for line in status_lines(status)) == 2
