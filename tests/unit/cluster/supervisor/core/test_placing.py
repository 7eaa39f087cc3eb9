"""Everything is placed from scratch when something has changed, at a limited rate."""

import pytest

from codecfleet.cluster.supervisor.state.events import Asked, Died, NodesSeen, Order, Renewed, Reserve, Ticked
from codecfleet.cluster.supervisor.state.messages import ClientReport
from codecfleet.cluster.supervisor.state.state import Planner

from ..core_worlds import World, node, total, wants

COUNT = 8


def _world_of(jobs: int, pieces: int) -> World:
    world = World(*(node(f"n{number}") for number in range(COUNT)))
    world.say("one", *(wants(f"j{number}", pieces) for number in range(jobs)))
    return world


def test_a_dead_worker_s_station_is_reserved_at_once() -> None:
    """A dead worker's station is reserved at once, however far off the next placement is; jobs keep their slots."""
    world = _world_of(jobs=2, pieces=2)
    dead = next(iter(world.core.state.plans.targets))
    effects = world.core.decide(Died(world.core.state.stations[dead].worker, "it was killed"), world.now_s)
    assert [effect.station.station for effect in effects if isinstance(effect, Reserve)] == [dead]
    world.pending += effects
    world.feed(Ticked())
    assert {job: total(world.told("one"), job) for job in ("j0", "j1")} == {"j0": 2, "j1": 2}


def test_the_next_pass_comes_after_five_times_the_last_one_s_duration() -> None:
    """Placing takes at most a fifth of a core; changes meanwhile wait for the next pass."""
    world = _world_of(jobs=1, pieces=20)
    core, now_s = world.core, world.now_s
    placed_s = core.state.placed_s
    core.decide(Asked(Order.DRAIN, "n0"), now_s)
    core.decide(Ticked(pass_s=0.1), now_s + 0.4)
    assert (core.state.placed_s, core.state.is_dirty) == (placed_s, True)
    core.decide(Ticked(pass_s=0.1), now_s + 0.5)
    assert (core.state.placed_s, core.state.is_dirty) == (now_s + 0.5, False)


def test_a_tick_without_a_change_places_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick without a change places nothing, and neither does a report without a changed demand."""
    world = _world_of(jobs=2, pieces=4)
    monkeypatch.setattr(Planner, "place", lambda *_, **__: pytest.fail("it placed"))
    world.wait(2)
    world.say("one", *(wants(f"j{number}", 4) for number in range(2)))
    worker = next(iter(world.told("one").slots["j0"]))
    world.say("one", wants("j0", 4, {worker: 1}), wants("j1", 4))


def test_effects_have_the_number_of_the_event_that_caused_them() -> None:
    """Events are counted from 1; the orders of a tick have the number of the tick."""
    world = World()
    joined = world.core.decide(NodesSeen((node("a"),)), world.now_s)
    number = world.core.state.event
    assert {effect.event for effect in joined} == {number}
    world.core.decide(Renewed(ClientReport("one", "driver one", 1, (wants("j", 4),))), world.now_s)
    placed = world.core.decide(Ticked(), world.now_s)
    assert [effect.event for effect in placed if isinstance(effect, Reserve)] == [number + 2]
