"""The later demands that a client reports for batches."""

from dataclasses import replace

from codecfleet.cluster.autoscale.later import LaterDemand, LaterDemands
from codecfleet.cluster.placement.model.demand import EncoderChoice, EncoderKind, plain_demand


def test_a_later_demand_looks_like_a_job() -> None:
    """A later demand resembles a job of the batch, but with an open encoder, and is reported until nothing waits."""
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


def test_a_finished_job_represents_those_that_follow() -> None:
    """Between two jobs, the demand of the last job is used; the demand of the next job replaces it."""
    later = LaterDemands()
    later.set("batch", LaterDemand("first", 30, 9000))
    (before,) = later.reported({"first": plain_demand("first", 3)}, None)
    later.set("batch", LaterDemand("second", 20, 6000))
    assert list(later.reported({}, None)) == [replace(before, frames_total=6000, workers_max=20)]
    (after,) = later.reported({"second": replace(plain_demand("second", 3), width=640)}, None)
    assert after == replace(before, frames_total=6000, workers_max=20, width=640)


def test_a_limited_fleet_requests_no_more_than_its_slots() -> None:
    """A later demand requests at most as many workers as the client may use."""
    later = LaterDemands()
    later.set("batch", LaterDemand("job", 30, 9000))
    assert [each.workers_max for each in later.reported({"job": plain_demand("job", 3)}, 2)] == [2]
