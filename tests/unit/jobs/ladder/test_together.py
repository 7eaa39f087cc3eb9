"""Renditions that share their decoding: which work runs as one, which runs alone, and each rendition's result."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from codecfleet.actors.device.work import Constraints, Work, WorkContext
from codecfleet.actors.segment.encoding import EncodedSegment, EncodeSegment
from codecfleet.actors.segment.together import EncodeTogether
from codecfleet.actors.task_owner import TaskOwner
from codecfleet.cluster.fleet.pool import Asked, JobState
from codecfleet.cluster.fleet.run import ResultOrigin, WorkRun
from codecfleet.cluster.placement.model import Demand, EncoderChoice, EncoderKind
from codecfleet.errors import (
    CodecfleetError,
    DeadlineMissed,
    EncoderFailed,
    InputUnreadable,
    NodeEnded,
    UsageError,
    WorkerLost,
    WorkerOutOfMemory,
)
from codecfleet.jobs.ladder.together import DecodeOnce
from codecfleet.jobs.plan.placing import demand_of
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fake_clock import all_quiet
from codecfleet.testing.fleet.local_pool import HERE, Look
from codecfleet.testing.works import Count

ResultT = TypeVar("ResultT")
JOBS = ("high", "middle", "low")
ADA = EncoderKind("nvenc", "ada", "580")


class SeenPool(LocalPool):
    """A pool that records the work that it runs and its jobs' demands."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.works: list[Work[object]] = []
        self.demands: list[tuple[str, Asked | None]] = []

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Record the demand."""
        self.demands.append((job, demand))

    def give(self, slots: int) -> None:
        """Change the slots of each job."""
        before = self._state
        self._state = replace(before, others=JobState(slots=slots, cores=slots), changed=asyncio.Event())
        before.changed.set()

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Record the work, and run it."""
        self.works.append(work)
        return await super().result_of(work, look)


class HandPool(SeenPool):
    """A pool whose work ends when the test says so; no thread holds a result."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._given: list[tuple[Work[Any], WorkRun[Any]]] = []

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Keep the work."""
        run = WorkRun[ResultT](lambda _: None)
        self._given.append((work, run))
        return run

    def end_last(self) -> None:
        """Run the last work, and end its run."""
        work, run = self._given.pop()
        run.end(work.run(WorkContext()), ResultOrigin(HERE, work.file))


@dataclass
class Scene:
    """A shared pool, the pool below it, and the plans of three renditions."""

    once: DecodeOnce
    below: SeenPool
    plans: dict[str, Plan]

    def work(self, job: str, segment: int = 0) -> EncodeSegment:
        """Return the work of one segment of a rendition."""
        return self.plans[job].work(job, segment, segment, 0)

    def asks(self, job: str, left: int) -> None:
        """Let a rendition say how many segments it has left."""
        demand = demand_of(self.plans[job], job)
        self.once.set_demand(job, replace(demand, segments=(25,) * left))

    @property
    def sizes(self) -> list[int]:
        """How many renditions each work was for, in the order in which the works ran."""
        return [len(each.segments) if isinstance(each, EncodeTogether) else 1 for each in self.below.works]


def planned(folder: Path, segments: int) -> dict[str, Plan]:
    """Return the plans of three renditions of a film with this many segments."""
    keyframes = frozenset(range(0, 25 * segments, 25))
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(25 * segments), keyframes=keyframes))
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


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """The plans of three renditions of two segments."""
    return planned(tmp_path_factory.mktemp("ladder"), 2)


@pytest.fixture(scope="module")
def long_plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Plan]:
    """The plans of three renditions of six segments."""
    return planned(tmp_path_factory.mktemp("long"), 6)


@asynccontextmanager
async def scene(plans: dict[str, Plan], slots: int = 4, **faults: object) -> AsyncIterator[Scene]:
    """Open a shared pool; ``faults`` are those of a ``FaultyPool`` between the two pools."""
    async with SeenPool(slots) as below, TaskOwner() as owner:
        pool = FaultyPool(below, **faults) if faults else below  # type: ignore[arg-type]
        yield Scene(DecodeOnce(pool, "ladder", JOBS, owner), below, plans)


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


