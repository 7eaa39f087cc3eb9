"""Gives sessions to the demands of one priority: first one session each, then more by weighted fair shares."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import zip_longest
from math import ceil

from ..model.demand import Demand
from .ledger import Ledger, Site
from .option_queue import PlacementOption
from .options import Catalogue, Options


@dataclass(slots=True, eq=False)
class Claim:
    """A demand, and the sessions that it has received so far."""

    demand: Demand
    wanted: int  # how many sessions the demand can use
    weight: float
    # The options for each choice of encoder kinds; the choice with which the job ends soonest comes first.
    choices: list[Options] = field(default_factory=list)
    options: Options = field(init=False)  # the chosen element of ``choices``, if any
    limit: int = 0  # how many sessions are worth opening: ``wanted``, minus those that would open too late
    given: dict[int, int] = field(default_factory=dict)  # the number of sessions of each option, by the option's index
    sessions: int = 0
    share: float = 0.0  # the sum of the sessions' shares of the fleet; see ``Ledger.share_of``

    @property
    def first(self) -> PlacementOption:
        """The option of the claim's only session."""
        return self.options.found[next(iter(self.given))]


def sessions_wanted(demand: Demand) -> int:
    """Return how many sessions a demand can use: one per segment, up to the demand's limit."""
    segments = len(demand.segments)
    return segments if demand.workers_max is None else min(segments, demand.workers_max)


class Fill:
    """Gives sessions to all demands of one priority."""

    def __init__(self, demands: Iterable[Demand], ledger: Ledger, catalogue: Catalogue) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        most = float(ledger.policy.weight_most)
        self.claims = [
            Claim(demand, sessions_wanted(demand), min(max(float(demand.weight), 1 / most), most)) for demand in demands
        ]
        # For each device, by index: the claims whose only session is there.
        self._holders: dict[int, list[Claim]] = {}
        self._capacities: dict[tuple[int, Options], tuple[float, float]] = {}
        self._useful: dict[tuple[int, tuple[int, ...], Options], int] = {}
        self._rooms: dict[tuple[Claim, int, int], bool] = {}

    def run(self) -> None:
        """Give out as many sessions as possible."""
        self._choose_kinds()
        self._give_first()
        self._give_more()

    def _choose_kinds(self) -> None:
        """Choose the encoder kinds that end each claim's job soonest with the capacity that earlier claims leave."""
        pressure = {True: 0.0, False: 0.0}
        for claim in self.claims:
            order = []
            for number, options in enumerate(self._catalogue.choices(claim.demand) if claim.wanted else ()):
                fps, fastest = self._capacity(claim.wanted, options)
                if fps > 0:
                    fps *= claim.weight / (claim.weight + pressure[options.has_nvenc])
                    segments = claim.demand.segments
                    order.append((max(sum(segments) / fps, max(segments) / fastest), number, options))
            claim.choices = [options for _, _, options in sorted(order, key=lambda entry: entry[:2])]
            if claim.choices:
                self._choose(claim, claim.choices[0])
                pressure[claim.options.has_nvenc] += claim.weight

    def _capacity(self, wanted: int, options: Options) -> tuple[float, float]:
        key = (wanted, options)
        if key not in self._capacities:
            self._capacities[key] = _capacity_fps(wanted, options.by_speed(), self._ledger)
        return self._capacities[key]

    def _choose(self, claim: Claim, options: Options) -> None:
        claim.options, claim.limit = options, claim.wanted
        if claim.wanted > 1 and not options.has_software:
            key = (claim.wanted, claim.demand.segments, options)
            if key not in self._useful:
                self._useful[key] = _useful_sessions(claim.wanted, claim.demand.segments, options, self._ledger)
            claim.limit = self._useful[key]

    def _give_first(self) -> None:
        """Give every claim one session; move the first sessions of other claims if that makes room."""
        able = [claim for claim in self.claims if claim.choices]
        for claim in sorted(able, key=lambda claim: (len(claim.options.found), claim.demand.job)):
            for options in claim.choices:
                self._choose(claim, options)
                if self._give_one(claim):
                    break
            else:
                self._choose(claim, claim.choices[0])

    def _give_one(self, claim: Claim) -> bool:
        index = claim.options.queue.next_fit()
        if index is not None:
            self._enter(claim, index)
            return True
        refused: set[tuple[Claim, Claim | None]] = set()
        while path := self._path(claim, refused):
            failed = self._move(path)
            if failed is None:
                return True
            refused.add(failed)
        return False

    def _path(self, claim: Claim, refused: set[tuple[Claim, Claim | None]]) -> list[Claim]:
        """Return the shortest chain of claims in which each claim can take the next claim's place.

        The last claim can move to a free place. Return [] if there is no such chain. The chain is an augmenting path
        (C. Berge, Two theorems in graph theory, 1957). Only a trial move shows whether a claim fits in another claim's
        place. ``refused`` has the moves that failed: (claim, claim to replace), or (claim, None) if the last claim
        found no free place.
        """
        found, visited = {claim}, set[int]()
        reached = deque([[claim]])
        while reached:
            path = reached.popleft()
            for order in sorted(path[-1].options.at.keys() - visited):
                holders = self._holders.get(order, ())
                here = [other for other in holders if (path[-1], other) not in refused]
                if len(here) == len(holders):
                    visited.add(order)
                for other in here:
                    # A claim with the same options can move only to the same places.
                    if other in found or other.options is path[-1].options:
                        continue
                    found.add(other)
                    reached.append([*path, other])
                    if (other, None) not in refused and self._has_room(other):
                        return [*path, other]
        return []

    def _has_room(self, claim: Claim) -> bool:
        """Return whether a claim's only session may fit elsewhere after the session has released its resources."""
        if claim.options.queue.next_fit() is not None:
            return True
        held = claim.first
        state = (claim, held.site.order, held.site.host.changes)
        if state not in self._rooms:
            others = (
                each for each in claim.options.found if each.site.host is held.site.host and each.site is not held.site
            )
            with self._ledger.without(held.site, held.recipe):
                self._rooms[state] = not all(self._ledger.why_not(each.site, each.recipe) for each in others)
        return self._rooms[state]

    def _move(self, path: Sequence[Claim]) -> tuple[Claim, Claim | None] | None:
        """Move each claim to the next claim's place, and the last claim elsewhere.

        If a move fails, undo all, and return this move.
        """
        before = [next(iter(claim.given), None) for claim in path]
        for claim, after in zip_longest(path, path[1:]):
            place = None if after is None else self._leave(after)
            index = claim.options.queue.next_fit() if place is None else claim.options.queue.best_at(place)
            if index is None:
                self._restore(path, before)
                return claim, after
            self._enter(claim, index)
        return None

    def _restore(self, path: Sequence[Claim], before: Sequence[int | None]) -> None:
        for claim in path:
            if claim.given:
                self._leave(claim)
        for claim, index in zip(path, before, strict=True):
            if index is not None:
                self._enter(claim, index)

    def _enter(self, claim: Claim, index: int) -> None:
        self._holders.setdefault(self._take(claim, index), []).append(claim)

    def _leave(self, claim: Claim) -> Site:
        """Take a claim's only session back; return the session's device."""
        option = claim.first
        self._ledger.take(option.site, option.recipe, -1)
        self._holders[option.site.order].remove(claim)
        claim.given.clear()
        claim.sessions = 0
        claim.share = 0.0
        return option.site

    def _give_more(self) -> None:
        """Give each next session to the claim with the smallest weighted share, until no claim can take a session."""
        rounds: dict[float, list[int]] = {}  # claims by weighted share; claims with equal shares get sessions in turn
        for number, claim in enumerate(self.claims):
            if 0 < claim.sessions < claim.limit:
                rounds.setdefault(claim.share / claim.weight, []).append(number)
        shares = [*rounds]
        heapify(shares)
        while shares:
            for number in sorted(rounds.pop(heappop(shares))):
                claim = self.claims[number]
                index = claim.options.queue.next_fit()
                if index is None:
                    continue
                self._take(claim, index)
                if claim.sessions < claim.limit:
                    share = claim.share / claim.weight
                    if share not in rounds:
                        rounds[share] = []
                        heappush(shares, share)
                    rounds[share].append(number)

    def _take(self, claim: Claim, index: int) -> int:
        """Give a claim a session of one of its options; return the index of the device in the inventory."""
        site, recipe, _, share = claim.options.found[index]
        self._ledger.take(site, recipe)
        claim.given[index] = claim.given.get(index, 0) + 1
        claim.sessions += 1
        claim.share += share
        return site.order


