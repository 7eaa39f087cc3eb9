"""A whole batch with scripted jobs: order, limits, failures, deaths and cancellation."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec
import pytest

from codecfleet.cluster.fleet.pool import Asked
from codecfleet.cluster.placement.model import Demand
from codecfleet.console.batch_text import summary_lines
from codecfleet.errors import (
    Cancelled,
    CodecfleetError,
    FleetUnavailable,
    InputNotFound,
    InputUnreadable,
    JournalRefused,
    OutputInUse,
    StorageFailed,
    UsageError,
    WorkError,
)
from codecfleet.jobs.request.spec import BatchSpec, TranscodeSpec
from codecfleet.testing import LocalPool

from .played_jobs import Jobs, results_of, run_batch, stop_batch

if TYPE_CHECKING:
    from codecfleet.cluster.autoscale.later import LaterDemand


def test_every_file_is_done_once_and_never_again(spec: BatchSpec) -> None:
    """Files run in order; a second run has nothing to do."""
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
    """Only files with changed inputs or options run again, and their outputs are replaced."""
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
    """A fault of the input is not tried again, and the next run reports it too, unless a retry is requested."""
    jobs = Jobs(lambda each, _n: InputUnreadable("broken") if each.source.endswith("2.mkv") else None)
    results, progress = run_batch(spec, jobs)
    (failed,) = [each for each in results if each.error is not None]
    assert (failed.error_class, failed.message, failed.tries, failed.result) == ("InputUnreadable", "broken", 1, None)
    assert (progress.failed, progress.failures, progress.exit_code) == (1, (("InputUnreadable", 1),), 3)
    again, progress = run_batch(spec, jobs)
    assert (len(jobs.specs), progress.failed, progress.exit_code) == (5, 1, 3)
    assert [(each.source, each.error_class, each.message, each.tries) for each in again] == [
        (failed.source, "InputUnreadable", "broken", 0)
    ]
    assert [(source, fault.message) for source, fault in progress.failed_files] == [(failed.source, "broken")]
    fixed = Jobs()
    _, progress = run_batch(spec.model_copy(update={"retry_failed": True}), fixed)
    assert (fixed.sources, progress.done, progress.exit_code) == (["2.mkv"], 5, 0)


def test_other_faults_get_a_second_try_at_the_end(spec: BatchSpec) -> None:
    """Other faults are tried again at the end, when for example a full disk may have room."""
    jobs = Jobs(lambda each, n: StorageFailed("full") if each.source.endswith("0.mkv") and n == 1 else None)
    results, progress = run_batch(spec.model_copy(update={"files_at_once": 1}), jobs)
    assert jobs.sources == ["0.mkv", "1.mkv", "2.mkv", "3.mkv", "4.mkv", "0.mkv"]
    assert [each.tries for each in results if each.source.endswith("0.mkv")] == [2]
    assert progress.exit_code == 0


def test_a_file_waits_for_who_holds_its_output(spec: BatchSpec) -> None:
    """A file waits within one try for another process that holds the output."""
    jobs = Jobs(lambda each, n: OutputInUse("held") if each.source.endswith("2.mkv") and n == 1 else None)
    results, progress = run_batch(spec, jobs)
    assert jobs.sources.count("2.mkv") == 2
    assert {each.tries for each in results} == {1}
    assert (progress.done, progress.exit_code) == (5, 0)


def test_a_database_that_is_deleted_meanwhile_loses_nothing(spec: BatchSpec) -> None:
    """If the database is deleted during a run, the next run still finds all files done."""

    def delete(each: TranscodeSpec, _n: int) -> None:
        if each.source.endswith("2.mkv"):
            for path in Path(spec.output).glob("codecfleet-batch.sqlite*"):
                path.unlink()

    _, progress = run_batch(spec, Jobs(delete))
    assert (progress.done, progress.exit_code) == (5, 0)
    again = Jobs()
    _, progress = run_batch(spec, again)
    assert (again.specs, progress.done, progress.exit_code) == ([], 5, 0)


def test_a_fleet_that_is_gone_ends_the_batch_and_fails_no_file(spec: BatchSpec) -> None:
    """If the fleet is gone, the batch ends without failing a file, and the next run does the remaining files."""
    jobs = Jobs(lambda each, _n: FleetUnavailable("no Ray") if each.source.endswith("2.mkv") else None)
    with pytest.raises(FleetUnavailable):
        run_batch(spec, jobs)
    rest = Jobs()
    results, progress = run_batch(spec, rest)
    assert all(each.error is None for each in results)
    assert (progress.done, progress.failed) == (5, 0)
    assert "2.mkv" in rest.sources


def test_when_everything_fails_the_rest_is_not_tried(films: Path, spec: BatchSpec) -> None:
    """Eight faults in a row that no file caused end the batch with the last fault."""
    for number in range(5, 40):
        (films / f"{number}.mkv").write_bytes(b"x")
    jobs = Jobs(lambda _each, _n: StorageFailed("full"))
    with pytest.raises(WorkError, match="8 files in a row failed"):
        run_batch(spec, jobs)
    assert len(jobs.specs) < 20


class ToldPool(LocalPool):
    """A fleet that remembers the demand reported for waiting files."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.told: list[tuple[str, LaterDemand | None]] = []

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Remember it."""
        assert not isinstance(demand, Demand)
        self.told.append((job, demand))


def test_a_batch_tells_what_waits_behind_its_files(spec: BatchSpec) -> None:
    """The demand of waiting files is reported once a file was planned, falls with each start, and ends with them."""
    pool = ToldPool(1)
    assert len(run_batch(spec, Jobs(), pool)[0]) == 5
    told = pool.told
    assert len({batch for batch, _ in told}) == 1
    assert {each.like for _, each in told if each} == {"job-1"}
    frames = [each.frames if each else 0 for _, each in told]
    assert frames[0] > 0
    assert frames == sorted(frames, reverse=True)
    assert told[-1][1] is None


def test_a_cancelled_batch_keeps_what_is_finished(spec: BatchSpec) -> None:
    """After a cancellation, jobs keep their finished segments and unfinished files wait."""
    two = spec.model_copy(update={"files_at_once": 2})
    jobs, batch = stop_batch(two, begun=2)
    assert [job.kept for job in jobs.jobs] == [True, True]  # and no more than two jobs had begun
    assert (batch.progress.waiting, batch.progress.running) == (5, ())
    with pytest.raises(Cancelled):
        results_of(batch)


def test_a_batch_that_was_taken_over_says_so_and_ends(spec: BatchSpec) -> None:
    """If another process takes the batch over, iterating over it raises that error instead of waiting forever."""

    async def take_over() -> None:
        with closing(sqlite3.connect(Path(spec.output) / "codecfleet-batch.sqlite")) as other, other:
            other.execute("INSERT INTO runs (began_s, owner, renewed_s) SELECT began_s, owner, renewed_s FROM runs")

    _, batch = stop_batch(spec, meanwhile=take_over)
    with pytest.raises(OutputInUse):
        results_of(batch)


def test_a_killed_trys_work_of_other_options_is_started_over(spec: BatchSpec) -> None:
    """A killed try's work with other options is started over; work of another job is left alone."""

    def fault(each: TranscodeSpec, _n: int) -> CodecfleetError | None:
        return None if each.restart else JournalRefused("unfinished work")

    stop_batch(spec.model_copy(update={"files_at_once": 2}), begun=2)
    _, progress = run_batch(BatchSpec(inputs=spec.inputs, output=spec.output, quality=30), Jobs(fault))
    assert (progress.done, progress.failures) == (2, (("JournalRefused", 3),))


