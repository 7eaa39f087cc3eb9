"""While a full placement has to wait, deaths, drains and lost nodes are followed: no work goes where it cannot be."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.placement.assign.standing import StandingPlacement
from codecfleet.cluster.placement.model.inventory import DeviceState
from codecfleet.cluster.supervisor.core.quarantining import quarantine
from codecfleet.cluster.supervisor.runner.leading import Leading
from codecfleet.cluster.supervisor.runner.renewals import Renewals
from codecfleet.cluster.supervisor.state.events import (
    Asked,
    Died,
    NodesSeen,
    Note,
    Order,
    Probed,
    Renewed,
    SupervisorEvent,
)
from codecfleet.cluster.supervisor.state.messages import ClientReport, Grants
from codecfleet.cluster.supervisor.state.quarantine import Blame, Cause
from codecfleet.testing import FakeClock, FakeClusterBackend
from codecfleet.testing.fake_clock import all_quiet

from ..core_worlds import World, gpu_node, node, nvenc, wants
from ..kept_worlds import COUNT, gpu_world_of, is_from_scratch, see, targets_of, worker_at, world_of


def _unsettled(world: World, *happened: SupervisorEvent) -> None:
    """Have events happen, and their effects be carried out, while no look at everything may be taken."""
    world.may_settle = False
    world.feed(*happened)
    world.may_settle = True


def _used(world: World) -> dict[str, int]:
    """Return how many slots jobs have, by node."""
    used: Counter[str] = Counter()
    for station, slots in targets_of(world).items():
        used[station.partition("/")[0]] += sum(slots.values())
    return dict(used)


def _death(world: World, name: str) -> Died:
    return Died(worker_at(world, name), "it was killed")


def test_lost_work_does_not_go_to_a_node_that_is_drained() -> None:
    """A drain that everything was not placed again for still closes its node."""
    world = world_of(jobs=COUNT, pieces=1)
    *drained, other, killed = world.nodes
    _unsettled(world, *(Asked(Order.DRAIN, name) for name in drained))
    _unsettled(world, _death(world, killed))
    assert {name: slots for name, slots in _used(world).items() if slots > 1} == {other: 2}


def test_lost_work_does_not_go_to_nodes_that_are_gone() -> None:
    """Nodes that went together, too many to be few, get no work, and those that are there do."""
    world = world_of(jobs=COUNT, pieces=1)
    *gone, other, killed = world.nodes
    for name in gone:
        del world.nodes[name]
    _unsettled(world, NodesSeen(tuple(world.nodes.values())))
    _unsettled(world, _death(world, killed))
    assert _used(world) == {other: 2}
    world.core.conclude(world.now_s)
    assert is_from_scratch(world)


def test_a_repartitioned_node_closes_until_everything_is_placed() -> None:
    """Work is on none of its devices that are gone."""
    world = gpu_world_of(jobs=5, pieces=4)
    used = next(name for name in _used(world) if f"{name}/gpu#0" in targets_of(world))
    _, other = gpu_node(used, "GPU-other")
    _unsettled(world, Probed(other))
    assert f"{used}/gpu#0" not in targets_of(world)
    world.core.conclude(world.now_s)
    world.wait(3)
    assert is_from_scratch(world)


def test_a_change_of_many_nodes_says_that_everything_was_looked_at() -> None:
    """So that what takes long rests, and single deaths do not wait for it."""
    world = world_of(jobs=10, pieces=20)
    world.core.take_in(_death(world, "n00"), world.now_s)
    world.core.conclude(world.now_s)
    assert not world.core.state.has_settled
    for name in ("n01", "n02", "n03"):
        world.core.take_in(_death(world, name), world.now_s)
    world.core.conclude(world.now_s)
    assert world.core.state.has_settled


def test_a_defect_costs_a_full_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noted, nothing that was half changed is kept, and the next conclusion places everything."""
    world = world_of(jobs=10, pieces=20)
    with monkeypatch.context() as broken:
        broken.setattr(StandingPlacement, "take_in", lambda _self, _nodes: 1 // 0)
        world.core.take_in(_death(world, "n03"), world.now_s)
        effects = world.core.conclude(world.now_s, may_settle=False)
    assert any(isinstance(effect, Note) and "ZeroDivisionError" in effect.line for effect in effects)
    see(world, *(replace(each, free_cores=0) for each in world.nodes.values()))
    assert is_from_scratch(world)


def test_a_device_s_sessions_stay_together() -> None:
    """Sessions that move to a GPU go to its station, although another was kept for its quarantined neighbour's."""
    made = [gpu_node(f"g{number:02d}", f"GPU-{number:02d}a", f"GPU-{number:02d}b") for number in range(18)]
    world = World()
    core, now_s = world.core, world.now_s
    core.decide(NodesSeen(tuple(ray for ray, _ in made)), now_s)
    for _, probed in made:
        core.decide(Probed(probed), now_s)
    for sequence, pieces in ((1, 400), (2, 36)):
        core.decide(Renewed(ClientReport("one", "driver one", sequence, (nvenc("j", pieces),))), now_s)
    neighbours = {"g00/gpu#0", "g00/gpu#1"}
    assert neighbours <= targets_of(world).keys()
    book = core.state.nodes.get("g00")
    assert book is not None
    quarantine(core.state, book, book.gpus[1], Blame(Cause.POLL, "it is sick", now_s))
    core.conclude(now_s)
    assert len(neighbours & targets_of(world).keys()) == 1


class _Answered:
    """Renewals over a core whose conclusions the test draws."""

    def __init__(self, world: World) -> None:
        self._clock = FakeClock(world.now_s)
        self.world = world
        leading = Leading(FakeClusterBackend(()), 1, 30.0, clock=self._clock, sleep=self._clock.sleep)
        self.renewals = Renewals(world.core.state, leading, feed=self._feed, clock=self._clock)

    def _feed(self, event: SupervisorEvent) -> None:
        self.world.core.take_in(event, self.world.now_s)

    def conclude(self, *, may_settle: bool) -> None:
        state = self.world.core.state
        self.world.core.conclude(self.world.now_s, may_settle=may_settle)
        self.renewals.concluded(is_news=state.has_news, is_settled=may_settle or state.is_settled)


async def test_one_job_keeps_no_other_client_waiting() -> None:
    """While a new job waits for a full placement, another client's call is answered at the next conclusion."""
    world = world_of(jobs=4, pieces=2)
    answered = _Answered(world)
    said = ClientReport(
        "one", "driver one", world.sequence + 1, tuple(wants(f"j{number:02d}", 2) for number in range(4))
    )
    new = asyncio.create_task(
        answered.renewals.renew(ClientReport("two", "driver two", 1, (wants("new", 5),)), wait_s=0)
    )
    old: asyncio.Task[Grants] = asyncio.create_task(answered.renewals.renew(said, wait_s=0))
    await all_quiet()
    answered.conclude(may_settle=False)
    await all_quiet()
    assert (old.done(), new.done()) == (True, False)
    answered.conclude(may_settle=True)
    await all_quiet()
    assert new.result().slots["new"]


HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["deaths", "drain", "uncordon", "gone", "back", "report", "settle"]), st.integers(0, COUNT - 1)
    ),
    max_size=14,
)
"""What happens, and to which node."""


