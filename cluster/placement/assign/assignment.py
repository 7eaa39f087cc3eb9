"""Decides where every job's segments run, in one pure, deterministic function. docs/placement.md explains the rules.

Jobs of lower priority get the capacity that jobs of higher priority leave. Within a priority, each job gets a first
session; each further session goes to the job with the smallest weighted share of its busiest engine (dominant resource
fairness: Ghodsi et al., NSDI 2011).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from ...grouping import counted
from ...probes.report.device_kinds import Route
from ...probes.report.engines import MediaCodec
from ...text_lines import gigabytes
from ..model.demand import Demand, EncoderChoice
from ..model.inventory import Inventory
from ..model.placement import Lane, Placement, Refusal
from ..model.policy import Policy
from ..rates import Rates
from .fill import Claim, Fill
from .ledger import Ledger
from .option_queue import PlacementOption
from .options import Catalogue, Options
from .recipes import Kinds

ALL_TAKEN = "all suitable devices are busy with other work"
_OTHERS_FIRST = "other jobs came first"
_TOO_LATE = "another session would open only after the others have finished"


def place(
    demands: Sequence[Demand], inventory: Inventory, rates: Rates, policy: Policy, *, in_full: bool = True
) -> Placement:
    """Return where each demand's segments run, and why not elsewhere.

    Job names are unique. The order of demands and nodes does not matter, but the order of a node's equal devices does.
    If ``in_full``, each job's refusals also list the devices that are busy or not needed: thousands in a large cluster.
    """
    ledger = Ledger(sorted(inventory.nodes, key=lambda node: node.node), policy, rates.hardware)
    catalogue = Catalogue(ledger, rates, policy)
    ordered = sorted(demands, key=lambda demand: (-demand.priority, demand.job))
    claims: list[Claim] = []
    for _, members in groupby(ordered, key=lambda demand: demand.priority):
        fill = Fill(members, ledger, catalogue)
        fill.run()
        claims += fill.claims
    reasons = _Refusals(ledger, catalogue, in_full=in_full)
    return Placement(
        tuple(_lanes(claims, ledger)),
        tuple(refusal for claim in claims for refusal in reasons.of(claim)),
    )


def _lanes(claims: Sequence[Claim], ledger: Ledger) -> Iterator[Lane]:
    # The lanes of equal jobs differ only in the job: {(option's index, sessions): lane}.
    known: dict[Options, dict[tuple[int, int], Lane]] = {}
    for claim in claims:
        job, lanes = claim.demand.job, known.setdefault(claim.options, {}) if claim.given else {}
        for given in sorted(claim.given.items()):
            if given not in lanes:
                lanes[given] = _lane(claim, *given, ledger)
            yield Lane._make((job, *lanes[given][1:]))


def _lane(claim: Claim, index: int, sessions: int, ledger: Ledger) -> Lane:
    """Return a claim's lane with this many sessions, whose speed takes all other sessions into account."""
    site, recipe, _, _ = claim.options.found[index]
    return Lane(
        job=claim.demand.job,
        node=site.host.node.node,
        device=site.device.device,
        route=recipe.route,
        sessions=sessions,
        fps=sessions * ledger.speed_fps(site, recipe),
        cores=sessions * recipe.cores,
        memory_bytes=sessions * (recipe.device_bytes or recipe.host_bytes),
        kinds=recipe.kinds,
        reason=_why(claim.demand.decode.codec, recipe.route, recipe.kinds),
    )


@lru_cache
def _why(decoded: MediaCodec, route: Route, kinds: Kinds) -> str:
    names = ("NVENC" if kind.is_nvenc else kind.implementation for kind in kinds)
    return route.why.format(decoded.value, " and ".join(dict.fromkeys(names)))


