"""Whole batches with real encoders on real files, from the command line, with processes that die."""

import asyncio
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import fsspec
import pytest

from codecfleet import Batch, BatchResult, BatchSpec, Fleet, TranscodeSpec, verify
from codecfleet.cli.app import parse
from codecfleet.cli.services import CommandRequest, Services
from codecfleet.cluster.fleet.pool import PoolState
from codecfleet.errors import NotSmaller, OutputUnwritable
from codecfleet.jobs.batch.preview import Intended, Preview
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import transcode

_PROGRAM = """
import asyncio, os, signal, sys
from codecfleet import BatchSpec, Fleet
from codecfleet.testing import LocalPool

async def main():
    async with Fleet(pool=LocalPool(2)) as fleet:
        ended = 0
        async for result in fleet.batch(BatchSpec.model_validate_json(sys.argv[1])):
            print("ended", flush=True)
            ended += 1
            if ended == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of ten tiny films, whose pictures show the film's number."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    for number in range(10):
        place = folder / "sub" if number % 2 else folder
        make_clip(place / f"{number}.mkv", Clip(times=constant_times(6 + number), keyframes=frozenset({0, 4})))
    return folder


def a_spec(films: Path, **options: object) -> BatchSpec:
    """Return a batch of these films."""
    return BatchSpec(inputs=films, output=films.parent / "out", output_template="{dir}/{stem}.mp4", preset=1, **options)


def run_batch(spec: BatchSpec) -> list[BatchResult]:
    """Run a batch to its end."""

    async def main() -> list[BatchResult]:
        async with Fleet(pool=LocalPool(2)) as fleet:
            batch = fleet.batch(spec)
            assert isinstance(batch, Batch)
            return [result async for result in batch]

    return asyncio.run(main())


def outputs(films: Path) -> dict[str, bytes]:
    """Return the content of each output by name."""
    root = films.parent / "out"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.mp4"))}


class WarmPool(LocalPool):
    """Threads that pretend to be a warm fleet's."""

    @property
    def state(self) -> PoolState:
        """Name a process."""
        return replace(super().state, warm_fleet=7)


def command(arguments: list[str], kind: type[LocalPool] = LocalPool) -> tuple[int, str, str]:
    """Run ``codecfleet batch`` on threads; return the exit code, stdout and stderr."""

    @asynccontextmanager
    async def open_batch(spec: BatchSpec, address: str | None) -> AsyncIterator[Batch]:
        del address
        async with Fleet(pool=kind(2)) as fleet:
            yield fleet.batch(spec)

    def preview(spec: BatchSpec, address: str | None, show: Callable[[Intended], object]) -> Preview:
        del address

        async def main() -> Preview:
            async with Fleet(pool=LocalPool(2)) as fleet:
                return await fleet.preview_batch(spec, show)

        return asyncio.run(main())

    request = parse(["batch", *arguments])
    assert not isinstance(request, int)
    out, err = io.StringIO(), io.StringIO()
    code = _run(request, Services(open_batch=open_batch, preview_batch=preview), out, err)
    return code, out.getvalue(), err.getvalue()


def _run(request: CommandRequest, services: Services, out: io.StringIO, err: io.StringIO) -> int:
    return request.run(services, out, err)


def test_a_batch_gives_the_bytes_of_single_jobs(films: Path) -> None:
    """Each output equals that of ``transcode``, and is exact."""
    results = run_batch(a_spec(films))
    assert len(results) == len(outputs(films)) == 10
    alone = films.parent / "alone.mp4"
    transcode(TranscodeSpec(source=films / "sub/3.mkv", output=alone, preset=1))
    assert outputs(films)["sub/3.mp4"] == alone.read_bytes()
    assert verify(films / "4.mkv", films.parent / "out/4.mp4").exact


def test_the_command_tells_what_happened(films: Path) -> None:
    """The command prints a line for each file and a summary, and exits with the code of the worst failure."""
    (films / "broken.mkv").write_bytes(b"no film at all")
    (films / "notes.txt").write_text("not video")
    out = str(films.parent / "out")
    code, said, told = command([str(films), "--output", out, "--preset", "1"])
    assert code == 3
    assert "10 of 11 done" in said
    assert "1 InputUnreadable" in said
    assert "1 file without a video extension" in said
    assert f"{films / 'broken.mkv'} is not a media file codecfleet can read" in said
    assert told.count("encoded: ") == 10
    code, said, _ = command([str(films), "--output", out, "--preset", "1", "--json"])
    failed, event = map(json.loads, said.splitlines())
    assert (failed["event"], failed["error"], failed["tries"]) == ("file_failed", "InputUnreadable", 0)
    assert (code, event["event"], event["skipped"], event["failed"]) == (3, "batch_done", 10, 1)
    quiet = [str(films), "--output", out, "--preset", "1", "--quiet"]
    last = "codecfleet: error: 1 of 11 files failed: 1 InputUnreadable"
    code, said, told = command([*quiet, "--retry-failed"])
    assert (code, said) == (3, "")
    failed, *rest = told.splitlines()
    assert failed.startswith("codecfleet: failed: ")
    assert "broken.mkv" in failed
    assert rest == [last]
    code, said, told = command(quiet)  # failures of an earlier run count
    earlier, *rest = told.splitlines()
    assert (code, said, rest) == (3, "", [last])
    assert earlier.startswith("codecfleet: failed in an earlier run: ")
    (films / "broken.mkv").unlink()
    code, said, told = command(quiet)
    assert (code, said, told) == (0, "", "")


