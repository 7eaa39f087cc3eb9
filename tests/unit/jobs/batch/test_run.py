"""A whole batch on jobs that play a script: order, bounds, failures, deaths and cancellation, without any encoding."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from codecfleet.errors import (
    Cancelled,
    CodecfleetError,
    FleetUnavailable,
    InputUnreadable,
    JournalRefused,
    NotSmaller,
    OutputInUse,
    StorageFailed,
    UsageError,
    WorkError,
)
from codecfleet.jobs.batch.batch import Batch
from codecfleet.jobs.batch.results import BatchProgress, BatchResult
from codecfleet.jobs.batch.store.schema import FileResult
from codecfleet.jobs.report.events import Done, Event
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.fleet.fake_fleet import FakeJob, sample_events

_BEGUN = 2
"""How many jobs must have begun for ``Jobs.begun``, usually."""
Fault = Callable[[TranscodeSpec, int], CodecfleetError | None]


class Jobs:
    """Submits jobs that write a byte under the output's name, or fail as ``fault`` says of the n-th try of a file."""

    def __init__(self, fault: Fault = lambda _spec, _n: None, *, hangs: bool = False, begun: int = _BEGUN) -> None:
        self.specs: list[TranscodeSpec] = []
        self.jobs: list[FakeJob] = []
        self._fault = fault
        self._hangs = hangs
        self._begun = begun
        self.begun = asyncio.Event()

    async def submit(self, spec: TranscodeSpec) -> FakeJob:
        """Start one."""
        self.specs.append(spec)
        error = self._fault(spec, sum(each.source == spec.source for each in self.specs))
        if error is None and not self._hangs:
            _write(spec.output)
        job = FakeJob(_script(spec), error, hangs=self._hangs, pace_s=0)
        self.jobs.append(job)
        if len(self.jobs) == self._begun:
            self.begun.set()
        return job

    @property
    def sources(self) -> list[str]:
        """The names of the files, in the order in which they began."""
        return [Path(each.source).name for each in self.specs]


def _write(output: str) -> None:
    Path(output).write_bytes(b"x")


def _script(spec: TranscodeSpec) -> list[Event]:
    *events, last = sample_events(segments=1)
    assert isinstance(last, Done)
    report = last.report.model_copy(update={"source": spec.source, "output": spec.output, "output_bytes": 1})
    return [*events, Done("job-1", 1.0, report)]


