"""Stills from a GPU equal those of software, which also takes over if the GPU fails."""

import pytest

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.stills.measuring import MeasuredSegment
from codecfleet.actors.stills.taking import TakenStills
from codecfleet.errors import EngineFailed
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.stills.plan import plan_stills
from codecfleet.testing.nvidia.fake_device import device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

from .conftest import StillsBench

RUN = Run(0, 0, 0, 1)


def _taken(result: TakenStills) -> tuple[object, ...]:
    return result.shown, [(picture.ticks, picture.data.tobytes()) for picture in result.pictures]


def _measured(result: MeasuredSegment) -> tuple[object, ...]:
    grey = result.first.tobytes(), result.last.tobytes()
    return result.pts_ticks.tolist(), result.differences.tolist(), grey


@pytest.mark.parametrize("fails_after", [None, 0, 9])
def test_results_do_not_depend_on_who_decoded(bench: StillsBench, fails_after: int | None) -> None:
    """A GPU that decodes, or fails before or within a range, gives the same stills and measures."""
    fault = EngineFailed("it gave up") if fails_after is not None else None
    plan = plan_stills(bench.spec())
    shots = plan.shots(plan.moments())
    work = plan.taking("job", shots, RUN)
    context = WorkContext(device=device_with(SurfaceDecoder(fault, fails_after or 0)))
    found, wanted = work.run(context), work.run(WorkContext())
    assert _taken(found) == _taken(wanted)
    assert found.tally.decoded_by == ("nvdec" if fault is None else "software")
    assert found.tally.fallback == ("" if fault is None else "it gave up")
    assert context.frames_done == found.tally.frames
    measuring = plan.measuring("job", RUN)
    device = device_with(SurfaceDecoder(fault, fails_after or 0))
    assert _measured(measuring.run(WorkContext(device=device))) == _measured(measuring.run(WorkContext()))
