"""Each task of a job has an owner: none outlives its job, and a task's failure is always noticed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from codecfleet import BatchSpec, Fleet, StillsSpec, TranscodeSpec
from codecfleet.actors.device.work import Work
from codecfleet.cluster.fleet.run import RunProgress, WorkRun
from codecfleet.errors import Cancelled
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import LookedRun

ResultT = TypeVar("ResultT")
Begin = Callable[[Fleet, Path], Awaitable[object]]


class Busy(LocalPool):
    """A pool whose work never ends; ``asked`` is set at the first submission. With ``breaks``, progress fails."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__(2)
        self.asked = asyncio.Event()
        self._breaks = breaks

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Accept work, and never return a result."""
        del work
        self.asked.set()
        return LookedRun(lambda _: None, self._look)

    def _look(self) -> RunProgress:
        if self._breaks:
            raise ZeroDivisionError
        return RunProgress()


async def transcode(fleet: Fleet, film: Path) -> object:
    """Transcode a film."""
    return await (await fleet.transcode(TranscodeSpec(source=film, output=film.with_name("out.mp4"), preset=1)))


async def take_stills(fleet: Fleet, film: Path) -> object:
    """Take stills of a film."""
    return await fleet.stills(StillsSpec(source=film, output=film.with_name("stills"), count=2))


async def do_batch(fleet: Fleet, film: Path) -> object:
    """Run a batch on the pool alone."""
    spec = BatchSpec(inputs=film, output=film.with_name("batch"), preset=1)
    return [result async for result in fleet.batch(spec)]


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A tiny film."""
    return make_clip(tmp_path / "film.mkv", Clip(times=constant_times(12), keyframes=frozenset({0, 6})))


@pytest.mark.parametrize("begin", [transcode, take_stills, do_batch])
async def test_no_task_outlives_a_fleet_that_is_closed_over_running_work(begin: Begin, film: Path) -> None:
    """Closing the fleet cancels its jobs, stills and batches, and all their tasks."""
    pool = Busy()
    fleet = Fleet(pool=pool)
    await fleet.__aenter__()
    running = asyncio.create_task(begin(fleet, film))  # type: ignore[arg-type]
    await pool.asked.wait()
    await fleet.aclose()
    with pytest.raises(Cancelled):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not list(film.parent.glob(".*"))


@pytest.mark.parametrize("begin", [transcode, take_stills])
async def test_a_task_beside_the_work_that_dies_ends_the_job_with_its_name(begin: Begin, film: Path) -> None:
    """A watcher's failure ends the job: without its watcher, work that hangs would run for ever."""
    async with Fleet(pool=Busy(breaks=True)) as fleet:
        with pytest.raises(ZeroDivisionError) as raised:
            await begin(fleet, film)
    assert raised.value.__notes__[0] in {"in the task 'watch'", "in the task 'progress'"}
    assert asyncio.all_tasks() == {asyncio.current_task()}
