"""Cases tried in children that die: every case gets its own answer, within limits of time and of deaths."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.probes.child.child import CHILDREN_MAX, CasesOutcome, ChildEnd, ChildOutcome, try_cases

CASES = tuple("abcdefghijkl")


class Script:
    """A child that ends at certain cases in certain ways; each child takes ``child_s`` of the clock."""

    def __init__(self, ends: Mapping[str, ChildEnd], child_s: float = 1.0) -> None:
        self.ends = ends
        self.child_s = child_s
        self.now_s = 0.0
        self.limits_s: list[float] = []

    def __call__(
        self,
        probe: Callable[..., Any],
        arguments: Mapping[str, Any],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> ChildOutcome:
        assert (probe, environment, arguments["limit_s"]) == (bool, None, limit_s)
        self.limits_s.append(limit_s)
        self.now_s += self.child_s
        values: list[Any] = []
        for case in arguments["cases"]:
            values.append(case)
            end = self.ends.get(case)
            if end is not None:
                return ChildOutcome(end, tuple(values), f"ended by {end.value}")
            values.append((case, True))
        return ChildOutcome(ChildEnd.RETURNED, tuple(values))

    def run(self, cases: tuple[str, ...] = CASES, limit_s: float = 100) -> CasesOutcome:
        return try_cases(bool, cases, lambda left: {"cases": left}, limit_s, run=self, clock=lambda: self.now_s)


def test_one_child_is_enough_when_nothing_dies() -> None:
    """If no case ends its child, all answers come from the first child, in order."""
    script = Script({})
    outcome = script.run()
    assert list(outcome.results) == list(CASES)
    assert (outcome.untried, outcome.problem, len(script.limits_s)) == ((), "", 1)


@given(st.sets(st.sampled_from(CASES), max_size=CHILDREN_MAX - 1))
def test_every_case_has_one_answer_whatever_dies(deadly: set[str]) -> None:
    """Cases that kill their child are named with the end of the child; all other cases are tried once each."""
    outcome = Script(dict.fromkeys(deadly, ChildEnd.KILLED)).run()
    assert outcome.results.keys() == set(CASES) - deadly
    assert outcome.deaths.keys() == deadly
    assert outcome.untried == ()


def test_a_machine_on_which_everything_dies_is_left_alone() -> None:
    """After ``CHILDREN_MAX`` dead children, the other cases are not tried; the reason is how the last child ended."""
    script = Script(dict.fromkeys(CASES, ChildEnd.EXITED))
    outcome = script.run()
    assert len(script.limits_s) == CHILDREN_MAX
    assert outcome.untried == CASES[CHILDREN_MAX:]
    assert outcome.problem == "ended by exited"


def test_the_time_is_for_all_children_together() -> None:
    """Each child gets the time that earlier children left; once no time is left, the other cases are not tried."""
    script = Script(dict.fromkeys(CASES, ChildEnd.KILLED), child_s=2)
    outcome = script.run(limit_s=5)
    assert script.limits_s == [5, 3, 1]
    assert len(outcome.untried) == len(CASES) - 3


@pytest.mark.parametrize(("hung", "blamed"), [("a", ["a"]), ("c", [])])
def test_only_a_first_case_is_blamed_for_a_timeout(hung: str, blamed: list[str]) -> None:
    """A child that hangs at its first case hangs because of that case; otherwise it may only be late."""
    outcome = Script({hung: ChildEnd.TIMED_OUT}, child_s=10).run(limit_s=10)
    assert list(outcome.deaths) == blamed
    assert outcome.untried
    assert outcome.problem
