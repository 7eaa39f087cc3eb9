"""What a client reports of what its batches will ask for."""

from dataclasses import replace

from codecfleet.cluster.autoscale.later import LaterDemand, LaterDemands
from codecfleet.cluster.placement.model.demand import EncoderChoice, EncoderKind, plain_demand


def test_a_later_demand_is_reported_like_a_job() -> None:
    """Of that job's kind, with an open encoder, as soon as the job asks for something; until nothing waits."""
    kind = EncoderKind("nvenc", "ada", "580")
    demand = replace(plain_demand("job", 3), segments=(250, 300, 120), encoder=EncoderChoice.NVENC)
    demand = replace(demand, renditions=(replace(demand.renditions[0], kind=kind),))
    later = LaterDemands()
    later.set("batch", LaterDemand("job", 30, 9000))
    assert list(later.reported({}, None)) == []
    (found,) = later.reported({"job": demand, "other": plain_demand("other", 1)}, None)
    assert (found.job, found.segments, found.frames_total, found.workers_max) == ("batch", (300,), 9000, 30)
    assert (found.renditions[0].kind, found.encoder, found.width) == (None, EncoderChoice.NVENC, 1920)
    later.clear("batch")
    assert list(later.reported({"job": demand}, None)) == []


def test_a_job_that_is_over_stands_for_those_that_follow() -> None:
    """Between two jobs as well, and once the next one asks for something, that counts."""
    later = LaterDemands()
    later.set("batch", LaterDemand("first", 30, 9000))
    (before,) = later.reported({"first": plain_demand("first", 3)}, None)
    later.set("batch", LaterDemand("second", 20, 6000))
    assert list(later.reported({}, None)) == [replace(before, frames_total=6000, workers_max=20)]
    (after,) = later.reported({"second": replace(plain_demand("second", 3), width=640)}, None)
    assert after == replace(before, frames_total=6000, workers_max=20, width=640)


def test_a_limited_fleet_asks_for_no_more_than_its_slots() -> None:
    """What could never run at once is of use to no node."""
    later = LaterDemands()
    later.set("batch", LaterDemand("job", 30, 9000))
    assert [each.workers_max for each in later.reported({"job": plain_demand("job", 3)}, 2)] == [2]
