"""Jobs that continue after they were killed, interrupted or damaged."""

import asyncio
import os
import random
import signal
import time
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import Fleet, Report, TranscodeSpec
from codecfleet.cli.app import run as command_line
from codecfleet.errors import Cancelled, JournalRefused, OutputInUse
from codecfleet.jobs.journal.found_work import WorkState, find_work, remove_work, unfinished_spec, work_at
from codecfleet.jobs.journal.journal import replay
from codecfleet.jobs.journal.records import read_stream
from codecfleet.jobs.report.events import Event, SegmentFinished, WorkKept
from codecfleet.testing import LocalPool
from tests.sweeps import swept

from .local_jobs import film, spec_of, transcode
from .test_killed_programs import END_S, long_job, program, wait_for

__all__ = ["film"]


def a_spec(film: Path, name: str = "o.mp4", **options: object) -> TranscodeSpec:
    """Return a job with ten segments."""
    return spec_of(film, film.parents[1] / "out" / name, segment_s=Fraction(1), scale=(160, 120), preset=1, **options)


def interrupted(spec: TranscodeSpec, *, after: int = 5) -> list[Event]:
    """Run a job and cancel it once ``after`` segments are finished; return its events."""

    async def run() -> list[Event]:
        events: list[Event] = []
        async with Fleet(pool=LocalPool(2)) as fleet:
            job = await fleet.transcode(spec)
            async for event in job.events():
                events.append(event)
                if sum(isinstance(each, SegmentFinished) for each in events) == after:
                    await job.cancel(keep=True)
            with pytest.raises(Cancelled):
                await job
        return events

    return asyncio.run(run())


def the_same(report: Report, whole: Report) -> bool:
    """Return whether two jobs gave the same bytes."""
    return report.proof.output_sha256 == whole.proof.output_sha256


@pytest.mark.parametrize("place", ["beside", "folder", "store"])
def test_an_interrupted_job_goes_on(place: str, film: Path) -> None:
    """Finished segments are not encoded again, wherever they are stored; bytes are the same, and nothing is left."""
    out, elsewhere = film.parents[1] / "out", film.parents[1] / "work"
    options = {"beside": {}, "folder": {"work": str(elsewhere)}, "store": {"work": f"memory://{elsewhere}"}}[place]
    whole = transcode(a_spec(film, "whole.mp4"))
    events = interrupted(a_spec(film, **options))
    (kept,) = [event for event in events if isinstance(event, WorkKept)]
    assert kept.segments >= 5
    (found,) = find_work(kept.work)
    assert (found.state, found.found.segments_done) == (WorkState.UNFINISHED, kept.segments)
    assert unfinished_spec(kept.work) == a_spec(film, **options)
    again = transcode(a_spec(film, **options))
    assert the_same(again, whole)
    assert again.resumed is not None
    assert again.resumed.restored == kept.segments
    assert again.resumed.redone <= 2
    assert sum(segment.restored for segment in again.segments) == kept.segments
    assert sorted(path.name for path in out.iterdir()) == ["o.mp4", "whole.mp4"]
    assert find_work(str(elsewhere) if place == "folder" else str(out)) == []


def test_a_job_without_a_journal_leaves_nothing(film: Path) -> None:
    """With ``--no-journal`` nothing of a cancelled job is kept."""
    interrupted(a_spec(film, no_journal=True))
    assert list((film.parents[1] / "out").iterdir()) == []


def test_another_job_does_not_go_on_with_it(film: Path) -> None:
    """Other options are refused with the reason; with ``restart`` the job starts again."""
    interrupted(a_spec(film))
    other = a_spec(film).model_copy(update={"preset": 2})
    with pytest.raises(JournalRefused, match="--preset was 1 and is 2"):
        transcode(other)
    with pytest.raises(JournalRefused, match="unfinished job"):
        transcode(a_spec(film, no_journal=True))
    fresh = transcode(other.model_copy(update={"restart": True}))
    assert fresh.resumed is None
    assert [path.name for path in (film.parents[1] / "out").iterdir()] == ["o.mp4"]


