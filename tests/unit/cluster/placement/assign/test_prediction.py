"""Which lane gets which segment, and how long the segments take."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.assign.prediction import predict
from codecfleet.cluster.placement.model.demand import Demand
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import Engine

from ..model.test_place_properties import WORLD
from ..worlds import demand, inventory, node

RATES = start_rates()
SOFTWARE = Policy(engines=frozenset({Engine.CPU}))


@given(*WORLD)
def test_every_segment_is_done_once(demands: Sequence[Demand], machines: Inventory, policy: Policy) -> None:
    """Each segment of a placed job is in exactly one lane, and the wall time is the last end of a lane."""
    placement = place(demands, machines, RATES, policy)
    for wanted in demands:
        prediction = predict(wanted, placement)
        done = sorted(number for entry in prediction.lanes for number in entry.segments)
        assert done == (list(range(len(wanted.segments))) if prediction.lanes else [])
        assert prediction.wall_s == max((entry.ends_s for entry in prediction.lanes), default=None)
        assert sum(entry.frames for entry in prediction.lanes) in (0, sum(wanted.segments))


def test_the_longest_segments_go_first() -> None:
    """With two cores and one long and three short segments, the long one has a core of its own."""
    wanted = replace(demand(), segments=(100, 100, 300, 100))
    placement = place([wanted], inventory(node("n", cores=2)), RATES, SOFTWARE)
    prediction = predict(wanted, placement)
    per_frame_s = 2 / placement.lanes[0].fps
    assert prediction.wall_s == pytest.approx(300 * per_frame_s)
    assert prediction.cpu_s == pytest.approx(600 * per_frame_s)
    assert prediction.gpu_s == 0


def test_gpu_sessions_open_one_after_the_other() -> None:
    """The first session opens in 0.35 s and each further one in 0.1 s; the GPU is used until the last segment ends."""
    wanted = demand(segments=2, frames=5000)
    placement = place([wanted], inventory(node("n", "L40S")), RATES, Policy())
    prediction = predict(wanted, placement)
    fps = placement.lanes[0].fps / 2
    assert prediction.wall_s == pytest.approx(0.45 + 5000 / fps)
    assert prediction.gpu_s == prediction.wall_s