class _Refusals:
    """Finds out why jobs are not on devices; equal jobs share the answers."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue, *, in_full: bool) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._in_full = in_full
        self._full: dict[Options, dict[str, dict[int, str]]] = {}

    def of(self, claim: Claim) -> Iterator[Refusal]:
        job = claim.demand.job
        if not claim.demand.segments:
            yield Refusal(job, "nothing is left to do")
            return
        if not claim.choices:
            yield from self._unplaceable(claim.demand)
            return
        if not claim.sessions:
            yield Refusal(job, ALL_TAKEN)
        for reason, devices in claim.options.refused.items():
            yield Refusal(job, reason, devices)
        if self._in_full:
            yield from self._unused(claim)

    def _unused(self, claim: Claim) -> Iterator[Refusal]:
        found = claim.options.found
        used = {found[index].site.order for index in claim.given}
        if claim.sessions >= claim.limit:
            full = {_satisfied(claim): {option.site.order: option.site.device.device for option in found}}
        else:
            full = self._why_full(claim.options)
        for reason, devices in full.items():
            unused = tuple(device for order, device in devices.items() if order not in used)
            if unused:
                yield Refusal(claim.demand.job, reason, unused)

    def _why_full(self, options: Options) -> dict[str, dict[int, str]]:
        if options not in self._full:
            found = self._full[options] = dict[str, dict[int, str]]()
            for order, indices in options.at.items():
                option = options.found[indices[0]]
                found.setdefault(self._why_not(option), {})[order] = option.site.device.device
        return self._full[options]

    def _why_not(self, option: PlacementOption) -> str:
        return self._ledger.why_not(option.site, option.recipe) or _OTHERS_FIRST

    def _unplaceable(self, demand: Demand) -> Iterator[Refusal]:
        """Yield why a job could not be placed, then why each device cannot serve it with the preferred encoder kind."""
        choices, no_encoder = self._catalogue.choices(demand), _no_encoder(demand)
        reason_of: dict[str, str] = {}
        for options in choices:
            for reason, devices in options.refused.items():
                reason_of = dict.fromkeys(devices, reason) | reason_of
            reason_of = {each.site.device.device: self._why_not(each) for each in reversed(options.found)} | reason_of
        by_reason: dict[str, list[str]] = {}
        of_processors: set[str] = set()
        for site in self._ledger.sites:
            reason = reason_of.get(site.device.device, no_encoder)
            by_reason.setdefault(reason, []).append(site.device.device)
            if site.is_processor:
                of_processors.add(reason)
        # A reason about a GPU is more useful than a reason about a processor.
        weighed = sorted(by_reason, key=of_processors.__contains__)
        too_large = self._why_too_large([option for options in choices for option in options.found])
        has_gpu = any(not site.is_processor for site in self._ledger.sites)
        needs_gpu = demand.needs_gpu or demand.encoder is EncoderChoice.NVENC
        no_gpu = "no machine has a GPU" if needs_gpu and not has_gpu else ""
        nowhere = _nowhere(weighed) if choices else no_encoder
        yield Refusal(demand.job, too_large or no_gpu or nowhere, is_too_large=bool(too_large))
        for reason, devices_of_it in by_reason.items():
            yield Refusal(demand.job, reason, tuple(devices_of_it))

    def _why_too_large(self, found: Sequence[PlacementOption]) -> str:
        """Return why the job is too large, if a segment needs more memory than any capable host has; otherwise ""."""
        if not found or not all(option.site.host.is_too_small_for(option.recipe.host_bytes) for option in found):
            return ""
        needs = gigabytes(min(option.recipe.host_bytes for option in found))
        has = gigabytes(max(option.site.host.node.memory_bytes or 0 for option in found))
        is_alone = len({site.host.index for site in self._ledger.sites}) == 1
        where = "this machine has" if is_alone else "the largest machine that could do it has"
        return f"one segment of the job needs {needs} of memory, and {where} {has} for work"


def _satisfied(claim: Claim) -> str:
    if claim.sessions >= len(claim.demand.segments):
        return "all remaining segments are already assigned"
    if claim.sessions >= claim.wanted:
        return f"the job is limited to {counted(claim.wanted, 'worker')}"
    return _TOO_LATE


def _no_encoder(demand: Demand) -> str:
    cases = (rendition.case for rendition in demand.renditions)
    wanted = ", ".join(f"{case.codec.value} {case.chroma} with {case.bit_depth} bits" for case in cases)
    return f"no encoder that the job allows ({demand.encoder.value}) can write {wanted}"


def _nowhere(reasons: Sequence[str]) -> str:
    if not reasons:
        return "there are no devices"
    more = f"; {counted(len(reasons) - 1, 'other reason')} on other devices" if len(reasons) > 1 else ""
    return f"no device can do it: {reasons[0]}{more}"
