"""How a job handles wrong or doubtful results of workers, and explains why no GPU worked."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codecfleet import Fleet, Report
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.cluster.device_fault import FaultVerdict
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model import Demand, PlacementPreview
from codecfleet.jobs.report.events import Warned
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..pools import AlteringPool

LAST = 2


def spec_of(folder: Path, clip: Clip, **options: Any) -> TranscodeSpec:
    """Return the request for a job on a clip in a folder."""
    return TranscodeSpec(source=make_clip(folder / "in.mkv", clip), output=folder / "out.mkv", **options)


async def run(pool: Pool, spec: TranscodeSpec) -> Report:
    """Run one job on a pool, and close the pool."""
    async with Fleet(pool=pool) as fleet:
        return await (await fleet.transcode(spec))


async def test_a_miscounted_segment_is_encoded_again(tmp_path: Path) -> None:
    """A segment with a wrong count is encoded again, and the job succeeds."""
    spec = spec_of(tmp_path, Clip(times=constant_times(50)))
    lies = [1]

    def changed(result: EncodedSegment) -> EncodedSegment:
        more = lies.pop() if lies else 0
        return replace(result, tally=replace(result.tally, frames=result.tally.frames + more))

    pool = AlteringPool(changed)
    report = await run(pool, spec)
    assert [each.attempts for each in report.segments][:1] == [2]
    (fault,) = pool.faults
    assert (fault.worker, fault.file, fault.verdict) == ("here/cpu#0:1", spec.source, FaultVerdict.WRONG)
    assert "frames and gave" in fault.reason


async def test_a_lost_worker_is_said_at_once_and_in_the_report(tmp_path: Path) -> None:
    """A lost worker is a warning that names the work, and the report counts all lost work."""
    clip = Clip(times=constant_times(50), keyframes=frozenset({0, 25}))
    spec = spec_of(tmp_path, clip, segment_s=1, overwrite=True)

    async def codes(pool: Pool) -> tuple[list[str], list[str]]:
        async with Fleet(pool=pool) as fleet:
            job = await fleet.transcode(spec)
            said = [each.message async for each in job.events() if isinstance(each, Warned)]
            return said, [each.message for each in (await job).warnings if each.code == "worker-lost"]

    said, reported = await codes(FaultyPool(LocalPool(2), kills=[("segment 0", 1), ("segment 0", 2)]))
    again = "work was lost on here/cpu#0: 2 runs repeated"
    died = "segment 0 was lost: worker of segment 0 was killed at attempt"
    assert said == [f"{died} 1, as asked", f"{died} 2, as asked", again]
    assert reported == [again]
    assert await codes(LocalPool(2)) == ([], [])


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_device_whose_work_software_did_is_in_doubt(tmp_path: Path, *, is_damaged: bool) -> None:
    """A device whose work software did is doubtful, unless the source is damaged there."""
    spec = spec_of(tmp_path, Clip(times=constant_times(50)))
    first = 3 if is_damaged else None
    pool = AlteringPool(
        lambda result: replace(
            result, tally=replace(result.tally, first_damaged_packet=first), device_fault="NVDEC failed"
        )
    )
    await run(pool, spec)
    assert {(each.reason, each.verdict) for each in pool.faults} == (
        set() if is_damaged else {("NVDEC failed", FaultVerdict.DOUBTFUL)}
    )


@pytest.mark.parametrize(("lies", "told"), [(1, 0), (2, 1), (3, 2)])
async def test_a_device_whose_pictures_go_on_differing_at_a_cut_is_in_doubt(
    tmp_path: Path, lies: int, told: int
) -> None:
    """A device is doubtful if its pictures at a cut still differ when decoding begins further back."""
    clip = Clip(times=constant_times(75), keyframes=frozenset(range(0, 75, 5)))
    spec, left = spec_of(tmp_path, clip, segment_s=1), [True] * lies

    def changed(result: EncodedSegment) -> EncodedSegment:
        if result.segment != LAST or not left:
            return result
        left.pop()
        tally = replace(result.tally, seam_before=result.tally.seam_before[::-1], decoded_by="nvdec")
        return replace(result, tally=tally)

    pool = AlteringPool(changed)
    await run(pool, spec)
    assert len(pool.faults) == told
    assert all("still differ at the cut" in each.reason for each in pool.faults)


LATE = "the processors finished before a GPU was ready"


class Beside(AlteringPool):
    """Runs work on processors, beside a GPU with the state ``said``; ``fallback`` is why its decoder was given up."""

    def __init__(self, said: PlacementPreview, fallback: str) -> None:
        super().__init__(lambda result: replace(result, tally=replace(result.tally, fallback=fallback)))
        self.said = said

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Say it."""
        del demand
        return self.said


@pytest.mark.parametrize(
    ("said", "fallback", "refusal"),
    [
        (PlacementPreview(takes_gpu=True), "", LATE),  # Ray was still starting, or not worth its start
        (PlacementPreview(takes_gpu=True), "NVDEC failed", ""),  # a warning says so
        (PlacementPreview(gpu_refusal="the captions"), "", "the captions"),
        (PlacementPreview(), "", ""),
    ],
)
async def test_a_gpu_that_did_not_work_is_explained(
    said: PlacementPreview, fallback: str, refusal: str, tmp_path: Path
) -> None:
    """The explanation comes from what the workers did, and from what the fleet says it would do."""
    report = await run(Beside(said, fallback), spec_of(tmp_path, Clip(times=constant_times(10))))
    assert report.gpu_refusal == refusal
