"""Files whose workers were killed: an orphan may still hold their outputs, or may have published them."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from codecfleet import BatchResult, BatchSpec, Fleet, TranscodeSpec
from codecfleet.actors.device.work import Work
from codecfleet.errors import OutputInUse, WorkerLost
from codecfleet.jobs.batch.batch import Batch
from codecfleet.jobs.batch.file_run import SubmittedJob
from codecfleet.jobs.batch.whole_file import WholeFile
from codecfleet.jobs.join.publish import work_folder
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

_ORPHAN = """
import sys
from pathlib import Path
from codecfleet.jobs.join.owner import FolderOwner
FolderOwner(Path(sys.argv[1]), sys.argv[2]).acquire()
if len(sys.argv) > 3:
    Path(sys.argv[2]).hardlink_to(sys.argv[3])
print("holds", flush=True)
sys.stdin.read()
"""
"""A killed worker's process that still holds the output's work folder, and may have published the output."""


class OrphanedPool(LocalPool):
    """Threads that pass for this machine's workers.

    For a whole file, an orphan remains that holds its output. ``published`` is a file to which the orphan has given the
    output's name.
    """

    def __init__(self, published: Path | None) -> None:
        super().__init__(1, is_here=True)
        self.published = published
        self.orphans: list[subprocess.Popen[str]] = []

    async def result_of(self, work: Work[object], look: Look) -> object:
        """Lose the worker of whole files."""
        if not isinstance(work, WholeFile):
            return await super().result_of(work, look)
        self.orphans.append(await asyncio.to_thread(self._orphan, work.spec.output))
        raise WorkerLost("its worker died", "Start again.")

    def _orphan(self, output: str) -> "subprocess.Popen[str]":
        arguments = [str(work_folder(output)), output, *([] if self.published is None else [str(self.published)])]
        orphan = subprocess.Popen(
            [sys.executable, "-P", "-c", _ORPHAN, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert orphan.stdout is not None
        assert orphan.stdout.readline() == "holds\n"
        return orphan

    def end_orphans(self) -> None:
        """Have the kernel clean up after the killed orphans."""
        for orphan in self.orphans:
            orphan.kill()
            orphan.communicate()
        self.orphans.clear()


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A tiny film, alone in a folder."""
    (tmp_path / "in").mkdir()
    return make_clip(tmp_path / "in/0.mkv", Clip(times=constant_times(6), keyframes=frozenset({0, 4})))


def spec_of(film: Path, output: str = "out") -> BatchSpec:
    """Return the batch of the film's folder."""
    return BatchSpec(inputs=film.parent, output=film.parents[1] / output, preset=1).resolved()


def run_batch(spec: BatchSpec, pool: LocalPool, before: Callable[[int], None] = lambda _n: None) -> BatchResult:
    """Run a batch of one file and return how that ended; ``before`` is called before its n-th job."""

    async def main() -> BatchResult:
        async with Fleet(pool=pool) as fleet:
            jobs = 0

            async def submit(each: TranscodeSpec) -> SubmittedJob:
                nonlocal jobs
                jobs += 1
                await asyncio.to_thread(before, jobs)
                return await fleet.transcode(each)

            (result,) = [result async for result in Batch(spec, submit, pool)]
            return result

    return asyncio.run(main())


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Return the files that a batch left in its folder, by name, without its database."""
    files = {path.name: path for path in folder.iterdir() if not path.name.startswith("codecfleet-batch")}
    return {name: path.read_bytes() if path.is_file() else b"a folder" for name, path in files.items()}


@pytest.mark.parametrize("publishes", [False, True])
def test_a_file_waits_for_the_orphan_that_holds_its_output(film: Path, *, publishes: bool) -> None:
    """The file is done as soon as the killed process is gone, even one that had published it; nothing else is left."""
    assert run_batch(spec_of(film, "alone"), LocalPool(1)).error is None
    alone = film.parents[1] / "alone"
    pool = OrphanedPool(shutil.copy(alone / "0.mkv", film.parents[1] / "published") if publishes else None)

    def before(job: int) -> None:
        if job == (1 if publishes else 2):  # published: the first job is refused because of its name alone
            pool.end_orphans()

    result = run_batch(spec_of(film), pool, before)
    assert (result.error, result.tries) == (None, 1)
    assert bytes_of(film.parents[1] / "out") == bytes_of(alone)


def failed_in_use(spec: BatchSpec) -> None:
    """Record in a batch's database, as earlier versions did, that another process held its file."""
    with sqlite3.connect(Path(spec.output) / "codecfleet-batch.sqlite") as database:
        database.execute(
            "UPDATE entries SET state = 'failed', error = ?, exit_code = 4, published = NULL, output_bytes = NULL",
            (OutputInUse.__name__,),
        )
    database.close()


@pytest.mark.parametrize("left", ["nothing", "work", "output", "work and output"])
def test_the_same_command_heals_what_failed_because_it_was_in_use(film: Path, left: str) -> None:
    """The same command succeeds whatever the killed worker left: its work folder, its output, both or neither."""
    spec = spec_of(film)
    assert run_batch(spec, LocalPool(1)).error is None
    whole = bytes_of(Path(spec.output))
    failed_in_use(spec)
    if "output" not in left:
        (Path(spec.output) / "0.mkv").unlink()
    if "work" in left:
        folder = work_folder(str(Path(spec.output) / "0.mkv"))
        folder.mkdir()
        (folder / "owner").write_bytes(b"{}")
        (folder / "output.mkv").write_bytes(b"half")
    assert run_batch(spec, LocalPool(1)).error is None
    assert bytes_of(Path(spec.output)) == whole
