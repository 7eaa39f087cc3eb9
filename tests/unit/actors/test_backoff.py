"""Waits between tries."""

from codecfleet.actors.backoff import Backoff


def test_each_wait_is_twice_as_long_up_to_the_longest() -> None:
    """Without failures there is no wait; after any number of failures the wait is at most the longest."""
    waits = Backoff(first_s=0.5, most_s=3)
    assert [waits.wait_s(failures) for failures in range(6)] == [0, 0.5, 1, 2, 3, 3]
    assert waits.wait_s(10_000) == 3


def test_a_factor_of_ones_own() -> None:
    """The factor between waits is configurable."""
    assert [Backoff(1, 100, factor=3).wait_s(failures) for failures in range(1, 5)] == [1, 3, 9, 27]
