"""What is told of a ladder while its renditions run."""

import pytest

from codecfleet.jobs.ladder.events import LadderEvents
from codecfleet.jobs.report.events import Event, Progress, SegmentFinished, StageStarted, Warned


def heard(*events: tuple[str, Event]) -> list[Event]:
    """Return what a ladder of two renditions, each with 100 frames, tells."""
    told: list[Event] = []
    ladder = LadderEvents("ladder", {"high": 100, "low": 100}, told.append)
    for rendition, event in events:
        ladder.hear(rendition, event)
    return told


def progress(frames: int, fps: float, at_s: float = 1.0) -> Progress:
    """Return the progress of a rendition."""
    return Progress("job", at_s, frames, 100, fps, None, ((0, frames, 100),))


def test_progress_is_that_of_all_together() -> None:
    """Frames and speeds are sums, and the time left is that of all frames that are left."""
    told = heard(("high", progress(10, 10.0)), ("low", progress(30, 20.0, 2.0)), ("high", progress(50, 20.0, 3.0)))
    assert [(each.frames_done, each.frames_total) for each in told if isinstance(each, Progress)] == [
        (10, 200),
        (40, 200),
        (80, 200),
    ]
    last = told[-1]
    assert isinstance(last, Progress)
    assert (last.job, last.at_s, last.fps, last.running) == ("ladder", 3.0, 40.0, ())
    assert last.eta_s == pytest.approx(3.0)


def test_the_time_left_is_unknown_before_anything_is_done() -> None:
    """No speed gives no estimate."""
    (first,) = heard(("high", progress(0, 0.0)))
    assert isinstance(first, Progress)
    assert first.eta_s is None


def test_what_all_renditions_say_is_said_once() -> None:
    """A warning names the first rendition that has it; why there is no worker concerns all of them."""
    waiting = Warned("job", 1.0, "waiting", "no worker yet: all are busy")
    lost = Warned("job", 1.0, "chapters-dropped", "2 chapters are lost", ("metadata.chapters",))
    stage = StageStarted("job", 1.0, "gather")
    segment = SegmentFinished("job", 1.0, 0, 10, 1000, 1.0, "w")
    told = heard(*[(name, each) for each in (waiting, lost, stage, segment) for name in ("high", "low")])
    assert told == [
        Warned("ladder", 1.0, "waiting", "no worker yet: all are busy"),
        Warned("ladder", 1.0, "chapters-dropped", "high: 2 chapters are lost", ("metadata.chapters",)),
        StageStarted("ladder", 1.0, "gather"),
    ]
