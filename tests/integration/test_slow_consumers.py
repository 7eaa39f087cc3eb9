"""If results are consumed slowly, memory stays bounded and nothing is lost."""

import threading
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from codecfleet.jobs.join.gather import Gather
from codecfleet.jobs.report.events import Event, Planned, SegmentFinished, SegmentStarted

from .local_jobs import LOSSLESS, film, spec_of, transcode
from .test_limits import noise

__all__ = ["film"]

SLOTS = 2


def test_a_join_that_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments wait on disk and not in memory, so all can be encoded before the first is joined."""
    spec = spec_of(noise(tmp_path / "in.mkv", 400), tmp_path / "o.mp4", segment_s=Fraction(2, 5), **LOSSLESS)
    encoded, joined = threading.Event(), Gather.join
    monkeypatch.setattr(Gather, "join", lambda *given: (encoded.wait(30), joined(*given))[1])
    left, held_bytes = 0, 0

    def act(_job: object, event: Event) -> None:
        nonlocal left, held_bytes
        if isinstance(event, Planned):
            left = event.segments
        left -= isinstance(event, SegmentFinished)
        if left == 0 and isinstance(event, SegmentFinished) and not encoded.is_set():
            held_bytes = tracemalloc.get_traced_memory()[0]
            encoded.set()

    tracemalloc.start()
    try:
        report = transcode(spec, act, slots=SLOTS)
    finally:
        tracemalloc.stop()
    assert encoded.is_set()
    assert report.output_bytes > 2_000_000
    assert held_bytes < report.output_bytes / 2


def test_a_result_keeps_its_slot_until_it_is_written(film: Path) -> None:
    """The number of segments that have begun but are not yet safe on disk never exceeds the number of slots."""
    begun: list[int] = [0]

    def act(_job: object, event: Event) -> None:
        change = isinstance(event, SegmentStarted) - isinstance(event, SegmentFinished)
        if change:
            begun.append(begun[-1] + change)

    options: dict[str, Any] = {"segment_s": "0.5", "scale": (160, 120), "preset": 1, "second_runs": 0}
    report = transcode(spec_of(film, film.parents[1] / "out" / "o.mp4", **options), act, slots=SLOTS)
    assert len(report.segments) > 15
    assert max(begun) == SLOTS