def run_batch(spec: BatchSpec, jobs: Jobs) -> tuple[list[BatchResult], BatchProgress]:
    """Run a batch to its end."""

    async def main() -> tuple[list[BatchResult], BatchProgress]:
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        results = [result async for result in batch]
        return results, batch.progress

    return asyncio.run(main())


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of five inputs."""
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / f"in/{number}.mkv").write_bytes(bytes(number + 10))
    return tmp_path / "in"


@pytest.fixture
def spec(films: Path) -> BatchSpec:
    """A batch of them."""
    return BatchSpec(inputs=films, output=films.parent / "out")


def test_every_file_is_done_once_and_never_again(spec: BatchSpec) -> None:
    """In order; a second run finds nothing to do."""
    jobs = Jobs()
    results, progress = run_batch(spec.model_copy(update={"files_at_once": 1}), jobs)
    assert jobs.sources == [f"{n}.mkv" for n in range(5)]
    assert {Path(each.output).name for each in results} == {f"{n}.mkv" for n in range(5)}
    assert (progress.files, progress.done, progress.skipped, progress.exit_code) == (5, 5, 0, 0)
    assert progress.saved_bytes == 60 - 5
    again, progress = run_batch(spec, jobs)
    assert again == []
    assert (progress.done, progress.skipped, len(jobs.specs)) == (5, 5, 5)
    assert progress.saved_bytes == 60 - 5


def test_changed_inputs_and_other_options_run_again(spec: BatchSpec, films: Path) -> None:
    """And only they; what the batch wrote itself is replaced."""
    run_batch(spec, Jobs())
    (films / "3.mkv").write_bytes(b"new")
    jobs = Jobs()
    run_batch(spec, jobs)
    assert jobs.sources == ["3.mkv"]
    assert jobs.specs[0].overwrite
    jobs = Jobs()
    run_batch(spec.model_copy(update={"workers": 3}), jobs)
    assert jobs.sources == []
    run_batch(BatchSpec(inputs=films, output=spec.output, quality=30), jobs)
    assert len(jobs.sources) == 5


def test_the_inputs_own_fault_is_reported_once(spec: BatchSpec) -> None:
    """It is not tried again, neither now nor by the next run, unless that is asked for."""
    jobs = Jobs(lambda each, _n: InputUnreadable("broken") if each.source.endswith("2.mkv") else None)
    results, progress = run_batch(spec, jobs)
    (failed,) = [each for each in results if each.error is not None]
    assert (failed.error_class, failed.message, failed.tries, failed.result) == ("InputUnreadable", "broken", 1, None)
    assert (progress.failed, progress.failures, progress.exit_code) == (1, (("InputUnreadable", 1),), 3)
    _, progress = run_batch(spec, jobs)
    assert (len(jobs.specs), progress.failed, progress.exit_code) == (5, 1, 3)
    fixed = Jobs()
    _, progress = run_batch(spec.model_copy(update={"retry_failed": True}), fixed)
    assert (fixed.sources, progress.done, progress.exit_code) == (["2.mkv"], 5, 0)


def test_other_faults_get_a_second_try_at_the_end(spec: BatchSpec) -> None:
    """A full disk may have room by then."""
    jobs = Jobs(lambda each, n: StorageFailed("full") if each.source.endswith("0.mkv") and n == 1 else None)
    results, progress = run_batch(spec.model_copy(update={"files_at_once": 1}), jobs)
    assert jobs.sources == ["0.mkv", "1.mkv", "2.mkv", "3.mkv", "4.mkv", "0.mkv"]
    assert [each.tries for each in results if each.source.endswith("0.mkv")] == [2]
    assert progress.exit_code == 0


def test_a_fleet_that_is_gone_ends_the_batch_and_fails_no_file(spec: BatchSpec) -> None:
    """The next run does what is left."""
    jobs = Jobs(lambda each, _n: FleetUnavailable("no Ray") if each.source.endswith("2.mkv") else None)
    with pytest.raises(FleetUnavailable):
        run_batch(spec, jobs)
    rest = Jobs()
    results, progress = run_batch(spec, rest)
    assert all(each.error is None for each in results)
    assert (progress.done, progress.failed) == (5, 0)
    assert "2.mkv" in rest.sources


def test_when_everything_fails_the_rest_is_not_tried(films: Path, spec: BatchSpec) -> None:
    """Eight faults in a row that are not the files' own end the batch with the last one."""
    for number in range(5, 40):
        (films / f"{number}.mkv").write_bytes(b"x")
    jobs = Jobs(lambda _each, _n: StorageFailed("full"))
    with pytest.raises(WorkError, match="8 files in a row failed"):
        run_batch(spec, jobs)
    assert len(jobs.specs) < 20


def test_files_in_flight_are_bounded(spec: BatchSpec) -> None:
    """No more than asked for."""

    async def main() -> int:
        jobs = Jobs(hangs=True)
        batch = Batch(spec.model_copy(update={"files_at_once": 2}).resolved(), jobs.submit, LocalPool(8))
        await jobs.begun.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        begun = len(jobs.jobs)
        await batch.cancel()
        return begun

    assert asyncio.run(main()) == 2


def test_a_cancelled_batch_keeps_what_is_finished(spec: BatchSpec) -> None:
    """Its jobs are cancelled and may be continued; its files wait."""

    async def main() -> tuple[Jobs, BatchProgress]:
        jobs = Jobs(hangs=True)
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        await batch.cancel()
        with pytest.raises(Cancelled):
            _ = [result async for result in batch]
        return jobs, batch.progress

    jobs, progress = asyncio.run(main())
    assert jobs.jobs
    assert all(job.kept for job in jobs.jobs)
    assert (progress.waiting, progress.running) == (5, ())


