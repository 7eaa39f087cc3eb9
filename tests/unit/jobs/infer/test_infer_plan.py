"""The segments of an inference job, and what each of them decodes."""

from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet.actors.device.work import Blob
from codecfleet.actors.dla.inference.network import warm_networks
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.infer.plan import InferPlan, plan_inference
from codecfleet.jobs.infer.spec import InferSpec
from codecfleet.testing.clips import Clip, make_clip

TIMES = tuple(range(0, 80 * 40, 40))
KEYFRAMES = frozenset(range(0, 80, 8))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty pictures of 40 ms, with a keyframe every eight pictures."""
    return make_clip(tmp_path_factory.mktemp("clip") / "clip.mkv", Clip(times=TIMES, keyframes=KEYFRAMES))


def plan_of(clip: Path, **changes: object) -> InferPlan:
    """Return a plan with a segment for each keyframe."""
    names = {"source": str(clip), "loadable": "net.dla", "output": "out.npz", "segment_s": Fraction(8, 25)}
    return plan_inference(InferSpec(**{**names, **changes}), Blob.of(b"net"))  # type: ignore[arg-type]


def run_of(segment: int, *, until: int | None = None, entry_moves: int = 0) -> Run:
    """Return a first run of a segment."""
    return Run(segment, segment if until is None else until, entry_moves, 1)


def entry_of(plan: InferPlan, run: Run) -> int:
    """Return the packet at which a run begins to decode."""
    entry = plan.decode(run).entry
    return 0 if entry is None else entry.packet


def test_an_entry_moves_back_twice_as_far_each_time(clip: Path) -> None:
    """A segment starts at its own keyframe; each move goes back twice as far, in the end to the track's start."""
    plan = plan_of(clip)
    assert [entry_of(plan, run_of(6, entry_moves=moves)) for moves in range(5)] == [48, 40, 24, 0, 0]
    assert plan.decode(run_of(0)).entry is None


def test_a_run_reaches_to_the_end_of_its_last_segment(clip: Path) -> None:
    """A segment that absorbed its neighbour decodes to the neighbour's end and the pictures for the seam."""
    plan = plan_of(clip)
    work = plan.work("job", run_of(2, until=3), warm_networks)
    assert (work.start_ticks, work.end_ticks) == (640, 1280)
    assert work.decode.last_packet is not None
    assert 32 <= work.decode.last_packet < 40
    assert (work.network.loadable.content, work.dlas, work.label) == (b"net", None, "segment 2")
    assert plan.decode(run_of(9)).last_packet is None


def test_a_part_starts_one_keyframe_early(clip: Path) -> None:
    """A part starts one keyframe early, since no neighbour proves its first seam."""
    plan = plan_of(clip, start_s=Fraction(1), end_s=Fraction(2))
    assert plan.ranges.segments[0].start_ticks == 1000
    assert entry_of(plan, run_of(0)) == 16
    assert plan.ranges.segments[-1].end_ticks == 2000
    assert plan.ranges.frames == 25


def test_local_paths_become_absolute_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local paths become absolute, so that a worker in another folder reads the same files."""
    monkeypatch.chdir(tmp_path)
    spec = InferSpec(source="s3://bucket/film.mkv", loadable="net.dla", output="out.npz").resolved()
    assert (spec.source, spec.loadable) == ("s3://bucket/film.mkv", str(tmp_path / "net.dla"))
