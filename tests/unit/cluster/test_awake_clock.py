"""Time in which a process ran."""

from codecfleet.cluster.awake_clock import AwakeClock


def test_a_process_that_stood_still_has_not_waited() -> None:
    """Short steps count in full; after a suspension, its longest step alone."""
    readings = iter([100.0, 101.0, 103.0, 183.0, 184.0])
    clock = AwakeClock(5.0, lambda: next(readings))
    assert [clock() for _ in range(4)] == [101.0, 103.0, 108.0, 109.0]
