"""Cuts the grants that answer a client's report to those that have changed since the last ones that it has."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ...changes import Changes
from ..state.messages import ClientReport, Grants, JobGrants

UNHEARD = Grants({})
"""The answer to a report of changes that cannot be taken in. It has no number, so it grants and takes nothing."""


class Answers:
    """What each client was sent."""

    def __init__(self) -> None:
        self._told: dict[str, Changes[JobGrants]] = {}

    def cut(self, report: ClientReport, grants: Grants, told: Mapping[str, JobGrants]) -> Grants:
        """Return numbered grants as they are to be sent; ``told`` is what they say of each job."""
        if not report.takes_changes:
            return grants
        changes = self._told.setdefault(report.client, Changes())
        changes.note(grants.number, told)
        changed = changes.since(report.acknowledged)
        if changed is None:
            return grants
        named = changed.values.keys()
        return replace(
            grants,
            slots=_of(grants.slots, named),
            waiting=_of(grants.waiting, named),
            refused=_of(grants.refused, named),
            too_large=_of(grants.too_large, named),
            broken=_of(grants.broken, named),
            since=report.acknowledged,
            over=changed.over,
        )

    def forget(self, client: str) -> None:
        """Drop what is kept of a client that is gone."""
        self._told.pop(client, None)

    def clients(self) -> list[str]:
        """Return the clients of which something is kept."""
        return list(self._told)


def _of(values: Mapping[str, Any], jobs: Collection[str]) -> dict[str, Any]:
    return {job: values[job] for job in jobs if job in values}
