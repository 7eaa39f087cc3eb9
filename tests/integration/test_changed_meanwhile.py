"""Changes during a job to its source, its output and its work folder; and cancellation."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from codecfleet import Fleet, Report
from codecfleet.errors import Cancelled, InputUnreadable, OutputExists, StorageFailed
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import LIMIT_S, film, later, spec_of, transcode

__all__ = ["film"]


def other_film(film: Path) -> None:
    """Replace the film by another one, as a repeated download would."""
    clip = Clip(times=constant_times(200), keyframes=frozenset(range(0, 200, 10)), width=80, height=64)
    make_clip(film.with_name("other.mp4"), clip).replace(film)


def folder_instead(film: Path) -> None:
    """Replace the film by a folder."""
    film.unlink()
    film.mkdir()


def pipe_instead(film: Path) -> None:
    """Replace the film by a pipe without a writer."""
    film.unlink()
    os.mkfifo(film)


CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda film: os.truncate(film, 0),
    "cut short": lambda film: os.truncate(film, film.stat().st_size // 3),
    "grown": lambda film: film.write_bytes(film.read_bytes() + b"\0" * 1000),
    "replaced": other_film,
    "a folder": folder_instead,
    "a pipe": pipe_instead,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_source_that_changes_under_a_job(change: str, film: Path) -> None:
    """A source that is changed, replaced or removed fails the job with that reason, and nothing is published.

    A removed source may come back, so its work is kept.
    """
    out = film.parents[1] / "out"
    spec = spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(320, 180), preset=1)
    with pytest.raises(InputUnreadable, match="was changed or removed while it was read"):
        transcode(spec, later(lambda: CHANGES[change](film)))
    assert [path.name for path in out.iterdir()] == [".o.mp4.codecfleet"] * (change == "removed")


def test_an_output_name_that_is_taken_meanwhile(film: Path) -> None:
    """A file that takes the output's name during the job keeps it; the finished work can be published over it."""
    out = film.parents[1] / "out"
    with pytest.raises(OutputExists):
        transcode(spec_of(film, out / "o.mp4", preset=1), later(lambda: (out / "o.mp4").write_text("mine"), after=1))
    assert (out / "o.mp4").read_text() == "mine"
    again = transcode(spec_of(film, out / "o.mp4", preset=1, overwrite=True))
    assert all(segment.restored for segment in again.segments)
    assert [path.name for path in out.iterdir()] == ["o.mp4"]


@pytest.mark.parametrize("what", ["work folder", "output folder", "payloads"])
def test_work_that_somebody_tidies_away(what: str, film: Path) -> None:
    """If the work folder is removed or overwritten, the job fails and publishes nothing; the next run succeeds."""
    out = film.parents[1] / "out"
    trouble: Mapping[str, Callable[[], object]] = {
        "work folder": lambda: list(map(shutil.rmtree, out.iterdir())),
        "output folder": lambda: shutil.rmtree(out),
        "payloads": lambda: [path.write_bytes(b"x") for path in out.glob(".*/segment-*")],
    }
    spec = spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(320, 180), preset=1)
    with pytest.raises(StorageFailed):
        transcode(spec, later(trouble[what]))
    assert not (out / "o.mp4").exists()
    out.mkdir(exist_ok=True)
    transcode(spec)
    assert [path.name for path in out.iterdir()] == ["o.mp4"]


@pytest.mark.parametrize("events", [0, 1, 3, 9])
def test_a_cancelled_job_leaves_nothing(events: int, film: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A job cancelled at its start, in its plan or in the middle leaves an empty folder, and one line in its log."""
    out = film.parents[1] / "out"

    async def run() -> None:
        async with Fleet(pool=LocalPool(2)) as fleet:
            job = await fleet.transcode(
                spec_of(film, out / "o.mp4", segment_s=Fraction(1, 2), scale=(320, 180), preset=1)
            )
            if events:
                seen = 0
                async for _ in job.events():
                    seen += 1
                    if seen == events:
                        break
            await job.cancel()
            with pytest.raises(Cancelled):
                await job

    asyncio.run(run())
    assert list(out.iterdir()) == []
    assert [record for record in caplog.records if record.name != "codecfleet"] == []


class SlowStore(MemoryFileSystem):  # type: ignore[misc] # fsspec publishes no types
    """A store that takes a file only when allowed to."""

    protocol = "slow"
    begun = threading.Event()
    go_on = threading.Event()

    def put_file(self, lpath: str, rpath: str, *_: object, **__: object) -> None:
        """Wait, then take the whole file."""
        self.begun.set()
        assert self.go_on.wait(LIMIT_S)
        self.pipe_file(rpath, Path(lpath).read_bytes())


def test_a_cancellation_that_comes_too_late(film: Path) -> None:
    """A job that is cancelled while it publishes is done, and says so."""
    fsspec.register_implementation("slow", SlowStore, clobber=True)

    async def run() -> Report:
        async with Fleet(pool=LocalPool(2)) as fleet:
            job = await fleet.transcode(spec_of(film, "slow://films/o.mp4", preset=1))
            await asyncio.to_thread(SlowStore.begun.wait, LIMIT_S)
            cancelling = asyncio.create_task(job.cancel())
            await asyncio.sleep(0)
            SlowStore.go_on.set()
            await cancelling
            return await job

    report = asyncio.run(run())
    with fsspec.open("slow://films/o.mp4", "rb") as stored:
        assert len(stored.read()) == report.output_bytes
