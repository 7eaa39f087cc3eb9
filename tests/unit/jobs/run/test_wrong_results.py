"""A result that contradicts itself is encoded again, and its worker's device is reported."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from codecfleet import Fleet
from codecfleet.actors.device.work import Constraints, Work
from codecfleet.actors.segment.encoding import EncodedSegment
from codecfleet.cluster.client.fault_reports import FaultReports
from codecfleet.cluster.worker.outcome import failed
from codecfleet.errors import DeviceLost, DeviceMemory, SessionLimit
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.testing import LocalPool, works
from codecfleet.testing.clips import Clip, constant_times, make_clip

ResultT = TypeVar("ResultT")


class Lying(LocalPool):
    """Says that the first segment gave a frame less than it took, once."""

    def __init__(self) -> None:
        super().__init__(1)
        self.lies = 1
        self.told: list[str] = []

    async def submit(self, work: Work[ResultT]) -> ResultT:
        """Run work, and falsify the first segment."""
        result = await super().submit(work)
        if isinstance(result, EncodedSegment) and self.lies:
            self.lies -= 1
            return replace(result, tally=replace(result.tally, frames=result.tally.frames + 1))  # type: ignore[return-value]
        return result

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        """Note the report."""
        self.told.append(f"{job[:0]}{label}: {reason}")


async def test_a_miscounted_segment_is_encoded_again(tmp_path: Path) -> None:
    """The job ends well, with that segment redone."""
    source = tmp_path / "in.mkv"
    make_clip(source, Clip(times=constant_times(50)))
    pool = Lying()
    async with Fleet(pool=pool) as fleet:
        report = await (await fleet.transcode(TranscodeSpec(source=str(source), output=str(tmp_path / "out.mkv"))))
    assert [each.attempts for each in report.segments][:1] == [2]
    assert len(pool.told) == 1
    assert "frames and gave" in pool.told[0]


def test_only_faults_of_a_device_are_reported() -> None:
    """One lost under work that was alone is; who breaks a shared one is not known, and a limit says nothing."""
    reports, beside = FaultReports(), works.Count(job="j", label="a")
    reports.ended(beside, "n/gpu#0:1", failed(DeviceLost("999")))
    work = replace(beside, constraints=Constraints(alone=True))
    for error in (SessionLimit("full"), DeviceMemory("full")):
        reports.ended(work, "n/gpu#0:1", failed(error))
    assert reports.recent == ()
    reports.ended(work, "n/gpu#0:1", failed(DeviceLost("999")))
    reports.found_wrong("j", "a", "a frame too few")
    reports.found_wrong("j", "unknown", "never ran")
    assert [(each.number, each.worker, each.file, each.is_wrong) for each in reports.recent] == [
        (1, "n/gpu#0:1", "j", False),
        (2, "n/gpu#0:1", "j", True),
    ]