def _capacity_fps(wanted: int, by_speed: Iterable[PlacementOption], ledger: Ledger) -> tuple[float, float]:
    """Return the most frames a second that ``wanted`` sessions could give, and the speed of the fastest session.

    The fastest devices are filled first, each with all sessions that fit. Return (0, 0) if no session fits.
    """
    left, fps, fastest, cores = wanted, 0.0, 0.0, dict[int, float]()
    for site, recipe, _, _ in by_speed:
        if left <= 0:
            break
        used = cores.get(site.host.index, 0.0)
        sessions = min(left, ledger.room_for(site, recipe, used))
        if sessions <= 0:
            continue
        cores[site.host.index] = used + sessions * recipe.cores
        left -= sessions
        parts = [use.slowdown(site.loads[use.engine] + sessions * use.load) for use in recipe.engines]
        fps += sessions * recipe.fps * min([1.0, *parts])
        fastest = max(fastest, recipe.fps)
    return fps, fastest


def _useful_sessions(wanted: int, segments: Sequence[int], options: Options, ledger: Ledger) -> int:
    """Return how many of ``wanted`` GPU sessions open early enough to get one of the ``segments``; at least 1.

    A host's drivers open GPU sessions one after the other (measured: 0.1 s each, for any number of GPUs), so a short
    job cannot use many sessions. ``segments`` has the frames of each segment.
    """
    times = ledger.hardware.sessions
    hosts = {option.site.host.index: option.site.host.device_sessions for option in options.found}
    before = sum(hosts.values()) / len(hosts)
    work_s = sum(segments) / max(recipe.fps for recipe in options.open_recipes)
    segment_s = work_s / len(segments)
    opened_s = 0.0
    for number in range(wanted):
        ready_s = times.first_start_s + (before + number // len(hosts)) * times.start_s
        if number:
            done_s = max((work_s + opened_s) / number, ceil(len(segments) / number) * segment_s)
            if ready_s + segment_s >= done_s:
                return number
        opened_s += ready_s
    return wanted
