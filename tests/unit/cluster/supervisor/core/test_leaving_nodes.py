"""A node that is about to end: its clients know when, and its workers end before the node."""

from dataclasses import replace

from codecfleet.cluster.supervisor.core.granting import grants_for
from codecfleet.cluster.supervisor.core.node_events import HAND_BACK_S
from codecfleet.cluster.supervisor.state.events import Asked, NodesSeen, Order

from ..core_worlds import World, node, total, wants

UTC_S = 1_000_000.0
NOTICE_S = 30.0


def _noticed() -> tuple[World, str]:
    """Return a world whose node "a" ends in 30 s, with its busy worker."""
    world = World(node("a"), node("b"))
    held = world.say("one", wants("j", 100)).slots["j"]
    world.say("one", wants("j", 100, dict(held)))
    leaving = replace(node("a"), draining=True, leaves_utc_s=UTC_S + NOTICE_S)
    world.feed(NodesSeen((leaving, node("b")), UTC_S))
    return world, next(worker for worker in held if worker.startswith("a/"))


def test_clients_learn_when_their_workers_end() -> None:
    """After the notice, nothing new goes to the node, and running work continues."""
    world, worker = _noticed()
    grants = world.say("one", wants("j", 100, {worker: 2}))
    assert grants.leaving == {worker: UTC_S + NOTICE_S}
    assert worker not in grants.slots["j"]
    assert total(grants, "j") == 2
    for _ in range(int(NOTICE_S - HAND_BACK_S) - 1):
        world.wait(1)
        world.report("one", wants("j", 100, {worker: 2}))
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


def test_workers_are_ended_before_their_node() -> None:
    """Unfinished work is lost early enough to run elsewhere."""
    world, worker = _noticed()
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