def test_overrides_reach_their_file_alone(films: Path) -> None:
    """An option in the list applies only to that file; a quality there replaces the batch's bitrate."""
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
        ("output", "/x.mp4", "is absolute or a URL"),
        ("output", "s3://bucket/x.mp4", "is absolute or a URL"),
    ],
)
def test_a_list_that_makes_no_sense_begins_nothing(films: Path, column: str, value: str, said: str) -> None:
    """A list with an error starts nothing, and the error names the line."""
    (films / "list.csv").write_text(f"source,{column}\n{films}/0.mkv,{value}\n")
    jobs = Jobs()
    with pytest.raises(UsageError, match=said):
        run_batch(BatchSpec(inputs=films / "list.csv", output=films.parent / "out"), jobs)
    assert jobs.specs == []


@pytest.mark.parametrize("is_there", [False, True])
def test_a_refused_batch_leaves_nothing(films: Path, *, is_there: bool) -> None:
    """A refused batch leaves no database and no new folders, but keeps what was there."""
    out = films.parent / "new/deep/out"
    if is_there:
        out.mkdir(parents=True)
    before = sorted(films.parent.rglob("*"))
    for inputs, output in (((films, films / "missing.mkv"), out), ((films,), films)):
        with pytest.raises((UsageError, InputNotFound)):
            run_batch(BatchSpec(inputs=inputs, output=output), Jobs())
        assert sorted(films.parent.rglob("*")) == before
    run_batch(BatchSpec(inputs=films, output=out), Jobs())
    before = sorted(films.parent.rglob("*"))
    with pytest.raises(InputNotFound):
        run_batch(BatchSpec(inputs=films / "missing.mkv", output=out), Jobs())
    assert sorted(films.parent.rglob("*")) == before


