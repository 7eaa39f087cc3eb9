"""A program that is killed after its output got its name and before it cleaned up."""

import os
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from codecfleet import TranscodeSpec
from codecfleet.cli.app import run as command_line
from codecfleet.errors import OutputExists, UsageError
from codecfleet.jobs.journal.found_work import WorkState, find_work, remove_record
from codecfleet.jobs.report.events import Event, WorkKept
from tests.sweeps import swept

from .local_jobs import film, spec_of, transcode
from .test_resume import interrupted

__all__ = ["film"]

_PROGRAM = """
import asyncio, os, signal, sys
from codecfleet import Fleet, TranscodeSpec
from codecfleet.jobs.journal.work import WorkPlace
from codecfleet.testing import LocalPool

# The first thing after the output has its name.
WorkPlace.remove = lambda self: os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Fleet(pool=LocalPool(2)) as fleet:
        await (await fleet.transcode(TranscodeSpec.model_validate_json(sys.argv[1])))

asyncio.run(main())
"""


def killed(spec: TranscodeSpec) -> None:
    """Run a job in its own process, which dies between publishing and cleaning up."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROGRAM, spec.model_dump_json()]
    done = subprocess.run(command, env=environment, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def job(film: Path, **options: object) -> TranscodeSpec:
    """Return a short job."""
    return spec_of(film, film.parents[1] / "out" / "o.mp4", end_s=2, scale=(160, 120), preset=1, **options)


@pytest.mark.parametrize("place", swept(["beside", "restart", "folder", "url"]))
def test_the_same_command_ends_well(place: str, film: Path) -> None:
    """The same command encodes nothing, says that the output was published, and removes the job's leftovers."""
    out, work = film.parents[1] / "out", film.parents[1] / "work"
    options: dict[str, object] = {"work": {"folder": str(work), "url": f"file://{work}"}.get(place)}
    options["restart"] = place == "restart"
    spec = job(film, **options)
    killed(spec)
    assert (out / "o.mp4").exists()
    (left,) = find_work(str(work if options["work"] else out))
    assert left.found.complete is not None
    before = (out / "o.mp4").stat()
    report = transcode(spec)
    assert report.resumed is not None
    assert (report.resumed.published, report.resumed.redone) == (True, 0)
    assert all(each.restored for each in report.segments)
    after = (out / "o.mp4").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert report.output_bytes == after.st_size
    assert [path.name for path in out.iterdir()] == ["o.mp4"]
    assert not work.exists() or find_work(str(work)) == []
    with pytest.raises(OutputExists):
        transcode(spec)


def test_resume_ends_well_without_ray(film: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``codecfleet resume`` ends with exit code 0 and one clear line, and leaves nothing."""
    out = film.parents[1] / "out"
    killed(job(film))
    assert command_line(["resume", str(out / ".o.mp4.codecfleet")]) == 0
    assert "an earlier run had published the output" in capsys.readouterr().out
    assert [path.name for path in out.iterdir()] == ["o.mp4"]


def test_a_record_is_no_unfinished_work(film: Path) -> None:
    """Another request that fails keeps it and names no kept segments; one that succeeds needs no ``--restart``."""
    spec = job(film)
    transcode(spec, keeps_record=True)
    other = spec.model_copy(update={"preset": 2, "overwrite": True})
    seen: list[Event] = []
    with pytest.raises(UsageError):
        transcode(
            other.model_copy(update={"start_s": Fraction(50), "end_s": None}), lambda _, event: seen.append(event)
        )
    assert not any(isinstance(event, WorkKept) for event in seen)
    assert transcode(spec, keeps_record=True).resumed is not None
    Path(spec.output).unlink()
    assert transcode(other).resumed is None
    assert [path.name for path in Path(spec.output).parent.iterdir()] == ["o.mp4"]


def test_only_a_record_is_removed_as_a_record(film: Path) -> None:
    """The finished segments of another job that was cancelled at the same place stay."""
    spec = job(film)
    work = Path(spec.output).parent / ".o.mp4.codecfleet"
    transcode(spec, keeps_record=True)
    remove_record(str(work))
    remove_record(str(work))
    assert not work.exists()
    interrupted(spec.model_copy(update={"overwrite": True, "segment_s": Fraction(1, 2), "preset": 2}), after=1)
    remove_record(str(work))
    assert find_work(str(work))[0].state is WorkState.UNFINISHED


@pytest.mark.parametrize("other", swept(["file", "options", "source"]))
def test_anything_else_under_that_name_is_still_refused(other: str, film: Path) -> None:
    """Another file, other options or a changed source are refused; with ``--overwrite`` the job runs."""
    spec = job(film)
    killed(spec)
    if other == "file":
        Path(spec.output).write_bytes(b"x" * Path(spec.output).stat().st_size)
    elif other == "options":
        spec = spec.model_copy(update={"preset": 2})
    else:
        os.utime(film, (1, 1))
    with pytest.raises(OutputExists):
        transcode(spec)
    report = transcode(spec.model_copy(update={"overwrite": True}))
    assert report.resumed is None or not report.resumed.published
    assert [path.name for path in Path(spec.output).parent.iterdir()] == ["o.mp4"]
