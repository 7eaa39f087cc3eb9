"""What a client tells its supervisor of work that waits behind its jobs."""

from dataclasses import replace

from codecfleet.cluster.autoscale.behind import LaterDemand, WorkBehind
from codecfleet.cluster.placement.model.demand import EncoderChoice, EncoderKind, plain_demand


def test_what_waits_is_told_as_work_like_a_job_of_its_own() -> None:
    """Of that job's kind, with an open encoder, as soon as the job asks for something; until nothing waits."""
    kind = EncoderKind("nvenc", "ada", "580")
    demand = replace(plain_demand("job", 3), segments=(250, 300, 120), encoder=EncoderChoice.NVENC)
    demand = replace(demand, renditions=(replace(demand.renditions[0], kind=kind),))
    behind = WorkBehind()
    behind.set("batch", LaterDemand("job", 30, 9000))
    assert list(behind.told({}, None)) == []
    (told,) = behind.told({"job": demand, "other": plain_demand("other", 1)}, None)
    assert (told.job, told.segments, told.frames_total, told.workers_max) == ("batch", (300,), 9000, 30)
    assert (told.renditions[0].kind, told.encoder, told.width) == (None, EncoderChoice.NVENC, 1920)
    behind.clear("batch")
    assert list(behind.told({"job": demand}, None)) == []


def test_a_job_that_is_over_stands_for_those_that_follow() -> None:
    """Between two jobs as well, and once the next one asks for something, that counts."""
    behind = WorkBehind()
    behind.set("batch", LaterDemand("first", 30, 9000))
    (before,) = behind.told({"first": plain_demand("first", 3)}, None)
    behind.set("batch", LaterDemand("second", 20, 6000))
    assert list(behind.told({}, None)) == [replace(before, frames_total=6000, workers_max=20)]
    (after,) = behind.told({"second": replace(plain_demand("second", 3), width=640)}, None)
    assert after == replace(before, frames_total=6000, workers_max=20, width=640)


def test_a_limited_fleet_asks_for_no_more_than_its_slots() -> None:
    """What could never run at once is of use to no node."""
    behind = WorkBehind()
    behind.set("batch", LaterDemand("job", 30, 9000))
    assert [each.workers_max for each in behind.told({"job": plain_demand("job", 3)}, 2)] == [2]