def _happen(world: World, what: str, number: int) -> None:
    name = f"n{number:02d}"
    if what == "settle":
        world.wait(0.25)
    elif what == "deaths":
        names = [each for each in world.nodes if int(each[1:]) <= number // 3 and worker_at(world, each)]
        _unsettled(world, *(_death(world, each) for each in names))
    elif what == "report":
        world.sequence += 1
        said = tuple(wants(f"j{each:02d}", 1 + number // 5) for each in range(COUNT))
        _unsettled(world, Renewed(ClientReport("one", "driver one", world.sequence, said)))
    elif what in ("gone", "back"):
        world.nodes.pop(name, None)
        if what == "back":
            world.nodes[name] = node(name)
        _unsettled(world, NodesSeen(tuple(world.nodes.values())))
    else:
        _unsettled(world, Asked(Order(what), name))


@settings(max_examples=40, deadline=None)
@given(HAPPENINGS, st.integers(1, 4))
def test_no_story_gives_out_what_is_not_there(happenings: list[tuple[str, int]], pieces: int) -> None:
    """Nodes that are gone have no work, drained ones no more than before; in the end all is as from scratch."""
    world = world_of(jobs=COUNT, pieces=pieces)
    for what, number in happenings:
        before = _used(world)
        _happen(world, what, number)
        for name, slots in _used(world).items():
            assert slots <= world.nodes[name].cores
            if world.core.state.nodes.find(name).state is DeviceState.DRAINING:
                assert slots <= before.get(name, 0)
    world.say("one", *(wants(f"j{number:02d}", pieces) for number in range(COUNT)))
    world.wait(3)
    assert is_from_scratch(world)
