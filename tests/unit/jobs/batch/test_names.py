"""Files under the names that a batch uses: the batch replaces its own files, and never the files of others."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from codecfleet.errors import InputUnreadable, NotSmaller, StorageFailed, UsageError
from codecfleet.jobs.batch.store.database import BatchDatabase
from codecfleet.jobs.batch.store.schema import Change, FileEnded, FileResult
from codecfleet.jobs.request.spec import BatchSpec

from .played_jobs import Jobs, run_batch, stop_batch


@pytest.mark.parametrize(("later", "left", "failures"), [(b"a user's", b"a user's", 1), (None, b"x", 0)])
def test_after_a_failed_try_only_what_a_stopped_one_left_is_replaced(
    films: Path, later: bytes | None, left: bytes, failures: int
) -> None:
    """A file that took the output's name after a failed try belongs to a user, and is left alone."""
    one, out = films / "0.mkv", films.parent / "out"
    alone = BatchSpec(inputs=one, output=out, output_template="{stem}.{ext}", retry_failed=True)
    output = out / "0.mkv"
    stop_batch(alone)
    output.write_bytes(b"published before it was stopped")
    run_batch(alone, Jobs(lambda _spec, _n: InputUnreadable("broken")))
    if later is not None:
        output.write_bytes(later)
    _, progress = run_batch(alone, Jobs())
    assert progress.failures == (("OutputExists", 1),) * failures
    assert output.read_bytes() == left


def _full_at_an_end(write: Callable[[BatchDatabase, Iterable[Change]], None]) -> Callable[..., None]:
    """Return a write function for a disk that is full just when a file has ended."""

    def written(database: BatchDatabase, changes: Iterable[Change]) -> None:
        if any(isinstance(each, FileEnded) for each in changes):
            raise StorageFailed("full")
        write(database, changes)

    return written


def test_a_copy_that_a_killed_try_has_left_is_the_batchs_own_after_a_failed_one(
    films: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that a killed try has left is replaced when the failed try is repeated."""
    (films / "5.avi").write_bytes(b"old")
    kept = BatchSpec(inputs=films / "5.avi", output=films.parent / "out", if_smaller=True, output_template="{stem}.mp4")
    asked = kept.model_copy(update={"retry_failed": True})
    with monkeypatch.context() as full:
        full.setattr(BatchDatabase, "write", _full_at_an_end(BatchDatabase.write))
        with pytest.raises(StorageFailed):
            run_batch(asked, Jobs(lambda _spec, _n: NotSmaller("larger")))
    assert (films.parent / "out/5.avi").read_bytes() == b"old"
    run_batch(asked, Jobs(lambda _spec, _n: InputUnreadable("broken")))
    results, _ = run_batch(asked, Jobs(lambda _spec, _n: NotSmaller("larger")))
    assert [(each.result, each.error) for each in results] == [(FileResult.KEPT, None)]


def test_a_stopped_try_does_not_make_a_users_file_its_copy(films: Path) -> None:
    """A file with the copy's name is left alone unless a try has begun to copy."""
    (films / "5.avi").write_bytes(b"old")
    asked = BatchSpec(
        inputs=films / "5.avi", output=films.parent / "out", if_smaller=True, output_template="{stem}.mp4"
    )
    (films.parent / "out").mkdir()
    (films.parent / "out/5.avi").write_bytes(b"a user's")
    stop_batch(asked)
    _, progress = run_batch(asked, Jobs(lambda _spec, _n: NotSmaller("larger")))
    assert progress.failures == (("OutputExists", 1),)
    assert (films.parent / "out/5.avi").read_bytes() == b"a user's"


def test_what_is_not_smaller_is_copied(spec: BatchSpec, films: Path) -> None:
    """An input whose result is not smaller is copied under the output's name with the input's extension."""
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
    """An input that already has its copy's name stays in place, counts as done, and is compared by the next run."""
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
    """A mirror of an earlier batch's folder does not replace the batch's database."""
    (films / "codecfleet-batch.sqlite").write_bytes(b"old")
    asked = BatchSpec(inputs=films, output=films.parent / "out", mirror=True, overwrite=True)
    with pytest.raises(UsageError, match="own database"):
        run_batch(asked, Jobs())


def test_a_mirror_holds_what_is_not_video_too(spec: BatchSpec, films: Path) -> None:
    """Files that are not video are counted, and with ``mirror`` copied under their own names."""
    (films / "sub").mkdir()
    (films / "sub/0.srt").write_bytes(b"text")
    _, progress = run_batch(spec, Jobs())
    assert (progress.files, progress.left_out) == (5, 1)
    results, progress = run_batch(spec.model_copy(update={"mirror": True}), Jobs())
    assert [(each.result, each.report) for each in results] == [(FileResult.COPIED, None)]
    assert (films.parent / "out/sub/0.srt").read_bytes() == b"text"
    assert (progress.done, progress.left_out) == (6, 0)


def test_a_stranger_under_an_outputs_name_is_left_alone(spec: BatchSpec, films: Path) -> None:
    """If another user's file has the output's name, the file fails without starting a job."""
    (films.parent / "out").mkdir()
    (films.parent / "out/1.mkv").write_bytes(b"mine")
    jobs = Jobs()
    results, progress = run_batch(spec, jobs)
    assert [each.error_class for each in results if each.error is not None] == ["OutputExists"]
    assert (films.parent / "out/1.mkv").read_bytes() == b"mine"
    assert ("1.mkv" in jobs.sources, progress.exit_code) == (False, 4)
