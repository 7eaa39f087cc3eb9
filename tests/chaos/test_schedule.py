"""The schedule of faults: what it covers, and that a seed repeats it."""

from collections import Counter

from .lanes import cores_of
from .schedule import NODE_LOSSES, OF_A_DEVICE, SEGMENTS, Fault, Shape, batches, possible, round_of

ROUNDS = [round_of(seed) for seed in range(300)]


def test_a_seed_repeats_its_round() -> None:
    """The same seed gives the same round, and neighbours differ."""
    assert [round_of(seed) for seed in range(300)] == ROUNDS
    assert len({(plan.shape, plan.strikes) for plan in ROUNDS}) > 290


def test_every_fault_strikes_every_shape_that_it_can() -> None:
    """300 rounds have each fault of each shape, and each fault six times at least."""
    for shape in Shape:
        struck = {strike.fault for plan in ROUNDS if plan.shape is shape for strike in plan.strikes}
        assert struck == set(possible(shape))
    times = Counter(strike.fault for plan in ROUNDS for strike in plan.strikes)
    assert all(times[fault] >= 6 for fault in Fault)


def test_a_node_is_left() -> None:
    """No round takes every node of its cluster."""
    for plan in ROUNDS:
        assert plan.strikes
        lost = sum(strike.fault in NODE_LOSSES for strike in plan.strikes)
        assert lost == 0 or lost < len(plan.shape.node_cpus)
        assert sum(strike.fault in OF_A_DEVICE for strike in plan.strikes) <= 1


def test_faults_come_in_order_and_before_the_end() -> None:
    """Strikes are sorted by the moment they wait for, which comes before the last segment."""
    for plan in ROUNDS:
        moments = [strike.after_segments for strike in plan.strikes]
        assert moments == sorted(moments)
        assert moments[-1] < SEGMENTS - 1


def test_every_round_is_in_one_batch_of_its_shape() -> None:
    """Batches are of one shape each, and small enough for all processes to have work."""
    found = batches(ROUNDS, 16)
    assert sorted(plan.seed for batch in found for plan in batch) == list(range(300))
    assert all(len({plan.shape for plan in batch}) == 1 for batch in found)
    assert len(batches(ROUNDS[:20], 10)) >= 10


def test_lanes_share_the_cores() -> None:
    """Each lane has cores of its own, as many as the others; where there are too few, two that others have too."""
    cores = list(range(16))
    assert [cores_of(lane, 8, cores) for lane in (0, 7)] == [{0, 1}, {14, 15}]
    assert cores_of(2, 3, cores) == set(range(10, 15))
    assert [cores_of(lane, 16, cores) for lane in (1, 9)] == [{2, 3}, {2, 3}]
    assert cores_of(3, 4, [5, 6]) == {5, 6}
    assert cores_of(3, 4, [5]) == {5}