def test_a_second_batch_into_the_same_outputs_is_refused(spec: BatchSpec) -> None:
    """The first one goes on."""

    async def main() -> None:
        jobs = Jobs(hangs=True)
        first = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        with pytest.raises(OutputInUse):
            _ = [result async for result in Batch(spec.resolved(), jobs.submit, LocalPool(2))]
        await first.cancel()

    asyncio.run(main())


def test_a_batch_that_was_taken_over_says_so_and_ends(spec: BatchSpec) -> None:
    """Its database is another process's by then: a caller that iterates hears it, and does not wait for ever."""

    async def main() -> None:
        jobs = Jobs(hangs=True)
        batch = Batch(spec.resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        with sqlite3.connect(Path(spec.output) / "codecfleet-batch.sqlite") as other:
            other.execute("INSERT INTO runs (began_s, owner, renewed_s) SELECT began_s, owner, renewed_s FROM runs")
        other.close()
        await batch.cancel()
        with pytest.raises(OutputInUse):
            _ = [result async for result in batch]

    asyncio.run(main())


def test_a_killed_trys_work_of_other_options_is_started_over(spec: BatchSpec) -> None:
    """It is the batch's own; unfinished work of another's is left alone, as the job says."""

    def fault(each: TranscodeSpec, _n: int) -> CodecfleetError | None:
        return None if each.restart else JournalRefused("unfinished work")

    async def cancelled() -> int:
        jobs = Jobs(hangs=True)
        batch = Batch(spec.model_copy(update={"files_at_once": 2}).resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        await batch.cancel()
        return len(jobs.specs)

    begun = asyncio.run(cancelled())
    _, progress = run_batch(BatchSpec(inputs=spec.inputs, output=spec.output, quality=30), Jobs(fault))
    assert (progress.done, progress.failures) == (begun, (("JournalRefused", 5 - begun),))


@pytest.mark.parametrize(("later", "left", "failures"), [(b"a user's", b"a user's", 1), (None, b"x", 0)])
def test_after_a_failed_try_only_what_a_stopped_one_left_is_replaced(
    films: Path, later: bytes | None, left: bytes, failures: int
) -> None:
    """A file that took the output's name after the failure is a user's, and left alone."""
    one, out = films / "0.mkv", films.parent / "out"
    alone = BatchSpec(inputs=one, output=out, output_template="{stem}.{ext}", retry_failed=True)
    output = out / "0.mkv"

    async def stopped() -> None:
        jobs = Jobs(hangs=True, begun=1)
        batch = Batch(alone.resolved(), jobs.submit, LocalPool(2))
        await jobs.begun.wait()
        await batch.cancel()

    asyncio.run(stopped())
    output.write_bytes(b"published before it was stopped")
    run_batch(alone, Jobs(lambda _spec, _n: InputUnreadable("broken")))
    if later is not None:
        output.write_bytes(later)
    _, progress = run_batch(alone, Jobs())
    assert progress.failures == (("OutputExists", 1),) * failures
    assert output.read_bytes() == left


def test_overrides_reach_their_file_alone(films: Path) -> None:
    """A quality of a list's also ends the batch's bitrate."""
    (films / "list.csv").write_text(f"source,quality,output\n{films}/0.mkv,33,a/zero.mp4\n{films}/1.mkv,,\n")
    jobs = Jobs()
    spec = BatchSpec(
        inputs=films / "list.csv", output=films.parent / "out", output_template="{stem}.mp4", bitrate_bps="2M"
    )
    run_batch(spec, jobs)
    second, first = sorted(jobs.specs, key=lambda each: each.output)
    assert (first.quality, first.bitrate_bps, first.output) == (33, None, str(films.parent / "out/a/zero.mp4"))
    assert (second.quality, second.bitrate_bps, second.output) == (None, 2_000_000, str(films.parent / "out/1.mp4"))


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("quality", "99", "list.csv:2: quality"),
        ("output", "../x.mp4", "leads out"),
        ("output", "/x.mp4", "root"),
    ],
)
def test_a_list_that_makes_no_sense_begins_nothing(films: Path, column: str, value: str, said: str) -> None:
    """Its error names the line."""
    (films / "list.csv").write_text(f"source,{column}\n{films}/0.mkv,{value}\n")
    jobs = Jobs()
    with pytest.raises(UsageError, match=said):
        run_batch(BatchSpec(inputs=films / "list.csv", output=films.parent / "out"), jobs)
    assert jobs.specs == []