def test_a_key_that_leads_upwards_is_refused_by_its_name(spec: BatchSpec) -> None:
    """A key that leads out of the output folder is refused by name; one that leads back to the same folder is not."""
    store = fsspec.filesystem("memory")
    store.pipe_file("/keys/./y.mkv", b"xyz")
    keys = BatchSpec(inputs="memory://keys/", output=spec.output)
    (result,), _ = run_batch(keys, Jobs())
    assert result.output == f"{spec.output}/y.mkv"
    store.pipe_file("/keys/a/../x.mkv", b"xyz")
    with pytest.raises(UsageError, match=r"memory://keys/a/\.\./x\.mkv has a part \.\. in its path"):
        run_batch(keys, Jobs())
    store.rm("/keys", recursive=True)


def test_a_name_that_is_not_utf_8_is_said_before_any_work(films: Path, spec: BatchSpec) -> None:
    """A name that is not UTF-8 is refused before any work; a mistake in a list is not the film's fault."""
    (films / "list.jsonl").write_text(f'{{"source": "{films}/0.mkv", "output": "\\ud800.mp4"}}')
    with pytest.raises(UsageError, match=r"list.jsonl:1: the name '\\ud800.mp4' contains half of a surrogate pair"):
        run_batch(BatchSpec(inputs=films / "list.jsonl", output=spec.output), Jobs())
    Path(os.fsdecode(bytes(films) + b"/\xff.mkv")).write_bytes(b"x")
    jobs = Jobs()
    with pytest.raises(UsageError, match="not UTF-8"):
        run_batch(spec, jobs)
    assert jobs.specs == []


def test_the_summary_names_ten_failed_files_and_counts_the_others(spec: BatchSpec, films: Path) -> None:
    """The summary names at most ten failed files, with reason and class, and counts the others."""
    for number in range(5, 13):
        (films / f"{number:02}.mkv").write_bytes(b"x")
    _, progress = run_batch(spec, Jobs(lambda each, _n: InputUnreadable(f"{Path(each.source).name} is broken")))
    lines = summary_lines(progress)
    named = [line for line in lines if line.endswith("is broken [InputUnreadable]")]
    assert (progress.failed, len(named), len(set(named))) == (13, 10, 10)
    assert "          and 3 more: --report FILE.html lists them all" in lines
