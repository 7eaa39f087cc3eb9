"""Decides which works of a ladder's renditions begin now, so that they share their decodes. Pure.

Works (pieces of work) that decode the same segment form a group. A group that no other rendition can join begins
immediately. Any other group begins when the ladder has a free slot, unless a rendition that may still join has more
work to ask for now. So a rendition that is late, for example because its disk is slow, shares the next segment again.
This needs no time limit: such a rendition will ask for work, or end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Next(Enum):
    """Whether a rendition will ask for more work before any of its works ends."""

    SURE = "sure"  #: it has no work, so it will ask or end
    LIKELY = "likely"  #: it has less work than it may have
    NONE = "none"  #: all its remaining segments are asked for, or it may not have more work now


@dataclass(frozen=True, slots=True, kw_only=True)
class RenditionState:
    """The state of a rendition that has segments left."""

    runs: int = 0  # its works that have not ended
    segments: int = 0  # the segments of these works; a late segment may have two works
    left: int | None = None  # its segments that are not encoded yet; None before its first demand
    runs_max: int | None = None  # its limit of works at a time, in addition to the slots; None for no limit

    def next(self, slots: int) -> Next:
        """Return whether it will ask for more, if the ladder has this many slots."""
        if self.left is not None and self.segments >= self.left:
            return Next.NONE
        if not self.runs:
            return Next.SURE
        at_once = slots if self.runs_max is None else min(slots, self.runs_max)
        return Next.LIKELY if self.runs < at_once else Next.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroup:
    """Works that decode the same segment, and have not begun."""

    number: int  # a later group has a larger number
    segment: int
    lacks: frozenset[str] = frozenset()  # the renditions with segments left that have not asked for this segment
    is_second: bool = False  # whether it runs a late segment a second time


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRoom:
    """How much a ladder may run at a time."""

    slots: int  # the ladder's slots in the pool
    running: int = 0  # the groups that have begun
    runs_max: int | None = None  # how many groups may run at a time, however many slots there are; None for no limit


_HARMLESS: Final = {False: {Next.NONE}, True: {Next.NONE, Next.LIKELY}}
"""By ``is_second``: a group does not wait for missing renditions with these values of ``Next``. Not every rendition
runs a late segment a second time, so a second run waits only for those that are sure to ask for work."""


def beginning(
    groups: Sequence[OpenGroup], renditions: Mapping[str, RenditionState], room: LadderRoom
) -> tuple[int, ...]:
    """Return the numbers of the groups that begin now. The earliest segments come first.

    Groups that lack no rendition do not wait for a slot here, but in the pool. ``renditions`` has at least the
    renditions that a group lacks.
    """
    most = len(groups) if room.runs_max is None else max(0, room.runs_max - room.running)
    ordered = sorted(groups, key=lambda each: (each.segment, each.number))
    complete = [each.number for each in ordered if not each.lacks][:most]
    free = min(most - len(complete), room.slots - room.running - len(complete))
    if free <= 0:
        return tuple(complete)
    coming = {job: rendition.next(room.slots) for job, rendition in renditions.items()}
    rest = [(each, {coming[job] for job in each.lacks}) for each in ordered if each.lacks]
    ready = [each.number for each, lacking in rest if lacking <= _HARMLESS[each.is_second]][:free]
    if room.running or complete or ready:
        return (*complete, *ready)
    # No group is running whose end could make a rendition ask for work. So one group begins without waiting for
    # renditions that are only likely to ask.
    return tuple(each.number for each, lacking in rest if Next.SURE not in lacking)[:1]
