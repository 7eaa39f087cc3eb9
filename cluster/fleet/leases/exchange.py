"""What a client and its supervisor know of each other: reports are cut to what it lacks, and grants completed.

A message may be lost, late or repeated. Where a restarted supervisor cannot take one in, the next tells everything.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TypeVar

from ...changes import Changes
from ...supervisor.state.messages import ClientReport, Grants, JobReport, ReportedChanges

ValueT = TypeVar("ValueT")


class Exchange:
    """A client's side of the lease protocol, without a clock or I/O."""

    def __init__(self) -> None:
        self._said: Changes[JobReport] = Changes()
        self._heard = 0
        self._grants = Grants({})

    def cut(self, report: ClientReport) -> ClientReport:
        """Return the next report as it is to be sent: of what has changed, where the supervisor knows the rest."""
        self._said.note(report.sequence, {job.demand.job: job for job in report.jobs})
        changed = self._said.since(self._heard) if self._heard else None
        report = replace(report, takes_changes=True)
        if changed is None:
            return report
        rest = {each.name: getattr(report, each.name) for each in fields(report) if each.name != "jobs"}
        return ReportedChanges(**rest, jobs=tuple(changed.values.values()), since=self._heard, over=changed.over)

    def completed(self, sent: ClientReport, answer: Grants) -> Grants | None:
        """Return all that an answer to a report grants, None where newer grants are known."""
        if isinstance(sent, ReportedChanges) and answer.heard < sent.since:
            self._heard = 0
        else:
            self._heard = max(self._heard, answer.heard)
        if not answer.since <= self._grants.number < answer.number:
            return None
        self._grants = _with_rest(answer, self._grants) if answer.since else answer
        return self._grants

    def missed(self) -> None:
        """No answer came: the supervisor may be another one now, or of an older release."""
        self._heard = 0


def _with_rest(news: Grants, before: Grants) -> Grants:
    """Return grants of changes with all that stays of those before them."""
    told = {*news.slots, *news.over}

    def joined(old: Mapping[str, ValueT], new: Mapping[str, ValueT]) -> dict[str, ValueT]:
        return {**{job: value for job, value in old.items() if job not in told}, **new}

    return replace(
        news,
        slots=joined(before.slots, news.slots),
        waiting=joined(before.waiting, news.waiting),
        refused=joined(before.refused, news.refused),
        too_large=joined(before.too_large, news.too_large),
        broken=joined(before.broken, news.broken),
        since=0,
        over=(),
    )
