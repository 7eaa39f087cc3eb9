"""What opening a film costs: how many times its file is opened and its index is read, and by which threads."""

import os
import threading
import time
from pathlib import Path

import pytest

import codecfleet
from codecfleet.actors.media import kept_sources
from codecfleet.actors.media.kept_sources import KeptSources
from codecfleet.jobs.frames import readings
from codecfleet.jobs.frames.readings import Readings
from codecfleet.jobs.source.source import SourceReading, SourceStamp, read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..frame_streams import GOPS

FRAMES = 24
DAY_NS = 86_400 * 10**9


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A short mp4 that was written yesterday."""
    path = make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(FRAMES), options=GOPS))
    yesterday = time.time_ns() - DAY_NS
    os.utime(path, ns=(yesterday, yesterday))
    return path


class Counted:
    """Reads sources, and counts."""

    def __init__(self) -> None:
        self.tracks: list[int] = []

    def __call__(self, source: str, track: int = 0) -> SourceReading:
        """Read."""
        self.tracks.append(track)
        return read_source(source, track)


def test_an_index_is_read_once_until_its_file_changes(clip: Path) -> None:
    """The same file gives the kept index; a changed file is read again."""
    read = Counted()
    kept = Readings(read)
    first = kept.read(SourceStamp.of(str(clip)), 0)
    assert kept.read(SourceStamp.of(str(clip)), 0) is first
    assert len(read.tracks) == 1
    make_clip(clip, Clip(times=constant_times(8), options=GOPS))
    os.utime(clip, ns=(DAY_NS, DAY_NS))
    assert len(kept.read(SourceStamp.of(str(clip)), 0).index.times) == 8
    assert len(read.tracks) == 2


def test_a_file_that_was_just_written_is_read_each_time(clip: Path) -> None:
    """A file that was just written is read each time, because it may change within a tick of the file system."""
    read = Counted()
    changed_ns = clip.stat().st_mtime_ns
    kept = Readings(read, lambda: changed_ns + 10**9)
    for _ in range(2):
        kept.read(SourceStamp.of(str(clip)), 0)
    assert len(read.tracks) == 2


def test_the_indexes_kept_are_bounded(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest unused index is dropped, and one that is too long is never kept."""
    other = clip.with_name("other.mp4")
    other.write_bytes(clip.read_bytes())
    os.utime(other, ns=(DAY_NS, DAY_NS))
    read = Counted()
    kept = Readings(read)
    monkeypatch.setattr(readings, "MOST_PACKETS", FRAMES)
    for path in (clip, clip, other, other, clip):
        kept.read(SourceStamp.of(str(path)), 0)
    assert len(read.tracks) == 3
    monkeypatch.setattr(readings, "MOST_PACKETS", FRAMES - 1)
    kept = Readings(read)
    for _ in range(2):
        kept.read(SourceStamp.of(str(clip)), 0)
    assert len(read.tracks) == 5


def count_openings(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets, for each opening of a kept source, whether no picture was decoded for it."""
    undecoded: list[bool] = []
    open_source = kept_sources.open_source

    def counted(*args: object, **options: object) -> object:
        undecoded.append(bool(options["undecoded"]))
        return open_source(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(kept_sources, "open_source", counted)
    return undecoded


def test_a_film_decodes_for_its_parameters_once(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder reuses what the index found in the first pictures."""
    undecoded = count_openings(monkeypatch)
    for _ in range(2):
        with codecfleet.frames(clip, threads=1, decoder="software") as film:
            assert [frame.index for frame in film] == list(range(FRAMES))
    assert len(undecoded) > 1
    assert all(undecoded)


def test_the_sources_that_are_known_are_bounded(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts about the longest unused source are dropped."""
    kept = KeptSources()
    undecoded = count_openings(monkeypatch)
    monkeypatch.setattr(kept_sources, "MOST_KNOWN", 1)
    other = clip.with_name("other.mp4")
    other.write_bytes(clip.read_bytes())
    for path in (clip, clip, other, clip):
        with kept.borrow(str(path), 0):
            pass
        kept.forget(str(path))
    assert undecoded == [False, True, False, False]


def test_a_plain_loop_over_a_file_starts_only_decoding_threads(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain loop starts one thread for each segment; opening and closing run in the caller's thread."""
    started: list[str] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    with codecfleet.frames(clip, decoder="software") as film:
        assert sum(1 for _ in film) == FRAMES
    assert len(started) == film.report.segments
    assert all(name.startswith("codecfleet-frames-") for name in started)
