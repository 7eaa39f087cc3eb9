"""The works (pieces of work) of a ladder's renditions that decode the same segment."""

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from ...actors.device.work import Work
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.segment.together import EncodeTogether, decodes_alike
from ...cluster.fleet.run import WorkRun


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The work of one rendition, and the run that its job awaits."""

    work: EncodeSegment
    run: WorkRun[EncodedSegment]
    ask: int  # how many works the rendition has submitted for this segment, including this one


@dataclass(slots=True, eq=False)
class DecodeGroup:
    """The works of several renditions that decode the same segment; they run as one once ``run`` is set."""

    number: int
    is_alone: bool  # whether it has one rendition, and takes no other
    apart_from: str  # the label of the running work whose station the group avoids
    members: list[GroupMember] = field(default_factory=list)
    run: WorkRun[Any] | None = None
    given_up: set[str] = field(default_factory=set)  # the renditions that want another worker

    def takes(self, work: EncodeSegment, apart_from: str) -> bool:
        """Return whether ``work`` can join: the group has not begun, and decodes the same for other renditions."""
        live = self.live
        if not live or self.is_alone or self.run is not None or apart_from != self.apart_from:
            return False
        wanted = _anywhere(work)
        return all(each.work.job != work.job and decodes_alike(_anywhere(each.work), wanted) for each in live)

    @property
    def live(self) -> list[GroupMember]:
        """The members that are still wanted."""
        return [each for each in self.members if not each.run.result.done()]

    @property
    def label(self) -> str:
        """The name of the members' common work."""
        return " and ".join(label_of(each.work) for each in self.members)

    def as_one(self, ladder: str) -> Work[Any]:
        """Return the members' works as one work of the ladder's job, in which they share their cores."""
        works = [each.work for each in self.members]
        first = works[0]
        if len(works) == 1:
            return replace(first, job=ladder, label=self.label, apart_from=self.apart_from)
        avoid = frozenset(chain.from_iterable(work.constraints.avoid for work in works))
        constraints = replace(first.constraints, avoid=avoid)
        shares = (
            replace(work, constraints=constraints, cores=max(1, work.cores // len(works)))
            for work in map(_anywhere, works)
        )
        return EncodeTogether(
            job=ladder,
            label=self.label,
            apart_from=self.apart_from,
            constraints=constraints,
            ships=first.ships,
            segments=tuple(shares),
        )


def label_of(work: Work[Any]) -> str:
    """Return the label of a rendition's work in the ladder's job."""
    return f"{work.label} of {work.job}"


def _anywhere(work: EncodeSegment) -> EncodeSegment:
    """Return the work as if it could run anywhere: the stations and the earlier run to avoid differ between jobs."""
    return replace(work, constraints=replace(work.constraints, avoid=frozenset()), apart_from="")
