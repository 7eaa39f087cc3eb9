"""A placement that stands while little changes: what a change takes is placed again, and all else stays as it is."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import groupby

from ..model.demand import Demand
from ..model.inventory import Inventory, Node
from ..model.placement import Lane, Route
from ..model.policy import Policy
from ..rates import Rates
from .assignment import fill_all, lanes_of
from .fill import Claim, Fill
from .options import PlacementOption

_Place = tuple[int, Route]
"""The order of a site, and the way there."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a change makes of a placement: jobs' lanes from now on, by job and node, where they may be others.

    ``is_moved``: some session is elsewhere than before, or nowhere.
    """

    lanes: Mapping[str, Mapping[str, tuple[Lane, ...]]]
    is_moved: bool


class StandingPlacement:
    """A placement, with the lanes of ``place``, that can follow small changes of nodes without being made again.

    Sessions on a node that changes stay there as far as they still fit; the others go where there is room. No job gets
    more of them than it had, none gives one up for another, and shares are not worked out again: the next placement
    does all that.
    """

    def __init__(self, demands: Sequence[Demand], inventory: Inventory, rates: Rates, policy: Policy) -> None:
        filled = fill_all(demands, inventory, rates, policy)
        self.placement = filled.placement(in_full=False)
        """What was placed at first; ``take_in`` returns what has become of it."""
        self._ledger, self._catalogue = filled.ledger, filled.catalogue
        self._fills = {fill.claims[0].demand.priority: fill for fill in filled.fills}
        self._nodes = [node.node for node in filled.nodes]
        self._index = {node.node: index for index, node in enumerate(filled.nodes)}
        self._order = {claim: number for number, claim in enumerate(filled.claims)}
        self._at: list[set[Claim]] = [set() for _ in filled.nodes]
        for claim in filled.claims:
            for index in claim.given:
                self._at[_host(claim, index)].add(claim)
        self._had: set[Claim] = set()
        self._owed: set[Claim] = set()

    def follows(self, node: Node) -> bool:
        """Return whether it can follow what has become of a node: it was there before, with the same devices."""
        index = self._index.get(node.node)
        if index is None:
            return False
        return [site.device.device for site in self._ledger.sites_at(index)] == [each.device for each in node.devices]

    def take_in(self, nodes: Sequence[Node]) -> Replaced:
        """Follow what has become of some nodes, in which nothing changes but them; one that is gone is not open."""
        hosts = {self._index[node.node]: node for node in nodes}
        concerned = self._owed.union(*(self._at[index] for index in hosts))
        left = {claim: self._leave(claim, hosts.keys()) for claim in sorted(concerned, key=self._order.__getitem__)}
        for index, node in hosts.items():
            self._at[index].clear()
            self._ledger.reopen(index, node)
        kept, moved = 0, list[tuple[Claim, int]]()
        touched = {claim: set(hosts) for claim in left}
        for priority, members in groupby(left, key=lambda claim: claim.demand.priority):
            fill, claims = self._fills[priority], list(members)
            again = self._keep(fill, {claim: self._again(claim, left[claim]) for claim in claims})
            more = fill.give_more(claims)
            kept, moved = kept + len(again), moved + more
            for claim, index in (*again, *more):
                touched[claim].add(_host(claim, index))
                self._at[_host(claim, index)].add(claim)
        self._owed = {claim for claim in left if claim.sessions < claim.limit}
        lanes = {claim.demand.job: self._lanes(claim, hosts_of) for claim, hosts_of in touched.items()}
        return Replaced(lanes, bool(moved) or kept < sum(map(len, left.values())))

    def _leave(self, claim: Claim, hosts: Collection[int]) -> list[_Place]:
        """Have a claim give up its sessions on hosts, and return where each was."""
        if claim not in self._had:
            self._had.add(claim)
            claim.limit = claim.sessions
        left: list[_Place] = []
        for index in [each for each in claim.given if _host(claim, each) in hosts]:
            option, sessions = claim.options[index], claim.given.pop(index)
            left += [_place(option)] * sessions
            claim.sessions -= sessions
            claim.share = claim.share - sessions * self._ledger.share_of(option.recipe) if claim.sessions else 0.0
        return left

    def _again(self, claim: Claim, places: Iterable[_Place]) -> Iterator[int]:
        """Yield the options that a claim has now at the places that it left."""
        if claim.kinds is None:
            return
        reopened = self._catalogue.options(claim.demand, claim.kinds).reopened.values()
        found = {_place(claim.options[index]): index for indices in reopened for index in indices}
        yield from (found[place] for place in places if place in found)

    def _keep(self, fill: Fill, again: Mapping[Claim, Iterator[int]]) -> list[tuple[Claim, int]]:
        """Give claims what they had, as far as there is room: the next session to the smallest weighted share."""
        claims, kept = list(again), list[tuple[Claim, int]]()
        waiting = [(claim.weighted_share, number) for number, claim in enumerate(claims)]
        heapify(waiting)
        while waiting:
            number = waiting[0][1]
            claim = claims[number]
            index = next((each for each in again[claim] if self._fits(claim.options[each])), None)
            if index is None:
                heappop(waiting)
                continue
            fill.take(claim, index)
            kept.append((claim, index))
            heapreplace(waiting, (claim.weighted_share, number))
        return kept

    def _lanes(self, claim: Claim, hosts: Collection[int]) -> dict[str, tuple[Lane, ...]]:
        """Return a claim's lanes on hosts, by node."""
        found: dict[int, list[int]] = {index: [] for index in hosts}
        for index in claim.given:
            if (host := _host(claim, index)) in found:
                found[host].append(index)
        return {
            self._nodes[host]: tuple(lanes_of(claim, indices, self._ledger)) for host, indices in sorted(found.items())
        }

    def _fits(self, option: PlacementOption) -> bool:
        return not self._ledger.why_not(option.site, option.recipe)


def _place(option: PlacementOption) -> _Place:
    return option.site.order, option.recipe.route


def _host(claim: Claim, index: int) -> int:
    """Return the host of one of a claim's options."""
    return claim.options[index].site.host.index