async def test_a_rendition_that_goes_on_elsewhere_is_not_awaited(plans: dict[str, Plan]) -> None:
    """A rendition that continues from its journal does not wait for segments that the others have, nor they for it."""
    async with scene(plans, 2) as found:
        for job, left in zip(JOBS, (2, 2, 1), strict=True):
            found.asks(job, left)
        early, late = (found.once.submit(found.work(job)) for job in JOBS[:2])
        await all_quiet()
        assert (found.sizes, early.progress.worker) == ([], "")  # the last rendition may still want segment 0
        runs = [found.once.submit(found.work(JOBS[2], 1)), early, late]
        await all_quiet()
        assert found.sizes == [2]  # segment 1 waits for the first two, which may have more work
        runs += [found.once.submit(found.work(job, 1)) for job in JOBS[:2]]
        assert [(await run).frames_out for run in runs] == [25] * 5
        assert found.sizes == [2, 3]


@pytest.mark.parametrize("slots", [1, 2])
async def test_a_late_rendition_shares_the_next_segment(slots: int, long_plans: dict[str, Plan]) -> None:
    """One slow write costs no decode: the slot waits for the rendition, however long that takes."""
    segments, is_late, is_written = 6, asyncio.Event(), asyncio.Event()

    async def one(found: Scene, job: str, segment: int, turn: asyncio.Semaphore) -> None:
        async with turn:
            await found.once.submit(found.work(job, segment))
            if (job, segment) == ("low", 0):
                is_late.set()
                await is_written.wait()

    async def rendition(found: Scene, job: str) -> None:
        turn = asyncio.Semaphore(slots)
        await asyncio.gather(*(one(found, job, segment, turn) for segment in range(segments)))
        found.once.leave(job)

    async with scene(long_plans, slots) as found:
        works = [asyncio.create_task(rendition(found, job)) for job in JOBS]
        await is_late.wait()
        await all_quiet()
        assert slots > 1 or found.sizes == [3]  # another slot goes on with the segments after it
        is_written.set()
        await asyncio.gather(*works)
        assert (found.sizes, found.once.decoded) == ([3] * segments, segments)


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


async def test_a_rendition_that_chooses_its_encoder_is_awaited(plans: dict[str, Plan]) -> None:
    """It withdraws the demand for that choice, but its segments are still to come; all choose as the ladder did."""
    async with SeenPool(4) as below, TaskOwner() as owner:
        once = DecodeOnce(below, "ladder", JOBS, owner, kind=ADA)
        found = Scene(once, below, plans)
        demand = replace(demand_of(plans[JOBS[2]], JOBS[2]), encoder=EncoderChoice.AUTO)
        assert (await once.preview(demand)).encoder_kind == ADA
        assert (await once.preview(replace(demand, encoder=EncoderChoice.SOFTWARE))).encoder_kind is None
        runs = [once.submit(found.work(job)) for job in JOBS[:2]]
        once.set_demand(JOBS[2], None)
        await all_quiet()
        assert found.sizes == []
        runs.append(once.submit(found.work(JOBS[2])))
        assert [(await run).frames_out for run in runs] == [25] * 3
        assert found.sizes == [3]


async def test_work_begins_when_the_pool_gets_a_slot(plans: dict[str, Plan]) -> None:
    """Also if no rendition says anything more."""
    async with scene(plans) as found:
        state = found.below.state
        found.below.give(slots=0)
        found.once.leave("low")
        found.asks("middle", 0)
        run = found.once.submit(found.work("high"))
        await all_quiet()
        assert found.sizes == []
        found.below.give(slots=state.others.slots)
        assert (await run).frames_out == 25
        assert found.sizes == [1]


@pytest.mark.parametrize("error", [EncoderFailed("one fails"), WorkerOutOfMemory("one fails")])
async def test_a_failed_group_runs_apart(error: CodecfleetError, plans: dict[str, Plan]) -> None:
    """Each rendition gets the error; their next tries run alone, so that one bad rendition fails by itself."""
    label = " and ".join(f"segment 0 of {job}" for job in JOBS)
    async with scene(plans, errors={(label, 1): error}) as found:
        for run in [found.once.submit(found.work(job)) for job in JOBS]:
            with pytest.raises(type(error), match="one fails"):
                await run
        again = [found.once.submit(found.work(job)) for job in JOBS]
        assert [(await run).frames_out for run in again] == [25] * 3
        assert found.sizes == [1, 1, 1]
        together = [found.once.submit(found.work(job, 1)) for job in JOBS]
        assert [(await run).frames_out for run in together] == [25] * 3
        assert found.sizes[3:] == [3]


@pytest.mark.parametrize("error", [NodeEnded("gone"), WorkerLost("gone"), DeadlineMissed("hung")])
async def test_a_lost_worker_does_not_end_the_sharing(error: CodecfleetError, plans: dict[str, Plan]) -> None:
    """The error is passed on as it is, so that each job repeats its segment; the repetition is shared too."""
    label = " and ".join(f"segment 1 of {job}" for job in JOBS)
    async with scene(plans, errors={(label, 1): error}) as found:
        for run in [found.once.submit(found.work(job, 1)) for job in JOBS]:
            with pytest.raises(type(error)):
                await run
        again = [found.once.submit(found.work(job, 1)) for job in JOBS]
        assert [(await run).frames_out for run in again] == [25] * 3
        assert found.sizes == [3]


