"""Small files of a batch: each is encoded whole by one worker, with the bytes of a separate job, or by such a job."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from codecfleet import BatchResult, BatchSpec, Fleet
from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.actors.worker.lone_runs import LONE_MAX
from codecfleet.errors import Cancelled, InputUnreadable, WorkerLost, WorkError
from codecfleet.jobs.batch.figures import read_figures
from codecfleet.jobs.batch.small_files import MANY, MOST_BYTES, goes_alone, may_be_whole
from codecfleet.jobs.batch.store.schema import BatchEntry, EntryAction
from codecfleet.jobs.batch.whole_file import WholeFile
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

ResultT = TypeVar("ResultT")


class OwnMachine(LocalPool):
    """Threads that pass for this machine's workers, and count their work.

    With ``publishes`` a whole file gets its output; with ``loses`` its worker then dies. A ``stranger`` is the content
    that another program meanwhile writes under the outputs' names.
    """

    def __init__(self, *, publishes: bool = True, loses: bool = False, stranger: bytes = b"") -> None:
        super().__init__(2, is_here=True)
        self.given: Counter[str] = Counter()
        self.specs: list[TranscodeSpec] = []
        self.alone = 0
        self._publishes, self._loses, self._stranger = publishes, loses, stranger

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Count the work, and treat whole files as configured."""
        self.given[type(work).__name__] += 1
        is_whole = isinstance(work, WholeFile)
        if isinstance(work, WholeFile):
            self.specs.append(work.spec)
            self.alone += work.constraints.alone
            if self._stranger:
                await asyncio.to_thread(Path(work.spec.output).write_bytes, self._stranger)
        result = await super().result_of(work, look) if self._publishes or not is_whole else None
        if result is None or (is_whole and self._loses):
            raise WorkerLost("its worker died", "Start again.")
        return result


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """A folder of three tiny films."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        make_clip(folder / f"{number}.mkv", Clip(times=constant_times(6 + number), keyframes=frozenset({0, 4})))
    return folder


def run_batch(films: Path, output: str, pool: LocalPool, **options: object) -> list[BatchResult]:
    """Run a batch of these files to its end."""

    async def main() -> list[BatchResult]:
        spec = BatchSpec(inputs=films, output=films.parent / output, preset=1, **options)
        async with Fleet(pool=pool) as fleet:
            return [result async for result in fleet.batch(spec)]

    return asyncio.run(main())


def outputs(folder: Path) -> dict[str, bytes]:
    """Return a folder's files by name, without the database."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("codecfleet-batch")}


def a_work(films: Path, **options: object) -> WholeFile:
    """Return the work of one film."""
    spec = TranscodeSpec(source=films / "0.mkv", output=films.parent / "0.mp4", preset=1, **options)
    return WholeFile(job="job", label="file 1", spec=spec)


def test_small_files_go_whole_and_have_the_bytes_of_jobs_of_their_own(films: Path) -> None:
    """On this machine each file is one piece of work; elsewhere it is a job. Both give the same outputs."""
    here, elsewhere = OwnMachine(), LocalPool(2)
    results = run_batch(films, "whole", here)
    run_batch(films, "jobs", elsewhere)
    assert here.given == {"WholeFile": 3}
    assert here.alone == 0, "only many files have processes of their own"
    assert goes_alone(0, MANY)
    assert not goes_alone(0, MANY - 1) | goes_alone(LONE_MAX, 1000)
    assert [result.error for result in results] == [None] * 3
    assert outputs(films.parent / "whole") == outputs(films.parent / "jobs")
    assert len(outputs(films.parent / "whole")) == 3


