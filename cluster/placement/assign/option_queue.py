"""The order in which a demand's sessions take the demand's options."""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, heapreplace
from math import log
from typing import NamedTuple

from .ledger import Ledger, Site
from .recipes import Recipe

_STEP = log(1.25)
_NO_GAIN = -1_000_000
_LAST = 10_000_000  # larger than any step of gain: nodes of last resort come after all others
_BESIDE_GPU = 1 << 30  # larger than any number of sessions: hosts with a GPU come after hosts without one
_EXACT = 1e9  # loads count as equal if they differ by less than one part in this many

_Entry = tuple[int, int, int, int, int]
"""A host's best option as a sort key.

The numbers are: rank and gain together; load; open GPU sessions, plus ``_BESIDE_GPU`` on a host with a GPU, which thus
comes after hosts without; position; the host's ``changes``.
"""


class PlacementOption(NamedTuple):
    """One route on one device."""

    site: Site
    recipe: Recipe
    rank: int  # 1 on nodes that are used only as a last resort, otherwise 0
    share: float  # the largest fraction of the fleet's engines of one kind that one session takes


class OptionQueue:
    """A demand's options, in the order in which sessions take them.

    The first of these criteria that differs decides:
    1. nodes of last resort come last;
    2. the largest gain in frames a second, in steps of a quarter, because rates are not exact;
    3. the least loaded engines, or cores if they encode;
    4. a host without a GPU, which keeps GPUs free for work that only they can do;
    5. the host with the fewest open GPU sessions;
    6. a whole GPU before a share, whose engines others may use;
    7. cores for which a GPU decodes before cores that also decode;
    8. the inventory's order, so that few GPUs of a host are opened if cores are short.

    A session changes only the options of its own host, and only for the worse. So hosts wait in a heap, ordered by the
    best option that fits. A host is examined again only if it comes first and has changed, or if a session was released
    there.
    """

    def __init__(self, options: Sequence[PlacementOption], ledger: Ledger) -> None:
        self._ledger = ledger
        self._gains: dict[tuple[float, ...], tuple[int, float]] = {}
        self._indices = sorted(range(len(options)), key=lambda index: _fixed_key(options[index]))
        self._options = [options[index] for index in self._indices]  # the options in the order of their positions
        self._at: dict[int, list[int]] = {}  # the positions of each host's options; equal recipes are adjacent
        for position in sorted(range(len(options)), key=lambda position: id(self._options[position].recipe)):
            self._at.setdefault(self._options[position].site.host.index, []).append(position)
        self._heap = [entry for host in self._at if (entry := self._best(self._at[host])) is not None]
        heapify(self._heap)
        self._given_back = len(ledger.given_back)

    def next_fit(self) -> int | None:
        """Return the index of the option to take next; None if no option fits."""
        heap, given_back = self._heap, self._ledger.given_back
        if len(given_back) > self._given_back:
            for at in given_back[self._given_back :]:
                if at in self._at and (entry := self._best(self._at[at])) is not None:
                    heappush(heap, entry)
            self._given_back = len(given_back)
        while heap:
            _, _, _, position, changes = heap[0]
            host = self._options[position].site.host
            if host.changes == changes:
                return self._indices[position]
            if (entry := self._best(self._at[host.index])) is None:
                heappop(heap)
            else:
                heapreplace(heap, entry)
        return None

    def best_at(self, site: Site) -> int | None:
        """Return the index of the best option on a device; None if no option fits."""
        here = (at for at in self._at[site.host.index] if self._options[at].site is site)
        entry = self._best(list(here))
        return None if entry is None else self._indices[entry[3]]

    def _best(self, positions: Sequence[int]) -> _Entry | None:
        """Return the best option that fits on a host; None if no option fits."""
        best: _Entry | None = None
        like: PlacementOption | None = None  # a later option with this recipe and these loads is no better
        for position in positions:
            site, recipe, rank, _ = option = self._options[position]
            if like is not None and recipe is like.recipe and site.loads == like.site.loads:
                continue
            host = site.host
            step, load = self._step_and_load(site, recipe) if recipe.engines else (_step(recipe.fps), 0.0)
            if not recipe.encoder_sessions:  # the cores encode
                load = host.cores_used / host.cores if host.cores else 0.0
            crowd = host.device_sessions + (_BESIDE_GPU if host.has_gpu else 0)
            entry = (rank * _LAST - step, int(load * _EXACT + 0.5), crowd, position, host.changes)
            if best is None or entry < best:
                if self._ledger.why_not(site, recipe):
                    continue
                best = entry
            like = option
        return best

    def _step_and_load(self, site: Site, recipe: Recipe) -> tuple[int, float]:
        """Return the step of a GPU's gain and the load of its busiest engine, computed once for equal devices."""
        key = (id(recipe), *site.loads.values())
        if key not in self._gains:
            load = max(site.loads[use.engine] / use.load_most for use in recipe.engines)
            self._gains[key] = (_step(self._ledger.gain_fps(site, recipe)), load)
        return self._gains[key]


@lru_cache
def _step(gain_fps: float) -> int:
    return round(log(gain_fps) / _STEP) if gain_fps > 0 else _NO_GAIN


def _fixed_key(option: PlacementOption) -> tuple[float, bool, int]:
    """Return the part of the sort key that sessions do not change."""
    return (-option.site.device.share, option.recipe.route.is_software, option.site.order)
