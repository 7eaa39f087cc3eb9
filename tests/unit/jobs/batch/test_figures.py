"""The figures of a run, read from its database."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import StorageFailed
from codecfleet.jobs.batch.figures import Span, engine_use, lanes, paces, read_figures
from codecfleet.jobs.batch.store.database import BatchDatabase
from codecfleet.jobs.batch.store.schema import FileStarted
from codecfleet.jobs.batch.store.states import EntryEvent, EntryState

from .entry_rows import done, failed, listed

WALL_S = 64.0


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Segments in order of their beginnings, within the run."""
    found = []
    for _ in range(draw(st.integers(0, 30))):
        began_s = draw(st.integers(0, 60))
        ended_s = draw(st.integers(began_s, 64))
        station = draw(st.sampled_from(["a", "b"]))
        found.append(Span(began_s, ended_s, draw(st.integers(0, 99)), station, "software", "libx264 crf=23", "in", 0))
    return sorted(found, key=lambda span: span.began_s)


@given(spans(), st.integers(1, 64))
def test_no_frame_is_lost_in_the_pace(found: list[Span], bins: int) -> None:
    """The paces of a run add up to all of its frames."""
    values = paces(found, WALL_S, bins)
    assert len(values) == bins
    assert sum(values) * WALL_S / bins == pytest.approx(sum(span.frames for span in found))


@given(spans())
def test_bars_of_a_lane_do_not_overlap(found: list[Span]) -> None:
    """Each segment has one bar, and a station has as many lanes as it ran segments at once."""
    drawn = lanes(found, WALL_S, 100, 8)
    assert sum(len(lane.bars) for lane in drawn) == len(found)
    for lane in drawn:
        assert all(one.ended_s <= other.began_s for one, other in zip(lane.bars, lane.bars[1:], strict=False))
    for station in "ab":
        assert sum(lane.station == station for lane in drawn) <= most_at_once(
            [span for span in found if span.station == station]
        )


def most_at_once(found: Sequence[Span]) -> int:
    """Return the most segments that ran at the same time; a segment without length counts at its time."""
    return max((sum(o.began_s <= s.began_s <= max(o.ended_s, o.began_s) for o in found) for s in found), default=0)


@given(spans())
def test_of_many_segments_the_load_is_shown(found: list[Span]) -> None:
    """For a station with many segments, the bars show its load, scaled so that the highest bar is 1."""
    if not found:
        return
    drawn = lanes(found, WALL_S, 0, 8)
    assert [lane.station for lane in drawn] == sorted({span.station for span in found})
    for lane in drawn:
        assert all(0 < bar.load <= 1 for bar in lane.bars)
        assert not lane.bars or max(bar.load for bar in lane.bars) == 1


def test_a_run_without_any_time_has_no_pace() -> None:
    """A run that took no time has no pace, and no figure divides by zero."""
    assert paces([], 0, 10) == ()
    assert engine_use([]) == ()


def test_the_figures_are_those_of_the_last_run(tmp_path: Path) -> None:
    """Entries that earlier runs have done count as done, but their segments are not in this run's figures."""
    path = tmp_path / "batch.sqlite"
    entries = [listed(n) for n in range(1, 4)]
    first = BatchDatabase(path, "/out", clock=lambda: 100.0).open()
    first.take_list(entries, retry_failed=False)
    first.write([FileStarted(entry=1, tries=1), done(1, 101.0)])
    first.close()
    second = BatchDatabase(path, "/out", clock=lambda: 200.0).open()
    second.take_list(entries, retry_failed=False)
    (before,) = second.entries(EntryState.DONE_BEFORE, 10)
    second.checked(EntryState.DONE_BEFORE, [(before.entry, EntryEvent.FOUND_SAME)])
    second.write([FileStarted(entry=2, tries=1), done(2, 201.0), failed(3)])
    found = read_figures(path)
    second.close()
    read_figures(path)
    assert [each.name for each in tmp_path.iterdir()] == ["batch.sqlite"]
    assert (found.run, found.files, found.done, found.skipped, found.failed) == (2, 3, 2, 1, 1)
    assert (found.wall_s, found.frames, found.source_bytes, found.output_bytes) == (4.0, 50, 20, 8)
    assert found.failures == (("InputNotFound", 1),)
    assert [(each.error, each.source) for each in found.failed_files] == [("InputNotFound", "/in/3.mkv")]
    assert [(each.engine, each.does, each.frames) for each in found.engines] == [
        ("nvdec", "decodes", 50),
        ("libx264", "encodes", 50),
    ]
    assert [each.source for each in found.largest] == ["/in/1.mkv", "/in/2.mkv"]
    with pytest.raises(StorageFailed):
        read_figures(tmp_path / "missing.sqlite")


def test_addresses_are_redacted(tmp_path: Path) -> None:
    """Addresses are redacted before a page shortens them, since a shortened address may not be recognized."""
    path = tmp_path / "batch.sqlite"
    root = "https://me:secret@host/out"
    database = BatchDatabase(path, root, clock=lambda: 200.0).open()
    entries = [listed(n, source=f"https://host/{n}.mkv?sig=secret") for n in (1, 2)]
    database.take_list(entries, retry_failed=False)
    database.write([FileStarted(entry=1, tries=1), done(1, 201.0), failed(2)])
    found = read_figures(path)
    database.close()
    assert (len(found.lanes), len(found.failures), len(found.largest)) == (1, 1, 1)
    assert "secret" not in repr(found)
