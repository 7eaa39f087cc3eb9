"""A result that contradicts itself is encoded again, and its worker's device is reported."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from codecfleet import Fleet
from codecfleet.actors.device.work import Constraints, Work
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.cluster.fleet.leases.fault_reports import FaultReports
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.fleet.run import Doubt
from codecfleet.cluster.worker.outcome import failed
from codecfleet.errors import DeviceLost, DeviceMemory, SessionLimit
from codecfleet.jobs.report.events import Warned
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import FaultyPool, LocalPool, works
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look

ResultT = TypeVar("ResultT")
LAST = 2


class Lying(LocalPool):
    """Says that the first segment gave a frame less than it took, once."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lies = 1

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run work, and falsify the first segment."""
        result = await super().result_of(work, look)
        if isinstance(result, EncodedSegment) and self.lies:
            self.lies -= 1
            return replace(result, tally=replace(result.tally, frames=result.tally.frames + 1))  # type: ignore[return-value]
        return result


async def test_a_miscounted_segment_is_encoded_again(tmp_path: Path) -> None:
    """The job ends well, with that segment redone."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(50)))
    pool = Lying()
    async with Fleet(pool=pool) as fleet:
        report = await (await fleet.transcode(TranscodeSpec(source=str(source), output=str(tmp_path / "out.mkv"))))
    assert [each.attempts for each in report.segments][:1] == [2]
    (doubt,) = pool.doubts
    assert (doubt.worker, doubt.file, doubt.is_wrong) == ("here/cpu#0:1", str(source), True)
    assert "frames and gave" in doubt.reason


async def test_a_lost_worker_is_said_at_once_and_in_the_report(tmp_path: Path) -> None:
    """As a warning that names the work; the report counts all of it. A job that lost none says nothing."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(50), keyframes=frozenset({0, 25})))
    spec = TranscodeSpec(source=source, output=tmp_path / "out.mkv", segment_s=1, overwrite=True)

    async def codes(pool: Pool) -> tuple[list[str], list[str]]:
        async with Fleet(pool=pool) as fleet:
            job = await fleet.transcode(spec)
            said = [each.message async for each in job.events() if isinstance(each, Warned)]
            return said, [each.message for each in (await job).warnings if each.code == "worker-lost"]

    said, reported = await codes(FaultyPool(LocalPool(2), kills=[("segment 0", 1), ("segment 0", 2)]))
    again = "a worker died at work on here/cpu#0: 2 pieces of work ran again"
    died = "segment 0 lost its worker: worker of segment 0 was killed at attempt"
    assert said == [f"{died} 1, as asked", f"{died} 2, as asked", again]
    assert reported == [again]
    assert await codes(LocalPool(2)) == ([], [])


class Falling(LocalPool):
    """Says that the device's decoder failed on each segment, before software did it."""

    def __init__(self, *, is_damaged: bool) -> None:
        super().__init__(1)
        self.first_damaged_packet = 3 if is_damaged else None

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run work, and add that to segments."""
        result = await super().result_of(work, look)
        if not isinstance(result, EncodedSegment):
            return result
        tally = replace(result.tally, first_damaged_packet=self.first_damaged_packet)
        return replace(result, tally=tally, device_fault="NVDEC broke off")  # type: ignore[return-value]


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_device_whose_work_software_did_is_in_doubt(tmp_path: Path, *, is_damaged: bool) -> None:
    """Unless the source is damaged there: then it is to blame."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(50)))
    pool = Falling(is_damaged=is_damaged)
    async with Fleet(pool=pool) as fleet:
        await (await fleet.transcode(TranscodeSpec(source=str(source), output=str(tmp_path / "out.mkv"))))
    assert {(each.reason, each.is_wrong) for each in pool.doubts} == (
        set() if is_damaged else {("NVDEC broke off", False)}
    )


class Differing(LocalPool):
    """Says that the last segment begins with other pictures than the one before it ends with, ``lies`` times."""

    def __init__(self, lies: int) -> None:
        super().__init__(1)
        self.lies = lies

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Run work, and falsify the first picture of the last segment, as if a device had decoded it."""
        result = await super().result_of(work, look)
        if not isinstance(result, EncodedSegment) or result.segment != LAST or not self.lies:
            return result
        self.lies -= 1
        tally = replace(result.tally, seam_before=result.tally.seam_before[::-1], decoded_by="nvdec")
        return replace(result, tally=tally)  # type: ignore[return-value]


@pytest.mark.parametrize(("lies", "told"), [(1, 0), (2, 1), (3, 2)])
async def test_a_device_whose_pictures_go_on_differing_at_a_cut_is_in_doubt(
    tmp_path: Path, lies: int, told: int
) -> None:
    """A first difference is an open GOP's; one that stays when decoding began further back may be the device's."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(75), keyframes=frozenset(range(0, 75, 5))))
    pool = Differing(lies)
    spec = TranscodeSpec(source=str(source), output=str(tmp_path / "out.mkv"), segment_s=1)
    async with Fleet(pool=pool) as fleet:
        await (await fleet.transcode(spec))
    assert len(pool.doubts) == told
    assert all("still differ at the cut" in each.reason for each in pool.doubts)


def test_only_faults_of_a_device_are_reported() -> None:
    """One lost under work that was alone is; who breaks a shared one is not known, and a limit says nothing."""
    reports, beside = FaultReports(), works.Count(job="j", label="a")
    reports.ended(beside, "n/gpu#0:1", failed(DeviceLost("999")))
    work = replace(beside, constraints=Constraints(alone=True))
    for error in (SessionLimit("full"), DeviceMemory("full")):
        reports.ended(work, "n/gpu#0:1", failed(error))
    assert reports.recent == ()
    reports.ended(work, "n/gpu#0:1", failed(DeviceLost("999")))
    reports.doubted(Doubt("n/gpu#0:1", "j", "a frame too few", is_wrong=True))
    reports.doubted(Doubt("n/gpu#0:1", "j", "software did it", is_wrong=False))
    assert [(each.number, each.worker, each.file, each.is_wrong, each.is_doubtful) for each in reports.recent] == [
        (1, "n/gpu#0:1", "j", False, False),
        (2, "n/gpu#0:1", "j", True, False),
        (3, "n/gpu#0:1", "j", False, True),
    ]
