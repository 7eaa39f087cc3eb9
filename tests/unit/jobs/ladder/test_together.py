"""Renditions that share their decoding: which work runs as one, which runs alone, and each rendition's result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import pytest

from codecfleet.actors.device.work import Constraints, Work
from codecfleet.actors.segment.encoding import EncodedSegment, EncodeSegment
from codecfleet.actors.segment.together import EncodeTogether
from codecfleet.actors.task_owner import TaskOwner
from codecfleet.cluster.fleet.pool import Asked
from codecfleet.cluster.placement.model import Demand
from codecfleet.errors import EncoderFailed, WorkerLost
from codecfleet.jobs.ladder.together import PATIENCE_S, DecodeOnce, demand_of_all
from codecfleet.jobs.plan.placing import demand_of
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fake_clock import FakeClock, all_quiet
from codecfleet.testing.fleet.local_pool import Look
from codecfleet.testing.works import Count

ResultT = TypeVar("ResultT")
JOBS = ("high", "middle", "low")


class SeenPool(LocalPool):
    """A pool that records the work that it runs and its jobs' demands."""

    def __init__(self) -> None:
        super().__init__(4)
        self.works: list[Work[object]] = []
        self.demands: list[tuple[str, Asked | None]] = []

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Record the demand."""
        self.demands.append((job, demand))

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Record the work, and run it."""
        self.works.append(work)
        return await super().result_of(work, look)


@dataclass
class Scene:
    """A shared pool, the pool below it, and the plans of three renditions."""

    once: DecodeOnce
    below: SeenPool
    clock: FakeClock
    plans: dict[str, Plan]

    def work(self, job: str, segment: int = 0) -> EncodeSegment:
        """Return the work of one segment of a rendition."""
        return self.plans[job].work(job, segment, segment, 0)

    async def wait(self) -> None:
        """Let the time pass that work waits for other renditions."""
        await all_quiet()
        await self.clock.advance(PATIENCE_S)

    @property
    def sizes(self) -> list[int]:
        """How many renditions each work was for, in the order in which the works ran."""
        return [len(each.segments) if isinstance(each, EncodeTogether) else 1 for each in self.below.works]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """The plans of three renditions of two segments."""
    folder = tmp_path_factory.mktemp("ladder")
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(50), keyframes=frozenset({0, 25})))
    specs = {
        job: TranscodeSpec(
            source=film,
            output=folder / f"{job}.mp4",
            scale=(None, lines),
            segment_s=Fraction(1),
            keyframe_interval_s=Fraction(1),
            preset=1,
        )
        for job, lines in zip(JOBS, (48, 32, 16), strict=True)
    }
    return {job: plan_transcode(spec) for job, spec in specs.items()}


@asynccontextmanager
async def scene(plans: dict[str, Plan], **faults: object) -> AsyncIterator[Scene]:
    """Open a shared pool; ``faults`` are those of a ``FaultyPool`` between the two pools."""
    clock = FakeClock()
    async with SeenPool() as below, TaskOwner() as owner:
        pool = FaultyPool(below, **faults) if faults else below  # type: ignore[arg-type]
        once = DecodeOnce(pool, "ladder", JOBS, owner, sleep=clock.sleep)
        yield Scene(once, below, clock, plans)


def same(one: EncodedSegment, other: EncodedSegment) -> bool:
    """Return whether two results have the same bytes, times and counts."""
    facts = (one.tally.frames, one.tally.seam_before, one.tally.seam_after, one.extradata)
    return (
        np.array_equal(one.payload, other.payload)
        and np.array_equal(one.pts_ticks, other.pts_ticks)
        and facts == (other.tally.frames, other.tally.seam_before, other.tally.seam_after, other.extradata)
    )


async def test_the_same_stretch_runs_as_one(plans: dict[str, Plan]) -> None:
    """All renditions of a segment are one work of the ladder; each gets the result that it would get alone."""
    async with scene(plans) as found:
        runs = [found.once.submit(found.work(job)) for job in JOBS]
        results = [await run for run in runs]
        assert (found.sizes, found.once.decoded) == ([3], 1)
        assert {work.job for work in found.below.works} == {"ladder"}
        assert len({run.origin for run in runs}) == 1
        alone = [await found.below.submit(found.work(job)) for job in JOBS]
    assert all(same(one, other) for one, other in zip(results, alone, strict=True))
    assert len({len(result.payload) for result in results}) == len(JOBS)


async def test_different_stretches_run_apart(plans: dict[str, Plan]) -> None:
    """A segment waits only for the same segment of the other renditions."""
    async with scene(plans) as found:
        runs = [found.once.submit(found.work(job, segment)) for segment in (0, 1) for job in JOBS]
        assert [(await run).segment for run in runs] == [0, 0, 0, 1, 1, 1]
        assert found.sizes == [3, 3]


async def test_work_that_no_other_rendition_wants_runs_after_a_while(plans: dict[str, Plan]) -> None:
    """A rendition that continues from its journal does not wait for segments that the others have already."""
    async with scene(plans) as found:
        early, late = (found.once.submit(found.work(job)) for job in JOBS[:2])
        await all_quiet()
        assert (found.sizes, early.progress.worker) == ([], "")
        await found.wait()
        assert [(await run).frames_out for run in (early, late)] == [25, 25]
        last = found.once.submit(found.work(JOBS[2]))
        await found.wait()
        assert (await last).frames_out == 25
        assert found.sizes == [2, 1]