def test_a_lists_relative_paths_reach_the_worker_whole(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may run in another folder than the batch."""
    monkeypatch.chdir(films.parent)
    (films.parent / "list.csv").write_text("source,work\nin/0.mkv,kept\n", encoding="utf-8")
    pool = OwnMachine()
    run_batch(Path("list.csv"), "out", pool)
    assert [(each.source, each.work) for each in pool.specs] == [
        (str(films / "0.mkv"), str(films.parent / "kept")),
    ]


def test_what_is_more_than_one_segment_is_a_job_of_its_own(films: Path) -> None:
    """A worker refuses several segments in one piece of work, and leaves nothing of its attempt."""
    pool = OwnMachine()
    results = run_batch(films, "out", pool, segment_s="0.1")
    assert pool.given["WholeFile"] == 3
    assert pool.given["EncodeSegment"] >= 6
    assert [result.error for result in results] == [None] * 3
    assert len(outputs(films.parent / "out")) == 3


@pytest.mark.parametrize("publishes", [False, True])
def test_when_a_worker_dies_with_a_file_that_is_done_again(films: Path, *, publishes: bool) -> None:
    """A separate job encodes the file of a dead worker, even if the worker had just published the output."""
    results = run_batch(films, "out", OwnMachine(publishes=publishes, loses=True))
    run_batch(films, "jobs", LocalPool(2))
    assert [result.error for result in results] == [None] * 3
    assert outputs(films.parent / "out") == outputs(films.parent / "jobs")


def test_a_strangers_file_is_not_taken_for_a_lost_workers(films: Path) -> None:
    """Another program wrote the outputs' names before the workers died: its files stay, and the batch's files fail."""
    results = run_batch(films, "out", OwnMachine(publishes=False, loses=True, stranger=b"precious"))
    assert [result.error_class for result in results] == ["OutputExists"] * 3
    assert set(outputs(films.parent / "out").values()) == {b"precious"}
    assert len(outputs(films.parent / "out")) == 3


def test_a_files_own_fault_is_found_once(films: Path) -> None:
    """A file that a worker cannot read is neither read again by a job nor tried a second time."""
    (films / "broken.mkv").write_bytes(b"\x1aE\xdf\xa3 nothing of use")
    pool = OwnMachine()
    results = {Path(result.source).name: result for result in run_batch(films, "out", pool)}
    assert isinstance(results["broken.mkv"].error, InputUnreadable)
    assert results["broken.mkv"].tries == 1
    assert pool.given == {"WholeFile": 4}
    assert "broken.mkv" not in outputs(films.parent / "out")


def test_only_a_smaller_result_of_a_small_file_is_published(films: Path) -> None:
    """``if_smaller`` copies the input without encoding it a second time."""
    pool = OwnMachine()
    results = run_batch(films, "out", pool, if_smaller=True, quality=1)
    assert pool.given == {"WholeFile": 3}
    assert {result.result.value for result in results if result.result is not None} == {"kept"}


def test_the_database_has_the_segment_of_a_small_file(films: Path) -> None:
    """The batch's page shows when each file was encoded."""
    run_batch(films, "out", OwnMachine())
    figures = read_figures(films.parent / "out/codecfleet-batch.sqlite")
    assert figures.frames == 6 + 7 + 8
    assert sum(len(lane.bars) for lane in figures.lanes) == 3


def test_a_cancelled_file_leaves_nothing(films: Path) -> None:
    """The work stops at once, and neither an output nor a work folder remains."""
    context = WorkContext()
    context.cancel()
    before = sorted(films.parent.iterdir())
    with pytest.raises(Cancelled):
        a_work(films).run(context)
    assert sorted(films.parent.iterdir()) == before


def test_too_large_pictures_are_not_done_by_one_slot(tmp_path: Path) -> None:
    """A slot has memory for usual pictures; for larger ones, a job asks for more."""
    source = make_clip(tmp_path / "large.mkv", Clip(times=constant_times(1), width=2048, height=1152))
    spec = TranscodeSpec(source=source, output=tmp_path / "out.mp4", preset=1)
    with pytest.raises(WorkError, match="not small"):
        WholeFile(job="job", label="file 1", spec=spec).run(WorkContext())
    assert not (tmp_path / "out.mp4").exists()


def _entries() -> Iterator[tuple[dict[str, object], dict[str, object], int | None, bool]]:
    yield {}, {}, 1000, True
    yield {}, {}, MOST_BYTES + 1, False
    yield {}, {}, None, False
    yield {"tries": 1}, {}, 1000, False
    yield {"was_in_flight": True}, {}, 1000, False
    yield {"action": EntryAction.COPY}, {}, 1000, False
    yield {}, {"source": "s3://bucket/a.mkv"}, 1000, False
    yield {}, {"output": "s3://bucket/a.mp4"}, 1000, False
    yield {}, {"encoder": "nvenc"}, 1000, False
    yield {}, {"device": "gpu"}, 1000, False
    yield {}, {"priority": 3}, 1000, False
    yield {}, {"deadline_s": 31}, 1000, False
    yield {}, {"deadline_factor": 2}, 1000, False
    yield {}, {"keep_evidence": "/evidence"}, 1000, False


@pytest.mark.parametrize(("entry", "spec", "size_bytes", "expected"), tuple(_entries()))
def test_which_files_may_go_whole(
    entry: dict[str, object], spec: dict[str, object], size_bytes: int | None, *, expected: bool
) -> None:
    """Only new, local, small files with the batch's usual options may be encoded whole."""
    fields: dict[str, object] = {
        "entry": 1,
        "source": "/in/a.mkv",
        "output": "a.mp4",
        "action": EntryAction.TRANSCODE,
        "overrides": "{}",
        "tries": 0,
        "was_in_flight": False,
        "content": None,
        "source_bytes": size_bytes,
        "published": None,
        "output_bytes": None,
    }
    job = TranscodeSpec(**{"source": "/in/a.mkv", "output": "/out/a.mp4", **spec})
    batch = BatchSpec(inputs="/in", output="/out")
    assert may_be_whole(BatchEntry(**{**fields, **entry}), job, batch, size_bytes) is expected
