"""Work that cannot finish before its node ends is given up early; other work finishes there."""

from codecfleet.cluster.fleet.leases.leaving import MARGIN_S, WorkTimes


def _times() -> WorkTimes:
    """Return times of a job whose work took 20 s, and of which tasks 2 and 3 run since 0 and 15 s."""
    times = WorkTimes()
    times.began(1, "j", 0.0)
    times.ended(1, 20.0, well=True)
    times.began(2, "j", 0.0)
    times.began(3, "j", 15.0)
    return times


def test_what_cannot_finish_is_given_up() -> None:
    """At 16 s, task 2 needs 4 s more and task 3 needs 19 s."""
    times = _times()
    assert times.doomed([2, 3], 30.0, 16.0) == []
    assert times.doomed([2, 3], 10.0, 16.0) == [3]
    assert times.doomed([2, 3], 4.0 + MARGIN_S - 0.1, 16.0) == [2, 3]


def test_of_an_unknown_job_nothing_is_given_up() -> None:
    """Before any of its work has ended, or after it failed, nothing tells how long it takes."""
    times = WorkTimes()
    times.began(1, "new", 0.0)
    times.began(2, "new", 0.0)
    times.ended(1, 50.0, well=False)
    assert times.doomed([2], 1.0, 1.0) == []
    times = _times()
    times.forget("j")
    assert times.doomed([2, 3], 1.0, 16.0) == []
