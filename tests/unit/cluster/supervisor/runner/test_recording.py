"""A supervisor's recorded events lead to the same effects and the same state when they are decided again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.recording import Decided, Recording, decide
from codecfleet.cluster.supervisor.state.events import Asked, Died, Effect, NodesSeen, Order, SupervisorEvent
from codecfleet.cluster.supervisor.state.messages import Grants
from codecfleet.testing import FakeClock
from codecfleet.testing.fake_clock import all_quiet
from tests.replaying import replayed

from ..core_worlds import SETTINGS, World, node, wants
from .test_runner import MakeRunner, report, settled, two_nodes


class Recorder(Core):
    """A core whose decisions are recorded, as a runner would."""

    def __init__(self, folder: Path, kept: int) -> None:
        super().__init__(SETTINGS, Policy(), 1, 100.0)
        self.recording: Recording | None = Recording(self, folder, kept)

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"recording": None}

    def decide(self, event: SupervisorEvent, now_s: float) -> list[Effect]:
        """Decide an event, and record the decision."""
        effects = super().decide(event, now_s)
        if self.recording is not None:
            self.recording.note(Decided(now_s, event, tuple(effects)))
        return effects

    def packed(self) -> bytes:
        """Return the recorded events."""
        assert self.recording is not None
        return self.recording.packed()


class Answered(World):
    """A world that keeps the answers to clients, since asking its core would change its state."""

    def told(self, client: str) -> Grants:
        """Return the last answer to a client."""
        return self.grants.get(client, Grants({}))


def _world(folder: Path, kept: int = 1000) -> tuple[World, Recorder]:
    world = Answered()
    recorder = Recorder(folder, kept)
    world.core = recorder
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


@settings(max_examples=settings().max_examples // 2, deadline=None)
@given(STORY, st.sampled_from([3, 1000]))
def test_any_history_is_decided_again(story: list[tuple[str, int]], kept: int) -> None:
    """A replay begins at the start or at a later copy of the core, and has at most twice the requested events."""
    with TemporaryDirectory() as folder:
        world, recorder = _world(Path(folder), kept)
        for what, number in story:
            _happen(world, what, number)
        count, differences = replayed(recorder.packed())
        assert len(list(Path(folder).iterdir())) <= 2
    assert differences == []
    assert count <= 2 * kept


def test_a_killed_process_leaves_its_decisions(tmp_path: Path) -> None:
    """The files of a killed process have every decision, except perhaps a partly written last one."""
    world, _ = _world(tmp_path)
    world.say("one", wants("j", 4))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    count, differences = replayed(whole)
    assert (count > 5, differences) == (True, [])
    assert replayed(whole[:-1]) == (count - 1, [])


def test_a_different_decision_is_found(tmp_path: Path) -> None:
    """Both missing effects and a different state are reported."""
    core = Core(SETTINGS, Policy(), 1, 100.0)
    recording = Recording(core, tmp_path)
    joins = NodesSeen((node("a", 4),))
    assert core.decide(joins, 100.0)
    recording.note(Decided(100.0, joins, ()))
    core.state.epoch += 1
    effects, state = replayed(recording.packed())[1]
    assert effects.startswith("event 1:")
    assert state == "the state after event 1 is another"


def test_a_defect_is_recorded_too(tmp_path: Path) -> None:
    """A defect loses only its own decision, and happens again in a replay."""
    core = Core(SETTINGS, Policy(), 1, 100.0)
    recording = Recording(core, tmp_path)
    decided = decide(core, SupervisorEvent(), 100.0)
    recording.note(decided)
    assert (decided.effects, decided.defect.partition(":")[0]) == ((), "KeyError")
    assert replayed(recording.packed()) == (1, [])


async def test_a_runner_records_only_if_a_folder_is_set(
    make_runner: MakeRunner, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner records into the folder in the environment; without a folder, it does not record."""
    for folder in ("", str(tmp_path / "events")):
        monkeypatch.setenv(EVENTS, folder)
        runner = await make_runner(two_nodes())
        await settled(runner, report(1, 50))
        await clock.advance(3)
        await all_quiet()
        assert bool(runner.recorded()) is bool(folder)
        await runner.close("the test is over")
    (left,) = (tmp_path / "events").iterdir()
    count, differences = replayed(left.read_bytes())
    assert (count > 10, differences) == (True, [])
