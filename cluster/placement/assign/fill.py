"""Giving out sessions among demands of one priority: first one each, then by weighted fair shares."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import zip_longest
from math import ceil

from ..model.demand import Demand
from ..model.placement import Route
from ..model.policy import Policy
from .ledger import Ledger, Site
from .option_queue import OptionQueue, option_key
from .options import Catalogue, Options, PlacementOption
from .recipes import Kinds, Recipe


@dataclass(slots=True, eq=False)
class Claim:
    """A demand while it is served. ``given`` counts sessions by option; ``kinds`` is None while none can be found."""

    demand: Demand
    wanted: int
    weight: float
    kinds: Kinds | None = None
    options: Sequence[PlacementOption] = ()
    choices: list[Kinds] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)
    sessions: int = 0
    share: float = 0.0
    limit: int = 0
    """The most sessions of use: no more than wanted, and none that opens when all is done."""

    @property
    def weighted_share(self) -> float:
        """What it has, by its weight: the smallest gets the next session."""
        return self.share / self.weight


def sessions_wanted(demand: Demand) -> int:
    """Return the most sessions a demand can use: one for each segment, and no more than its own bound."""
    segments = len(demand.segments)
    return segments if demand.workers_max is None else min(segments, demand.workers_max)


class Fill:
    """All demands of one priority."""

    def __init__(self, demands: Iterable[Demand], ledger: Ledger, catalogue: Catalogue, policy: Policy) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        most = float(policy.weight_most)
        self.claims = [
            Claim(demand, sessions_wanted(demand), min(max(float(demand.weight), 1 / most), most)) for demand in demands
        ]
        self._queues: dict[int, OptionQueue] = {}
        self._places_of: dict[int, dict[int, list[int]]] = {}
        self._rooms: dict[tuple[int, int, int], bool] = {}
        self._capacities: dict[tuple[int, int], tuple[float, float]] = {}
        self._shares: dict[int, float] = {}
        self._useful: dict[tuple[int, tuple[int, ...], int], int] = {}

    def run(self) -> None:
        """Give out all that can be given."""
        active = [claim for claim in self.claims if claim.wanted > 0]
        self._choose_kinds(active)
        self._give_first(active)
        self._give_more([claim for claim in active if claim.sessions])

    def _choose_kinds(self, claims: list[Claim]) -> None:
        """Choose each track's encoder kind: what finishes soonest beside those that have chosen before."""
        pressure = {True: 0.0, False: 0.0}
        for claim in claims:
            order = []
            for number, kinds in enumerate(self._catalogue.choices(claim.demand)):
                options = self._catalogue.options(claim.demand, kinds)
                side = any(kind.is_nvenc for kind in kinds)
                fps, fastest = self._capacity(claim.wanted, options)
                if fps > 0:
                    fps *= claim.weight / (claim.weight + pressure[side])
                    segments = claim.demand.segments
                    order.append((max(sum(segments) / fps, max(segments) / fastest), number, kinds))
            claim.choices = [kinds for _, _, kinds in sorted(order, key=lambda entry: entry[:2])]
            if claim.choices:
                self._settle(claim, claim.choices[0])
                pressure[any(kind.is_nvenc for kind in claim.choices[0])] += claim.weight

    def _capacity(self, wanted: int, options: Options) -> tuple[float, float]:
        key = (wanted, id(options))
        if key not in self._capacities:
            self._capacities[key] = _capacity_fps(wanted, options.by_speed(), self._ledger)
        return self._capacities[key]

    def _settle(self, claim: Claim, kinds: Kinds) -> None:
        claim.kinds = kinds
        options = self._catalogue.options(claim.demand, kinds)
        claim.options = options.found
        key = (claim.wanted, claim.demand.segments, id(options))
        if key not in self._useful:
            self._useful[key] = _useful_sessions(claim.wanted, claim.demand.segments, options, self._ledger)
        claim.limit = self._useful[key]

    def _give_first(self, claims: list[Claim]) -> None:
        """Give every claim one session, moving others' first ones where that helps."""
        holders: dict[int, list[Claim]] = {}
        for claim in sorted(claims, key=lambda claim: (len(claim.options), claim.demand.job)):
            for kinds in claim.choices:
                self._settle(claim, kinds)
                if self._give_one(claim, holders):
                    break
            else:
                if claim.choices:
                    self._settle(claim, claim.choices[0])

    def _give_one(self, claim: Claim, holders: dict[int, list[Claim]]) -> bool:
        index = self._queue(claim).next_fit()
        if index is not None:
            self._book(claim, index, holders)
            return True
        refused: set[tuple[Claim, Claim | None]] = set()
        while path := self._path(claim, holders, refused):
            failed = self._move(path, holders)
            if failed is None:
                return True
            refused.add(failed)
        return False

    def _path(
        self, claim: Claim, holders: dict[int, list[Claim]], refused: set[tuple[Claim, Claim | None]]
    ) -> list[Claim]:
        """Return the shortest chain of claims that each want the next one's place; the last has room elsewhere.

        An augmenting path (C. Berge, Two theorems in graph theory, 1957). Whether a claim fits where the next one was
        shows when they move; ``refused`` are those that did not, with None for a last one that had no room after all.
        Return nothing where there is no such chain.
        """
        found, visited = {claim}, set[int]()
        reached = deque([[claim]])
        while reached:
            path = reached.popleft()
            for order in sorted(self._places(path[-1]).keys() - visited):
                here = [other for other in holders.get(order, ()) if (path[-1], other) not in refused]
                if len(here) == len(holders.get(order, ())):
                    visited.add(order)
                for other in here:
                    # A claim with the same options has nowhere else to go either.
                    if other in found or other.options is path[-1].options:
                        continue
                    found.add(other)
                    reached.append([*path, other])
                    if (other, None) not in refused and self._has_room(other):
                        return [*path, other]
        return []

    def _has_room(self, claim: Claim) -> bool:
        """Return whether a claim's only session may have room elsewhere: on its own host, without what it takes now."""
        if self._queue(claim).next_fit() is not None:
            return True
        held = claim.options[next(iter(claim.given))]
        state = (id(claim), id(held), held.site.host.changes)
        if state not in self._rooms:
            others = (each for each in claim.options if each.site.host is held.site.host and each.site is not held.site)
            with self._ledger.without(held.site, held.recipe):
                self._rooms[state] = not all(self._ledger.why_not(each.site, each.recipe) for each in others)
        return self._rooms[state]

    def _places(self, claim: Claim) -> dict[int, list[int]]:
        """Return the devices that could serve a claim, each with its options."""
        key = id(claim.options)
        if key not in self._places_of:
            found = self._places_of[key] = dict[int, list[int]]()
            for index, option in enumerate(claim.options):
                found.setdefault(option.site.order, []).append(index)
        return self._places_of[key]

    def _move(self, path: Sequence[Claim], holders: dict[int, list[Claim]]) -> tuple[Claim, Claim | None] | None:
        """Give each claim of a path the next one's place, and the last another; or leave all, and return who failed."""
        before = [next(iter(claim.given), None) for claim in path]
        for claim, after in zip_longest(path, path[1:]):
            place = None if after is None else self._leave(after, holders)
            index = self._queue(claim).next_fit() if place is None else self._best_at(claim, place)
            if index is None:
                self._restore(path, before, holders)
                return claim, after
            self._book(claim, index, holders)
        return None

    def _restore(self, path: Sequence[Claim], before: Sequence[int | None], holders: dict[int, list[Claim]]) -> None:
        for claim in path:
            if claim.given:
                self._leave(claim, holders)
        for claim, index in zip(path, before, strict=True):
            if index is not None:
                self._book(claim, index, holders)

    def _best_at(self, claim: Claim, order: int) -> int | None:
        fitting = [
            (option_key(claim.options[index], self._ledger), index)
            for index in self._places(claim)[order]
            if not self._ledger.why_not(claim.options[index].site, claim.options[index].recipe)
        ]
        return min(fitting)[1] if fitting else None

    def _book(self, claim: Claim, index: int, holders: dict[int, list[Claim]]) -> None:
        self._take(claim, index)
        holders.setdefault(claim.options[index].site.order, []).append(claim)

    def _leave(self, claim: Claim, holders: dict[int, list[Claim]]) -> int:
        """Give a claim's only session back; return its device."""
        option = claim.options[next(iter(claim.given))]
        self._ledger.take(option.site, option.recipe, -1)
        holders[option.site.order].remove(claim)
        claim.given.clear()
        claim.sessions = 0
        claim.share = 0.0
        return option.site.order

    def _give_more(self, claims: list[Claim]) -> None:
        """Give the next session to the smallest weighted share, until none can take one."""
        waiting = [
            (claim.weighted_share, number) for number, claim in enumerate(claims) if claim.sessions < claim.limit
        ]
        heapify(waiting)
        while waiting:
            number = waiting[0][1]
            claim = claims[number]
            index = self._queue(claim).next_fit()
            if index is None:
                heappop(waiting)
                continue
            self._take(claim, index)
            if claim.sessions < claim.limit:
                heapreplace(waiting, (claim.weighted_share, number))
            else:
                heappop(waiting)

    def _take(self, claim: Claim, index: int) -> None:
        """Give a claim a session of one of its options."""
        option = claim.options[index]
        self._ledger.take(option.site, option.recipe)
        claim.given[index] = claim.given.get(index, 0) + 1
        claim.sessions += 1
        share = self._shares.get(id(option.recipe))
        if share is None:
            share = self._shares[id(option.recipe)] = self._ledger.share_of(option.recipe)
        claim.share += share

    def _queue(self, claim: Claim) -> OptionQueue:
        # Demands that ask for the same share the tuple of their options, and so the queue.
        if id(claim.options) not in self._queues:
            self._queues[id(claim.options)] = OptionQueue(claim.options, self._ledger)
        return self._queues[id(claim.options)]