@pytest.mark.parametrize("seed", swept(range(6)))
def test_whatever_is_damaged_is_done_again(seed: int, film: Path) -> None:
    """Bytes of journal and payloads may be changed or missing: the output is the same."""
    chance = random.Random(seed)  # noqa: S311 - reproducible
    whole = transcode(a_spec(film, "whole.mp4"))
    interrupted(a_spec(film))
    folder = film.parents[1] / "out" / ".o.mp4.codecfleet"
    journal = folder / "journal"
    content = bytearray(journal.read_bytes())
    if seed % 2:
        content[chance.randrange(len(content))] ^= 0xFF
    journal.write_bytes(content[: len(content) - chance.randrange(200)])
    payloads = sorted(folder.glob("segment-*"))
    payloads[0].unlink()
    payloads[1].write_bytes(b"damaged")
    again = transcode(a_spec(film))
    assert the_same(again, whole)
    assert again.resumed is None or again.resumed.restored <= 5


def test_two_jobs_of_one_output(film: Path) -> None:
    """The second job is refused at once; work in use is neither removed nor listed as unfinished."""
    out = film.parents[1] / "out"
    seen: list[object] = []

    def rival(_job: object, event: Event) -> None:
        if isinstance(event, SegmentFinished) and not seen:
            seen.append(work_at(str(out / ".o.mp4.codecfleet")).state)
            seen.append(remove_work(str(out)))

    async def second() -> None:
        async with Fleet(pool=LocalPool(1)) as fleet:
            first = await fleet.transcode(a_spec(film))
            async for event in first.events():
                rival(first, event)
                if isinstance(event, SegmentFinished):
                    with pytest.raises(OutputInUse, match="another job writes"):
                        await (await fleet.transcode(a_spec(film)))
                    break
            await first

    asyncio.run(second())
    assert seen == [WorkState.RUNNING, ([], [str(out / ".o.mp4.codecfleet")])]


def test_what_is_left_is_listed_and_removed(film: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``jobs`` lists what an interrupted job has left, and removes it."""
    out = film.parents[1] / "out"
    interrupted(a_spec(film))
    assert command_line(["jobs", "unfinished", str(out)]) == 0
    assert "unfinished" in capsys.readouterr().out
    for place in (".o.mp4.codecfleet", "o.mp4"):
        assert command_line(["jobs", "unfinished", str(out / place)]) == 0
        assert "libx264" in capsys.readouterr().out
    assert command_line(["jobs", "clean", str(out)]) == 0
    assert "removed" in capsys.readouterr().out
    assert list(out.iterdir()) == []
    assert command_line(["resume", str(out / ".o.mp4.codecfleet")]) == 3


def test_a_job_is_resumed_by_its_outputs_name(film: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An output's name finds its unfinished job, even if an older output exists; a name without one is an error."""
    spec = a_spec(film, overwrite=True)
    output = Path(spec.output)
    output.parent.mkdir(exist_ok=True)
    output.write_bytes(b"older")
    interrupted(spec)
    assert unfinished_spec(spec.output) == spec
    assert command_line(["resume", str(output.with_name("other.mp4"))]) == 3
    assert "nor unfinished work on an output of that name" in capsys.readouterr().err
    assert command_line(["jobs", "clean", spec.output]) == 0
    assert [path.name for path in output.parent.iterdir()] == ["o.mp4"]


@pytest.mark.ray
@pytest.mark.slow
def test_a_program_killed_again_and_again(film: Path) -> None:
    """Killed with all processes at random moments, the same command finally writes the bytes of an undisturbed run."""
    chance = random.Random(7)  # noqa: S311 - reproducible
    out = film.parents[1] / "out"
    whole = transcode(spec_of(film, out / "whole.mp4", segment_s=Fraction(1), scale=(320, 180), end_s=Fraction(END_S)))
    journal = out / ".o.mp4.codecfleet" / "journal"
    done = 0
    for _ in range(5):
        with program(*long_job(film, "o.mp4")) as process:
            wait_for(process, "journal")
            time.sleep(chance.uniform(0.2, 2))
            if process.poll() is not None:
                break
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if (out / "o.mp4").exists():
            break
        found = replay(read_stream(journal.read_bytes()))
        assert found.segments_done >= done
        assert found.broken == ""
        done = found.segments_done
    if not (out / "o.mp4").exists():
        with program(*long_job(film, "o.mp4")) as process:
            _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert (out / "o.mp4").read_bytes() == (out / "whole.mp4").read_bytes()
    assert whole.resumed is None
    assert sorted(path.name for path in out.iterdir()) == ["o.mp4", "whole.mp4"]
