"""What a supervisor decided is decided again from its events: the same effects, and the same state."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.recording import Decided, Recorded, Recording, decide
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.events import Asked, Died, Effect, NodesSeen, Order, SupervisorEvent, Ticked
from codecfleet.testing import FakeClock
from codecfleet.testing.fake_clock import all_quiet
from tests.replaying import replayed

from ..core_worlds import SETTINGS, World, node, wants
from .test_runner import report, settled, two_nodes


class Recorder(Core):
    """A core whose decisions are recorded, as its runner does."""

    def __init__(self, kept: int) -> None:
        super().__init__(SETTINGS, Policy(), 1, 100.0)
        self.recording: Recording | None = Recording(self, kept)

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"recording": None}

    def decide(self, event: SupervisorEvent, now_s: float) -> list[Effect]:
        """Decide, and record it."""
        effects = super().decide(event, now_s)
        if self.recording is not None:
            self.recording.note(Decided(now_s, event, tuple(effects)))
        return effects

    def packed(self) -> bytes:
        """Return what was recorded."""
        assert self.recording is not None
        return self.recording.packed()


def _world(kept: int = 1000) -> tuple[World, Recorder]:
    world = World()
    world.core = recorder = Recorder(kept)
    world.nodes = {name: node(name, 4) for name in "abc"}
    world.feed(NodesSeen(tuple(world.nodes.values())))
    return world, recorder


STORY = st.lists(
    st.tuples(st.sampled_from(["say", "hold", "die", "drain", "open", "wait"]), st.integers(0, 5)), max_size=15
)


def _happen(world: World, what: str, number: int) -> None:
    match what:
        case "say":
            world.say(f"c{number % 3}", *(wants(f"j{each}", 1 + number) for each in range(number)))
        case "hold":
            held = world.told("c1").slots.get("j0", {})
            world.say("c1", wants("j0", 5, dict(held)))
        case "die" if ready := [book for book in world.core.state.stations.values() if book.facts is not None]:
            world.feed(Died(ready[number % len(ready)].worker, "it was killed"))
        case "drain" | "open":
            world.feed(Asked(Order.DRAIN if what == "drain" else Order.UNCORDON, "abc"[number % 3]))
        case "wait":
            world.wait(number)


@settings(max_examples=30, deadline=None)
@given(STORY, st.sampled_from([3, 1000]))
def test_any_story_is_decided_again(story: list[tuple[str, int]], kept: int) -> None:
    """From its beginning, or from a copy on the way."""
    world, recorder = _world(kept)
    for what, number in story:
        _happen(world, what, number)
    count, differences = replayed(recorder.packed())
    assert differences == []
    assert count <= 2 * kept


def test_only_the_newest_are_kept() -> None:
    """However long a supervisor lives, no more than twice as many as asked for."""
    world, recorder = _world(kept=10)
    world.wait(60)
    recorded = pickle.loads(recorder.packed())
    assert isinstance(recorded, Recorded)
    assert 10 <= len(recorded.decided) < 20
    assert recorded.decided[-1].event == Ticked()


def test_another_decision_is_found() -> None:
    """An effect that is missing, and a state that is another."""
    world, recorder = _world()
    world.say("one", wants("j", 4))
    recorded = pickle.loads(recorder.packed())
    number = next(number for number, each in enumerate(recorded.decided) if each.effects)
    then = recorded.decided[number]
    recorded.decided[number] = Decided(then.now_s, then.event, then.effects[1:])
    (difference,) = replayed(pickle.dumps(recorded))[1]
    assert difference.startswith("event ")
    shorter = Recorded(recorded.before, recorded.decided[:number], recorded.after)
    assert replayed(pickle.dumps(shorter))[1] == ["the state is another"]


def test_a_defect_is_an_answer_too() -> None:
    """It costs its decision alone, and comes again."""
    core = Core(SETTINGS, Policy(), 1, 100.0)
    recording = Recording(core)
    decided = decide(core, SupervisorEvent(), 100.0)
    recording.note(decided)
    assert (decided.effects, decided.defect.partition(":")[0]) == ((), "KeyError")
    assert replayed(recording.packed()) == (1, [])


async def test_a_runner_keeps_what_it_decides_where_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves a file as it ends; else it keeps nothing."""
    clock = FakeClock()
    for folder in ("", str(tmp_path / "events")):
        monkeypatch.setenv(EVENTS, folder)
        runner = SupervisorRunner(
            two_nodes(), Core(SETTINGS, Policy(), 1, clock()), SETTINGS, clock=clock, sleep=clock.sleep
        )
        await runner.open()
        await settled(runner, report(1, 50))
        await clock.advance(3)
        await all_quiet()
        assert bool(runner.recorded()) is bool(folder)
        await runner.close("the test is over")
    (left,) = (tmp_path / "events").iterdir()
    count, differences = replayed(left.read_bytes())
    assert differences == []
    assert count > 10
