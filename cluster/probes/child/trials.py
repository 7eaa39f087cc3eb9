"""Many cases tried in child processes, one after the other: a case that ends its child ends nothing else.

A child gets the cases and yields, for each, ``{"case": name}`` when it begins and a map with more keys when it is done.
So the values that a dead child leaves show which case it died of; the others continue in a new child.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .child import ChildEnd, ChildOutcome
from .program import Probe

CHILDREN_MAX = 8
"""A machine on which more cases than this kill their process has one fault, not many."""
_LEAST_S = 0.5


class RunChild(Protocol):
    """``run_in_child``, or what stands in for it."""

    def __call__(
        self,
        probe: Probe,
        arguments: Mapping[str, Any],
        limit_s: float,
        environment: Mapping[str, str] | None = None,
    ) -> ChildOutcome:
        """Run ``probe`` and return what came of it."""
        ...


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What the children said of one case: the map they yielded, or how the child ended that tried it."""

    case: str
    values: Mapping[str, Any] | None
    death: ChildOutcome | None = None


@dataclass(frozen=True, slots=True)
class CasesOutcome:
    """What came of all cases. ``problem`` is why some were not reached, "" when all were."""

    results: tuple[CaseResult, ...]
    untried: tuple[str, ...]
    problem: str


def try_cases(
    probe: Probe,
    cases: Sequence[str],
    arguments: Callable[[tuple[str, ...], float], Mapping[str, Any]],
    limit_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    run: RunChild,
    clock: Callable[[], float] = time.monotonic,
) -> CasesOutcome:
    """Try ``cases``, the most important first, in as many children as it takes, within ``limit_s`` for all of them.

    ``probe`` is the generator function for ``run_in_child``; ``arguments`` makes its keyword arguments from the cases
    and the seconds that are left. ``environment`` is the children's; ``run`` runs one; ``clock`` counts seconds.
    """
    results: list[CaseResult] = []
    left, ends_s, problem = tuple(cases), clock() + limit_s, ""
    for _ in range(CHILDREN_MAX):
        remaining_s = ends_s - clock()
        if not left or remaining_s < _LEAST_S:
            break
        outcome = run(probe, arguments(left, remaining_s), remaining_s, environment)
        found, problem = _read(outcome)
        results += found
        reached = {result.case for result in found}
        left = tuple(case for case in left if case not in reached)
        if not reached or outcome.returned:
            break
    return CasesOutcome(tuple(results), left, (problem or "the time for trials was up") if left else "")


def _read(outcome: ChildOutcome) -> tuple[list[CaseResult], str]:
    """Return what a child said of its cases, and why it ended before its end."""
    maps = [value for value in outcome.values if isinstance(value, dict) and "case" in value]
    done = {value["case"]: value for value in maps if len(value) > 1}
    found = [CaseResult(case, value) for case, value in done.items()]
    if outcome.returned:
        return found, ""
    if outcome.end is ChildEnd.TIMED_OUT and done:
        return found, "the time for trials was up"  # the case under way was not at fault, just late
    begun = [value["case"] for value in maps if value["case"] not in done]
    found += [CaseResult(case, None, outcome) for case in begun]
    return found, outcome.detail