def test_an_input_is_not_its_own_output(films: Path) -> None:
    """In place is refused before anything begins."""
    with pytest.raises(UsageError, match="replaced by its own output"):
        run_batch(BatchSpec(inputs=films, output=films), Jobs())


def test_what_is_not_smaller_is_copied(spec: BatchSpec, films: Path) -> None:
    """Byte for byte, under the output's name with the input's extension; and it is done."""
    (films / "5.avi").write_bytes(b"old")
    jobs = Jobs(lambda each, _n: NotSmaller("larger") if each.source.endswith("avi") else None)
    asked = spec.model_copy(update={"if_smaller": True})
    results, _ = run_batch(asked, jobs)
    (kept,) = [each for each in results if each.result is FileResult.KEPT]
    assert kept.output == str(films.parent / "out/5.avi")
    assert Path(kept.output).read_bytes() == b"old"
    again, progress = run_batch(asked, jobs)
    assert (again, progress.skipped, progress.saved_bytes) == ([], 6, 60 - 5)


def test_an_input_that_lies_where_its_copy_would_stays(films: Path) -> None:
    """In its own folder what is not smaller is its own copy; and it is done, and looked at again."""
    jobs = Jobs(lambda _each, _n: NotSmaller("larger"))
    asked = BatchSpec(inputs=films, output=films, output_template="{stem}.mp4", if_smaller=True)
    results, progress = run_batch(asked, jobs)
    assert {each.result for each in results} == {FileResult.KEPT}
    assert sorted(path.name for path in films.glob("*.m*")) == [f"{n}.mkv" for n in range(5)]
    assert (progress.done, progress.saved_bytes) == (5, 0)
    again, progress = run_batch(asked, Jobs())
    assert (again, progress.files, progress.skipped) == ([], 5, 5)
    (films / "2.mkv").write_bytes(b"new")
    assert [Path(each.output).name for each in run_batch(asked, Jobs())[0]] == ["2.mp4"]


def test_the_batchs_database_is_not_replaced(films: Path) -> None:
    """A mirror of an earlier batch's folder does not replace it."""
    (films / "codecfleet-batch.sqlite").write_bytes(b"old")
    asked = BatchSpec(inputs=films, output=films.parent / "out", mirror=True, overwrite=True)
    with pytest.raises(UsageError, match="own database"):
        run_batch(asked, Jobs())


def test_a_name_that_is_not_utf_8_is_said_before_any_work(films: Path, spec: BatchSpec) -> None:
    """The database cannot hold it."""
    Path(os.fsdecode(bytes(films) + b"/\xff.mkv")).write_bytes(b"x")
    jobs = Jobs()
    with pytest.raises(UsageError, match="not UTF-8"):
        run_batch(spec, jobs)
    assert jobs.specs == []


def test_a_mirror_holds_what_is_not_video_too(spec: BatchSpec, films: Path) -> None:
    """Without it such files are counted; with it they are copied under their own names."""
    (films / "sub").mkdir()
    (films / "sub/0.srt").write_bytes(b"text")
    _, progress = run_batch(spec, Jobs())
    assert (progress.files, progress.left_out) == (5, 1)
    results, progress = run_batch(spec.model_copy(update={"mirror": True}), Jobs())
    assert [(each.result, each.report) for each in results] == [(FileResult.COPIED, None)]
    assert (films.parent / "out/sub/0.srt").read_bytes() == b"text"
    assert (progress.done, progress.left_out) == (6, 0)


def test_a_stranger_under_an_outputs_name_is_left_alone(spec: BatchSpec, films: Path) -> None:
    """That file fails with the request's error, and no job is begun for it."""
    (films.parent / "out").mkdir()
    (films.parent / "out/1.mkv").write_bytes(b"mine")
    jobs = Jobs()
    results, progress = run_batch(spec, jobs)
    assert [each.error_class for each in results if each.error is not None] == ["OutputExists"]
    assert (films.parent / "out/1.mkv").read_bytes() == b"mine"
    assert ("1.mkv" in jobs.sources, progress.exit_code) == (False, 4)
