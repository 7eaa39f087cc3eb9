"""Each group as it is: its nodes that take work, those that leave or are to come, and how many more there may be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from .capacity import NodePool, Purse
from .config import AutoscaleConfig, Group
from .values import GroupSize, NodeSeen

NO_SHOW: Final = 3.0
"""A group whose nodes take this many times their start, and a minute, to come is closed for ``CLOSED_S``."""
NO_SHOW_S: Final = 60.0
CLOSED_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A group as it is: ``here`` are its nodes that take work, ``coming`` were asked for and are not up.

    ``before`` is what was last decided for it, with what has been seen since.
    """

    group: Group
    here: tuple[NodeSeen, ...]
    leaving: int
    coming: int
    before: GroupSize

    @property
    def held(self) -> int:
        """How many of its nodes there are, or were asked for, in whatever state."""
        return len(self.here) + self.leaving + self.coming


def see_group(
    config: AutoscaleConfig, group: Group, nodes: Sequence[NodeSeen], before: GroupSize, now_s: float
) -> SeenGroup:
    """Return a group as it is; one whose nodes do not come is closed for a while, so that others may do."""
    own = [node for node in nodes if node.group == group.name]
    here = tuple(node for node in own if not node.is_leaving)
    before = replace(before, wanted=max(before.wanted, len(here)))  # others may have started some
    coming = before.wanted - len(here)
    is_fewer = coming < before.missing_least or before.missing_s is None
    missing_s = None if not coming else now_s if is_fewer else before.missing_s
    before = replace(before, there=len(here), missing_s=missing_s, missing_least=coming)
    limit_s = NO_SHOW * group.start_s + NO_SHOW_S
    if missing_s is not None and now_s - missing_s > limit_s and now_s >= passed(before.raised_s, config.turn_s):
        closed = replace(before, wanted=len(here), missing_s=None, missing_least=0)
        before, coming = replace(closed, closed_until_s=now_s + CLOSED_S, lowered_s=now_s), 0
    return SeenGroup(group=group, here=here, leaving=len(own) - len(here), coming=coming, before=before)


def passed(at_s: float | None, wait_s: float) -> float:
    """Return when ``wait_s`` have passed since a moment; long ago where there was none."""
    return -inf if at_s is None else at_s + wait_s


def pools_of(config: AutoscaleConfig, seen: Sequence[SeenGroup], now_s: float) -> tuple[list[NodePool], Purse]:
    """Return each group as capacity, the least numbers of nodes included, and what else may be asked for."""
    price = sum(each.held * float(each.group.price_per_hour) for each in seen)
    most = inf if config.price_per_hour_max is None else float(config.price_per_hour_max)
    purse = Purse(max(0, config.nodes_max - sum(each.held for each in seen)), most - price)
    return [_pool(config, each, purse, now_s) for each in seen], purse


def _pool(config: AutoscaleConfig, seen: SeenGroup, purse: Purse, now_s: float) -> NodePool:
    group, before = seen.group, seen.before
    room = max(0, group.nodes_max - seen.held)
    least = min(max(0, group.nodes_min - len(seen.here) - seen.coming), room, purse.most(group))
    purse.spend(group, least)
    is_closed = before.closed_until_s is not None and now_s < before.closed_until_s
    return NodePool(
        group=group,
        there=len(seen.here),
        coming=seen.coming + least,
        coming_at_s=max(now_s, (now_s if before.raised_s is None else before.raised_s) + group.start_s),
        new_at_s=max(now_s, passed(before.lowered_s, config.turn_s)) + group.start_s,
        room=0 if is_closed else room - least,
        is_closed=is_closed,
    )
