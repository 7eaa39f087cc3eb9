"""The life of a host: the effect of each event, and the end of restarts."""

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.fleet.life import (
    EDGES,
    LOSSES_MAX,
    REACH_S,
    STEADY_S,
    Closed,
    Event,
    HostEnded,
    HostPhase,
    HostStarted,
    Life,
    Refused,
    Spawn,
    Wanted,
    decide,
)
from codecfleet.errors import FleetUnavailable, UsageError

EVENTS: tuple[Event, ...] = (
    Wanted(),
    HostStarted(),
    Refused(FleetUnavailable("no Ray answers")),
    Refused(UsageError("no such address")),
    HostEnded("it was killed by SIGKILL"),
    Closed(),
)


def after(*events: Event, at_s: float = 0.0) -> Life:
    """Return the life after these events, which all happen at one time."""
    life = Life()
    for event in events:
        life, _ = decide(life, event, at_s)
    return life


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 1000)), max_size=60))
def test_any_events_in_any_order(steps: list[tuple[Event, float]]) -> None:
    """Only edges of the table are taken, each start spawns a host, and FAILED has an error."""
    life, now_s = Life(), 0.0
    for event, elapsed_s in steps:
        now_s += elapsed_s
        before, (life, effect) = life, decide(life, event, now_s)
        assert life.phase is before.phase or life.phase in EDGES[before.phase]
        assert (effect is not None) == (life.phase is HostPhase.STARTING and life is not before)
        assert (life.phase is not HostPhase.FAILED) or life.error is not None
        assert life.losses <= LOSSES_MAX + 1


def test_a_first_start_is_tried_once() -> None:
    """The caller must fix the cause of a refused first start; a later job may try again."""
    refused = Refused(FleetUnavailable("no Ray answers"))
    life = after(Wanted(), refused)
    assert (life.phase, life.error) == (HostPhase.FAILED, refused.error)
    assert decide(life, Wanted(), 0.0)[1] == Spawn()


def test_lost_hosts_are_replaced_a_few_times() -> None:
    """Each lost host is replaced at once; after too many losses, the fleet ends with the reason in one line."""
    life = after(Wanted(), HostStarted())
    for _ in range(LOSSES_MAX):
        life, effect = decide(life, HostEnded("it was killed by SIGKILL"), 0.0)
        assert effect == Spawn(0.0)
        life, _ = decide(life, HostStarted(), 0.0)
    life, effect = decide(life, HostEnded("it was killed by SIGKILL"), 0.0)
    assert (life.phase, effect) == (HostPhase.FAILED, None)
    assert isinstance(life.error, FleetUnavailable)
    assert life.error.message.endswith("4 times in a row, last: it was killed by SIGKILL")


def test_a_steady_host_begins_a_new_count() -> None:
    """A fleet that lives for months may lose a host now and then."""
    life, now_s = after(Wanted(), HostStarted()), 0.0
    for _ in range(3 * LOSSES_MAX):
        now_s += STEADY_S
        for event in (HostEnded("its Ray ended"), HostStarted()):
            life, _ = decide(life, event, now_s)
    assert (life.phase, life.losses) == (HostPhase.READY, 1)


def test_a_lost_cluster_is_reached_again_until_a_deadline() -> None:
    """After a loss, refused starts are tried again with growing pauses; the last refusal becomes the error."""
    refused = Refused(FleetUnavailable("no Ray answers at head:6379"))
    life, effect = decide(after(Wanted(), HostStarted()), HostEnded("its Ray ended"), 0.0)
    now_s, rests = 0.0, []
    while effect is not None:
        assert effect.wait_s is not None
        rests.append(effect.wait_s)
        now_s += effect.wait_s
        life, effect = decide(life, refused, now_s)
    assert rests[:6] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert rests == sorted(rests)
    assert REACH_S <= now_s <= REACH_S + max(rests)
    assert life.error is refused.error
