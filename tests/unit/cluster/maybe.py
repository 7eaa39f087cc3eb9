"""Checked access to the answer of a probe: the value, or the reason why there is none."""

from typing import TypeVar

from codecfleet.cluster.probes.report.absence import Maybe, Unavailable

T = TypeVar("T")


def held(answer: Maybe[T]) -> T:
    """Return a value that must be there."""
    assert not isinstance(answer, Unavailable)
    return answer


def missing(answer: object) -> Unavailable:
    """Return the reason why there is no value."""
    assert isinstance(answer, Unavailable)
    return answer
