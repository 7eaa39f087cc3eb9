"""Why no GPU worked for a job, as its report says."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from codecfleet import Fleet
from codecfleet.actors.device.work import Work
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.cluster.placement.model import Demand, PlacementPreview
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

ResultT = TypeVar("ResultT")
LATE = "processors had done it before a GPU was ready for it"


class Beside(LocalPool):
    """Runs work on processors, beside a GPU of which ``said`` tells; ``fallback`` is why its decoder was given up."""

    def __init__(self, said: PlacementPreview, fallback: str) -> None:
        super().__init__(1)
        self.said = said
        self.fallback = fallback

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Say it."""
        del demand
        return self.said

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run work, and add the reason to segments."""
        result = await super().result_of(work, look)
        if not isinstance(result, EncodedSegment):
            return result
        return replace(result, tally=replace(result.tally, fallback=self.fallback))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("said", "fallback", "refusal"),
    [
        (PlacementPreview(takes_gpu=True), "", LATE),  # Ray was still starting, or it was not worth its start
        (PlacementPreview(takes_gpu=True), "NVDEC broke off", ""),  # a warning says so
        (PlacementPreview(gpu_refusal="the captions"), "", "the captions"),
        (PlacementPreview(), "", ""),
    ],
)
async def test_a_gpu_that_did_not_work_is_explained(
    said: PlacementPreview, fallback: str, refusal: str, tmp_path: Path
) -> None:
    """What the workers did counts, beside what the fleet says that it would do."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(10)))
    async with Fleet(pool=Beside(said, fallback)) as fleet:
        report = await (await fleet.transcode(TranscodeSpec(source=str(source), output=str(tmp_path / "out.mkv"))))
    assert report.gpu_refusal == refusal