@pytest.mark.parametrize("how", ["leaves", "has no demand"])
async def test_a_rendition_that_has_ended_is_not_awaited(how: str, plans: dict[str, Plan]) -> None:
    """The other renditions begin at once, even if they were waiting for it."""
    async with scene(plans) as found:
        found.once.set_demand(JOBS[2], demand_of(plans[JOBS[2]], JOBS[2]))
        runs = [found.once.submit(found.work(job)) for job in JOBS[:2]]
        if how == "leaves":
            found.once.leave(JOBS[2])
        else:
            found.once.set_demand(JOBS[2], None)
        runs += [found.once.submit(found.work(job, 1)) for job in JOBS[:2]]
        assert [(await run).frames_out for run in runs] == [25] * 4
        assert found.sizes == [2, 2]


async def test_a_failed_group_runs_apart(plans: dict[str, Plan]) -> None:
    """Each rendition gets the error; their next tries run alone, so that one bad rendition fails by itself."""
    label = " and ".join(f"segment 0 of {job}" for job in JOBS)
    async with scene(plans, errors={(label, 1): EncoderFailed("one cannot be encoded")}) as found:
        for run in [found.once.submit(found.work(job)) for job in JOBS]:
            with pytest.raises(EncoderFailed, match="one cannot be encoded"):
                await run
        again = [found.once.submit(found.work(job)) for job in JOBS]
        assert [(await run).frames_out for run in again] == [25] * 3
        assert found.sizes == [1, 1, 1]
        together = [found.once.submit(found.work(job, 1)) for job in JOBS]
        assert [(await run).frames_out for run in together] == [25] * 3
        assert found.sizes[3:] == [3]


async def test_a_lost_worker_is_each_renditions_loss(plans: dict[str, Plan]) -> None:
    """The error is passed on as it is, so that each job repeats its segment."""
    label = " and ".join(f"segment 1 of {job}" for job in JOBS)
    async with scene(plans, kills={(label, 1)}) as found:
        for run in [found.once.submit(found.work(job, 1)) for job in JOBS]:
            with pytest.raises(WorkerLost):
                await run


async def test_work_is_cancelled_once_no_rendition_wants_it(plans: dict[str, Plan]) -> None:
    """One rendition that withdraws its run takes nothing from the others."""
    async with scene(plans) as found:
        first, *others = [found.once.submit(found.work(job)) for job in JOBS]
        first.cancel()
        assert [(await run).frames_out for run in others] == [25, 25]
    label = " and ".join(f"segment 0 of {job}" for job in JOBS)
    async with scene(plans, hangs={(label, 1)}) as found:
        runs = [found.once.submit(found.work(job)) for job in JOBS]
        await all_quiet()
        for run in runs:
            run.cancel()
        await all_quiet()
        assert found.sizes == []
    async with scene(plans) as found:
        for run in [found.once.submit(found.work(job)) for job in JOBS[:2]]:
            run.cancel()
        await found.wait()
        assert (found.sizes, found.once.decoded) == ([], 0)


async def test_stations_to_avoid_do_not_keep_renditions_apart(plans: dict[str, Plan]) -> None:
    """Common work avoids every station that one of its renditions avoids; work that must run alone stays apart."""
    async with scene(plans) as found:
        works = [replace(found.work(job), constraints=Constraints(avoid=frozenset({f"slow-{job}"}))) for job in JOBS]
        for run in [found.once.submit(work) for work in works]:
            await run
        (work,) = found.below.works
        assert work.constraints.avoid == {f"slow-{job}" for job in JOBS}
        lone = replace(found.work(JOBS[0], 1), constraints=Constraints(alone=True))
        runs = [found.once.submit(lone), *(found.once.submit(found.work(job, 1)) for job in JOBS[1:])]
        await found.wait()
        assert [(await run).frames_out for run in runs] == [25] * 3
        assert found.sizes == [3, 1, 2]


async def test_other_work_passes(plans: dict[str, Plan]) -> None:
    """Sound and other jobs' work go to the pool unchanged."""
    async with scene(plans) as found:
        assert await found.once.submit(Count(job=JOBS[0], label="sound", frames=3)) == 3
        assert (await found.once.submit(replace(found.work(JOBS[0]), job="other"))).frames_out == 25
        assert [work.job for work in found.below.works] == [JOBS[0], "other"]


async def test_the_ladder_has_one_demand(plans: dict[str, Plan]) -> None:
    """It asks for every rendition of each segment, as long as one rendition has segments left."""
    async with scene(plans) as found:
        demands = {job: demand_of(plan, job) for job, plan in plans.items()}
        for job, demand in demands.items():
            found.once.set_demand(job, demand)
            found.once.set_demand(job, demand)
        asked = found.below.demands
        assert [job for job, _ in asked] == ["ladder"] * 3
        last = asked[-1][1]
        assert isinstance(last, Demand)
        assert last.renditions == tuple(demand.renditions[0] for demand in demands.values())
        for job in JOBS:
            found.once.set_demand(job, None)
        assert asked[-1] == ("ladder", None)
        assert found.once.state.of(JOBS[0]) == found.below.state.of("ladder")


def test_the_rendition_with_the_most_work_gives_the_segments(plans: dict[str, Plan]) -> None:
    """A rendition that continues from its journal has fewer segments left."""
    demands = [demand_of(plan, job) for job, plan in plans.items()]
    whole = demand_of_all("ladder", [replace(demands[0], segments=(25,)), *demands[1:]])
    assert whole is not None
    assert (whole.segments, whole.job, len(whole.renditions)) == ((25, 25), "ladder", 3)
    assert demand_of_all("ladder", []) is None