def _capacity_fps(wanted: int, by_speed: Iterable[PlacementOption], ledger: Ledger) -> tuple[float, float]:
    """Return how many frames a second ``wanted`` sessions would give at best, and the fastest of them alone.

    Sessions go to the fastest devices first, and to each no more than it takes; (0, 0) where there is no room.
    """
    left, fps, cores = wanted, 0.0, dict[int, float]()
    fastest = 0.0
    for option in by_speed:
        if left <= 0:
            break
        site, recipe = option.site, option.recipe
        used = cores.get(site.host.index, 0.0)
        sessions = min(left, _room_for(site, recipe, ledger, used))
        if sessions <= 0:
            continue
        cores[site.host.index] = used + sessions * recipe.cores
        left -= sessions
        part = 1.0
        for use in recipe.engines:
            part = min(part, use.slowdown(site.loads[use.engine] + sessions * use.load))
        fps += sessions * recipe.fps * part
        fastest = max(fastest, recipe.fps)
    return fps, fastest


def _useful_sessions(wanted: int, segments: Sequence[int], options: Options, ledger: Ledger) -> int:
    """Return how many of ``wanted`` sessions open in time to do one of the ``segments`` (frames); 1 at least.

    A host's drivers open GPU sessions one after the other (measured: 0.1 s each, however many GPUs there are), so a
    short job has no use for many. Software sessions open at once.
    """
    recipes = options.open_recipes
    if wanted <= 1 or not recipes or any(recipe.route is Route.CPU for recipe in recipes):
        return wanted
    times = ledger.hardware.sessions
    hosts = {option.site.host.index: option.site.host.device_sessions for option in options.found}
    before = sum(hosts.values()) / len(hosts)
    work_s = sum(segments) / max(recipe.fps for recipe in recipes)
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


def _room_for(site: Site, recipe: Recipe, ledger: Ledger, cores_used: float) -> int:
    """Return how many more sessions a device takes, where ``cores_used`` more of its host's cores are taken."""
    host = site.host
    rooms = [ledger.policy.sessions_per_device - site.sessions]
    if host.cores is not None and recipe.cores:
        rooms.append(int((host.cores - host.cores_used - cores_used) / recipe.cores + 1e-9))
    rooms += [int((use.load_most - site.loads[use.engine]) / use.load + 1e-9) for use in recipe.engines]
    if recipe.encoder_sessions:
        capped = [caps.most - caps.open for caps in site.caps if caps.most is not None]
        rooms += [free // recipe.encoder_sessions for free in capped]
    if site.memory_bytes is not None and recipe.device_bytes:
        context = 0 if site.sessions else ledger.context_bytes
        rooms.append((site.memory_bytes - site.memory_used - context) // recipe.device_bytes)
    if (room := host.room_for(recipe.host_bytes)) is not None:
        rooms.append(room)
    if not recipe.device_bytes:
        rooms = rooms[1:]
    return max(0, min(rooms))