def test_a_batch_on_a_warm_fleet_says_so(films: Path) -> None:
    """A batch on a warm fleet says so once, and in its events."""
    out = str(films.parent / "out")
    code, _, told = command([str(films), "--output", out, "--preset", "1"], WarmPool)
    assert (code, told.count("on the warm fleet (process 7)")) == (0, 1)
    _, said, _ = command([str(films), "--output", out, "--preset", "1", "--json"], WarmPool)
    assert json.loads(said)["warm_fleet"] == 7


def test_a_batch_in_a_queue_tells_what_it_used(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its outputs together, also if a file fails; files of an earlier run count no more."""
    (films / "broken.mkv").write_bytes(b"no film at all")
    told = os.memfd_create("told")
    monkeypatch.setenv("CODECFLEET_FAILURE_FD", str(told))
    options = ["--output", str(films.parent / "out"), "--output-template", "{dir}/{stem}.mp4", "--preset", "1"]
    assert command([str(films), *options])[0] == 3
    cores, gpus, size = json.loads(os.pread(told, 1 << 16, 0))["used"]
    assert cores > 0
    assert (gpus, size) == (0, sum(map(len, outputs(films).values())))
    os.truncate(told, 0)
    assert command([str(films), *options])[0] == 3
    assert os.pread(told, 1 << 16, 0) == b""
    os.close(told)


@pytest.mark.slow
@pytest.mark.ci
def test_a_killed_batch_in_a_queue_has_told_what_its_finished_files_used(films: Path) -> None:
    """A file counts at the latest when its end is printed."""
    told, out = os.memfd_create("told"), films.parent / "out"
    arguments = ["batch", str(films), "--output", str(out), "--preset", "1", "--files-at-once", "1", "--json"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "codecfleet", *arguments],
        env={**os.environ, "CODECFLEET_FAILURE_FD": str(told)},
        pass_fds=[told],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        done = (each for each in map(json.loads, process.stdout) if each["event"] == "file_done")
        ended = [next(done), next(done)]
        process.kill()
    cores, gpus, size = json.loads(os.pread(told, 1 << 16, 0))["used"]
    os.close(told)
    assert (cores > 0, gpus) == (True, 0)
    assert size >= sum(Path(each["output"]).stat().st_size for each in ended)


def test_a_batch_that_cannot_begin_is_one_line(films: Path) -> None:
    """A batch that cannot begin gives one line, its error's exit code, and an event for programs."""
    code, said, told = command([str(films / "missing"), "--output", str(films.parent / "out"), "--json"])
    assert code == 3
    assert json.loads(said)["event"] == "failed"
    assert told.startswith("codecfleet: error: there is nothing at ")
    assert told.count("\n") == 1
    assert not (films.parent / "out").exists()


def killed(spec: BatchSpec, *, after: int) -> int:
    """Run a batch in a process that dies after this number of results; return how many it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", _PROGRAM, spec.model_dump_json(), str(after)]
    ended = subprocess.run(arguments, env=environment, check=False, timeout=120, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stdout.count("ended")


def test_a_killed_batch_goes_on_where_it_was(films: Path) -> None:
    """After a kill only unfinished files are encoded again, and the outputs equal those of an undisturbed run."""
    spec = a_spec(films)
    told = killed(spec, after=4)
    again = run_batch(spec)
    assert told == 4
    assert len(again) <= 10 - told
    assert all(each.error is None for each in again)
    whole = outputs(films)
    assert not list((films.parent / "out").rglob(".*"))
    other = spec.model_copy(update={"output": str(films.parent / "other")})
    run_batch(other)
    root = films.parent / "other"
    assert whole == {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.mp4"))}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_that_is_killed_anywhere_goes_on(seed: int, films: Path) -> None:
    """However many times and whenever a batch is killed, in the end there are all outputs, exact, and nothing else."""
    dice, spec = random.Random(seed), a_spec(films)  # noqa: S311 - not for secrets
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-c", _PROGRAM, spec.model_dump_json(), "1000"]
    for _ in range(6):
        with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(dice.uniform(0, 0.2))
            process.kill()
    assert all(each.error is None for each in run_batch(spec))
    assert sorted(outputs(films)) == sorted(f"{'sub/' * (n % 2)}{n}.mp4" for n in range(10))
    assert not list((films.parent / "out").rglob(".*"))
    for number in range(10):
        name = f"{'sub/' * (number % 2)}{number}"
        assert verify(films / f"{name}.mkv", films.parent / f"out/{name}.mp4").exact


def test_the_database_says_what_was_done(films: Path) -> None:
    """The database has sizes, frames, the encoder, and when each segment ran."""
    results = run_batch(a_spec(films, segment_s=Fraction(1, 10)))
    database = sqlite3.connect(f"file:{films.parent}/out/codecfleet-batch.sqlite?mode=ro", uri=True)
    rows = database.execute("SELECT source, frames, output_bytes, result, encoder FROM entries").fetchall()
    assert sorted(rows) == sorted(
        (each.source, each.report.frames, each.output_bytes, "encoded", each.report.encoder_kind)
        for each in results
        if each.report is not None
    )
    spans = database.execute("SELECT ended_s - began_s, frames, decoded_by FROM segments").fetchall()
    database.close()
    assert sum(frames for _, frames, _ in spans) == sum(6 + number for number in range(10))
    assert all(wall_s >= 0 and by == "software" for wall_s, _, by in spans)


def test_from_store_to_store(films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch from one prefix to another keeps its database in the current folder."""
    monkeypatch.chdir(tmp_path)
    store = fsspec.filesystem("memory")
    for path in films.glob("*.mkv"):
        store.pipe_file(f"/bucket/in/deep/{path.name}", path.read_bytes())
    spec = BatchSpec(inputs="memory://bucket/in/", output="memory://bucket/out", preset=1)
    assert len(run_batch(spec)) == 5
    assert [path.rpartition("/")[2] for path in sorted(store.find("/bucket/out/deep"))] == [
        f"{number}.mkv" for number in range(0, 10, 2)
    ]
    assert (tmp_path / "codecfleet-batch.sqlite").exists()
    assert run_batch(spec) == []
    store.rm("/bucket", recursive=True)


def test_only_a_smaller_result_is_published(films: Path) -> None:
    """A job whose result is not smaller ends with the request's error and leaves nothing."""
    spec = TranscodeSpec(source=films / "0.mkv", output=films.parent / "0.mp4", preset=1, quality=0, if_smaller=True)
    with pytest.raises(NotSmaller):
        transcode(spec)
    assert sorted(path.name for path in films.parent.iterdir()) == ["in"]


def test_the_page_of_a_run_is_written_also_where_files_fail(films: Path) -> None:
    """The page names failed files and has a bar for each segment; an impossible place is refused before any work."""
    (films / "broken.mkv").write_bytes(b"no film at all")
    page = films.parent / "page.html"
    arguments = [str(films), "--output", str(films.parent / "out"), "--preset", "1", "--quiet"]
    with pytest.raises(OutputUnwritable):
        command([*arguments, "--report", str(films.parent / "missing/page.html")])
    assert not (films.parent / "out").exists()
    code, _, _ = command([*arguments, "--report", str(page)])
    assert code == 3
    html = page.read_text()
    assert html.count('<rect class="work"') == 10
    assert "InputUnreadable" in html


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--codec", "hevc", "--output-template", "{stem}.webm"], "Unsupported"),
        (["--output-template", "{stem}.avi"], "Unsupported"),
        (["--fragmented", "--output-template", "{stem}.mkv"], "Unsupported"),
        (["--output-template", "{stem}.mkv"], "OutputExists"),
    ],
)
def test_a_dry_run_refuses_what_a_run_refuses(films: Path, options: list[str], error: str) -> None:
    """A dry run refuses with the error and exit code of a run, without an estimate."""
    out = films.parent / "out"
    out.mkdir()
    if error == "OutputExists":
        (out / "0.mkv").write_bytes(b"a stranger's")
    arguments = [str(films / "0.mkv"), "--output", str(out), *options, "--json"]
    dry_code, said, _ = command([*arguments, "--dry-run"])
    intended, summary = map(json.loads, said.splitlines())
    code, said, _ = command(arguments)
    (failed,) = [each for each in map(json.loads, said.splitlines()) if each["event"] == "file_failed"]
    assert (dry_code, intended["intent"], intended["error"]) == (code, "refuse", error)
    assert (failed["error"], failed["message"]) == (error, intended["message"])
    assert (summary["files"], summary["estimate"]) == ({"refuse": 1}, None)


def test_a_dry_run_says_what_a_run_then_does(films: Path) -> None:
    """A dry run encodes samples, estimates, and writes nothing."""
    arguments = [str(films), "--output", str(films.parent / "out"), "--preset", "1"]
    code, said, _ = command([*arguments, "--dry-run", "--json"])
    *files, last = map(json.loads, said.splitlines())
    assert (code, len(files), last["files"]) == (0, 10, {"encode": 10})
    assert last["estimate"]["samples"] == 6
    assert not (films.parent / "out").exists()
    command([*arguments, "--quiet"])
    made = sum(path.stat().st_size for path in (films.parent / "out").rglob("*.mkv"))
    assert last["estimate"]["output_bytes"] == pytest.approx(made, rel=0.5)
    code, said, _ = command([*arguments, "--dry-run"])
    assert (code, said.splitlines()[-1]) == (0, "files     10 done")
