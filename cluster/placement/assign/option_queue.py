"""In which order a demand's options are taken, as sessions fill devices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import log

from ..model.placement import Route
from .ledger import Host, Ledger
from .options import PlacementOption

_HostsKey = tuple[int, int, float, bool, int, float, bool, int]
_OwnKey = tuple[int, int, float, float, bool, int, int]
_RecipesPart = tuple[int, float, bool]

_STEP = log(1.25)
_NO_GAIN = -1_000_000
_HOSTS = -1.0
"""For the load of an option that loads its host's cores: it is the host's."""


def option_key(option: PlacementOption, ledger: Ledger) -> _HostsKey:
    """Return an option's sort key: the least is taken first. It only grows while sessions are given out.

    Nodes of last resort come last. Then the largest gain in frames a second, in steps of a quarter: rates are no more
    exact than that. Then the least loaded; then hosts without a GPU, so that GPUs stay free for what only they do; then
    the host with the fewest open GPU sessions; then a whole GPU before a share of one, whose engines others may be
    using; then a GPU that decodes for the cores before the cores alone, since those are slower, if by less than a step;
    then the inventory's order, so that few GPUs of a host are opened where cores are short.
    """
    return _among_hosts(_on_host(option, 0, _of_recipe(option, ledger)), option.site.host)


def _of_recipe(option: PlacementOption, ledger: Ledger) -> _RecipesPart:
    """Return the part of the key that devices with the same recipe and the same loads share.

    That is the gain's step, less being more; the load on the busiest engine, from 0, and where none encodes, that of
    the host's cores; and whether the cores do all.
    """
    site, recipe = option.site, option.recipe
    gain = ledger.gain_fps(site, recipe)
    load = max(site.loads[use.engine] / use.load_most for use in recipe.engines) if recipe.encoder_sessions else _HOSTS
    step = round(log(gain) / _STEP) if gain > 0 else _NO_GAIN
    return -step, round(load, 9), recipe.route is Route.CPU


def _on_host(option: PlacementOption, index: int, of_recipe: _RecipesPart) -> _OwnKey:
    """Return the part of the key in which options of one host differ, and an option's index."""
    site, _, rank = option
    step, load, is_cpu = of_recipe
    return (rank, step, load, -site.device.share, is_cpu, site.order, index)


def _among_hosts(key: _OwnKey, host: Host) -> _HostsKey:
    rank, step, load, share, is_cpu, order, _ = key
    load = load if load != _HOSTS else round(host.load, 9)
    return (rank, step, load, host.has_gpu, host.device_sessions, share, is_cpu, order)


@dataclass(slots=True)
class _OnHost:
    """The options of one host."""

    host: Host
    indices: list[int] = field(default_factory=list)
    heap: list[_OwnKey] = field(default_factory=list)  # of those that fit
    seen: int = -1  # after how many changes of the host the heap's front is right
    now: _HostsKey | None = None  # the front's key among the hosts; None where nothing fits


class OptionQueue:
    """Options in the order in which to take them.

    A session changes the keys of its host's options alone: hosts wait in one heap, by the first of the options that
    each has in a heap of its own. Keys grow with each session that is taken, so one is computed again only where it
    comes first, and its host has changed since; a host to which one was given back enters again.
    """

    def __init__(self, options: Sequence[PlacementOption], ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._known: dict[tuple[float, ...], _RecipesPart] = {}
        self._hosts: dict[int, _OnHost] = {}
        for index, option in enumerate(options):
            host = option.site.host
            here = self._hosts.get(host.index) or self._hosts.setdefault(host.index, _OnHost(host))
            here.indices.append(index)
        self._heap = [self._entered(index) for index in self._hosts]
        heapify(self._heap)
        self._given_back = len(ledger.given_back)

    def next_fit(self) -> int | None:
        """Return the option to take next, None when nothing fits; what does not is dropped until room is given back."""
        heap = self._heap
        given_back = self._ledger.given_back
        if len(given_back) > self._given_back:
            for at in given_back[self._given_back :]:
                if at in self._hosts:
                    heappush(heap, self._entered(at))
            self._given_back = len(given_back)
        while heap:
            key, at = heap[0]
            here = self._hosts[at]
            if here.seen != here.host.changes:
                self._see(here)
            if here.now is None:
                heappop(heap)
            elif here.now <= key:
                return here.heap[0][-1]
            else:
                heapreplace(heap, (here.now, at))
        return None

    def _entered(self, at: int) -> tuple[_HostsKey, int]:
        """Put all options of a host in order; return its entry among the hosts."""
        here = self._hosts[at]
        here.heap = [self._key(index) for index in here.indices]
        heapify(here.heap)
        here.seen = -1
        return _among_hosts(here.heap[0], here.host), at

    def _see(self, here: _OnHost) -> None:
        """Bring to a host's front what comes first now."""
        heap = here.heap
        here.seen, here.now = here.host.changes, None
        while heap:
            key = heap[0]
            site, recipe, _ = self._options[key[-1]]
            if self._ledger.why_not(site, recipe):
                heappop(heap)
                continue
            now = self._key(key[-1]) if recipe.engines else key
            if now <= key:
                here.now = _among_hosts(key, here.host)
                return
            heapreplace(heap, now)

    def _key(self, index: int) -> _OwnKey:
        # Devices of a kind share their recipes, which the options keep, and go through the same loads.
        option = self._options[index]
        at = (id(option.recipe), *option.site.loads.values())
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = _of_recipe(option, self._ledger)
        return _on_host(option, index, known)