async def test_an_error_of_all_renditions_is_known_as_such(plans: dict[str, Plan]) -> None:
    """An error that ended the common work for good is not that of one rendition."""
    errors = [InputUnreadable("no"), EncoderFailed("no")]
    labels = [" and ".join(f"segment {number} of {job}" for job in JOBS) for number in (0, 1)]
    async with scene(plans, errors={(label, 1): error for label, error in zip(labels, errors, strict=True)}) as found:
        for number, error in enumerate(errors):
            for run in [found.once.submit(found.work(job, number)) for job in JOBS]:
                with pytest.raises(type(error)):
                    await run
        assert [found.once.is_common(error) for error in errors] == [True, False]


async def test_a_worker_is_replaced_once_all_renditions_want_it(plans: dict[str, Plan]) -> None:
    """A small rendition expects to end sooner than the common work can."""
    label = " and ".join(f"segment 0 of {job}" for job in JOBS)
    async with scene(plans, hangs={(label, 1)}) as found:
        runs = [found.once.submit(found.work(job)) for job in JOBS]
        runs[2].give_up("is late")
        runs[2].give_up("is late")
        runs[1].give_up("is late")
        await all_quiet()
        assert not any(run.result.done() for run in runs)
        runs[0].give_up("is late")
        for run in runs:
            with pytest.raises(DeadlineMissed):
                await run


async def test_results_are_freed_without_a_garbage_collection(plans: dict[str, Plan]) -> None:
    """A finished group holds nothing, and neither does a run that a job has forgotten."""
    async with HandPool(4) as below, TaskOwner() as owner:
        found = Scene(DecodeOnce(below, "ladder", JOBS, owner), below, plans)
        gc.collect()
        gc.disable()
        try:
            runs = [found.once.submit(found.work(job)) for job in JOBS]
            below.end_last()
            payloads = [weakref.ref((await run).payload) for run in runs]
            assert sum(each() is not None for each in payloads) == 3
            del runs
            await all_quiet()
            assert sum(each() is not None for each in payloads) == 0
        finally:
            gc.enable()


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
        found.once.leave(JOBS[2])
        await all_quiet()
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
        assert [(await run).frames_out for run in runs] == [25] * 3
        assert found.sizes == [3, 1, 2]


async def test_second_runs_avoid_the_stations_of_the_first(plans: dict[str, Plan]) -> None:
    """Renditions whose first runs were different works cannot share their second runs."""
    label = " and ".join(f"segment 0 of {job}" for job in JOBS[1:])
    async with scene(plans, 2, hangs={("segment 0 of high", 1), (label, 1)}) as found:
        first = [found.once.submit(replace(found.work("high"), constraints=Constraints(alone=True)))]
        first += [found.once.submit(found.work(job)) for job in JOBS[1:]]
        again = {"label": "segment 0 again", "apart_from": "segment 0"}
        second = [found.once.submit(replace(found.work(job), **again)) for job in JOBS]
        assert [(await run).frames_out for run in second] == [25] * 3
        assert [(work.label, work.apart_from) for work in found.below.works] == [
            ("segment 0 again of high", "segment 0 of high"),
            (" and ".join(f"segment 0 again of {job}" for job in JOBS[1:]), label),
        ]
        for run in first:
            run.cancel()


async def test_other_work_is_the_ladders_too(plans: dict[str, Plan]) -> None:
    """Sound runs with the ladder's priority; work of other jobs goes to the pool as it is."""
    async with scene(plans) as found:
        sound = [found.once.submit(Count(job=job, label="sound", frames=3)) for job in JOBS[:2]]
        assert [await run for run in sound] == [3, 3]
        assert (await found.once.submit(replace(found.work(JOBS[0]), job="other"))).frames_out == 25
        assert [(work.job, work.label) for work in found.below.works] == [
            ("ladder", "sound of high"),
            ("ladder", "sound of middle"),
            ("other", "segment 0"),
        ]


async def test_work_that_is_refused_is_not_counted(plans: dict[str, Plan]) -> None:
    """The error ends each rendition's run."""
    async with scene(plans) as found:
        await found.below.aclose()
        for run in [found.once.submit(found.work(job)) for job in JOBS]:
            with pytest.raises(UsageError, match="closed"):
                await run
        assert found.once.decoded == 0


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
