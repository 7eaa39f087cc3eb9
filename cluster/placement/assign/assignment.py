"""Where every job's segments run: one pure, deterministic, synchronous function.

Priorities are strict: a lower one gets what a higher one leaves. Within a priority every job gets a first session
before any gets a second, where that is possible. Then the job with the smallest weighted share of its busiest engine
gets the next session (dominant resource fairness: Ghodsi et al., NSDI 2011), until each has what it can use or nothing
more fits; so unused shares go to the others. docs/placement.md explains the rules.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from ...grouping import counted
from ...probes.report.device_report import DeviceKind
from ...text_lines import gigabytes
from ..model.demand import Demand, EncoderChoice
from ..model.inventory import Inventory
from ..model.placement import Lane, Placement, Refusal, Route
from ..model.policy import Policy
from ..rates import Rates
from .fill import Claim, Fill
from .ledger import Ledger
from .options import Catalogue
from .recipes import Kinds, Recipe

ALL_TAKEN = "every device that could do it is taken by other work just now"
_OTHERS_FIRST = "other jobs came first"
_TOO_LATE = "one more session would be open only when those before it have done everything"
_WHY = {
    Route.GPU: "NVDEC decodes {} and {} encodes on the same device, so no picture leaves it",
    Route.HYBRID: "NVDEC decodes {} and the host's processor encodes with {}, which the track is bound to",
    Route.UPLOAD: "the host's processor decodes {}, and {} encodes on the device",
    Route.CPU: "the processor decodes {} and encodes with {}",
}
"""Why a lane is what it is, with the codec that is decoded and the encoders."""


def place(
    demands: Sequence[Demand], inventory: Inventory, rates: Rates, policy: Policy, *, in_full: bool = True
) -> Placement:
    """Return where each demand's segments run, and why not elsewhere.

    The order of demands and of nodes makes no difference; that of a node's devices does, for equals. Every demand's
    ``job`` is unique. Nothing here is random, waits, or looks at a clock.

    Args:
        demands: what every job has left to do.
        inventory: every node, whatever its state.
        rates: how fast engines are.
        policy: what may be used.
        in_full: say why not also for devices that others have, or that are not needed: thousands of names for each job.
    """
    ledger = Ledger.opened(sorted(inventory.nodes, key=lambda node: node.node), policy, rates.hardware)
    catalogue = Catalogue(ledger, rates, policy)
    ordered = sorted(demands, key=lambda demand: (-demand.priority, demand.job))
    fills = [
        Fill(members, ledger, catalogue, policy) for _, members in groupby(ordered, key=lambda demand: demand.priority)
    ]
    for fill in fills:
        fill.run()
    claims = [claim for fill in fills for claim in fill.claims]
    reasons = _Refusals(ledger, catalogue, in_full=in_full)
    return Placement(
        tuple(lane for claim in claims for lane in _lanes_of(claim, ledger)),
        tuple(refusal for claim in claims for refusal in reasons.of(claim)),
    )


def _lanes_of(claim: Claim, ledger: Ledger) -> Iterator[Lane]:
    """Yield what a claim was given, in the inventory's order."""
    why: dict[int, str] = {}
    for index in sorted(claim.given, key=lambda index: (claim.options[index].site.order, index)):
        site, recipe, _ = claim.options[index]
        sessions = claim.given[index]
        # Devices of a kind share their recipes.
        reason = why.get(id(recipe)) or why.setdefault(id(recipe), _why(claim, recipe))
        yield Lane(
            job=claim.demand.job,
            node=site.host.node.node,
            device=site.device.device,
            route=recipe.route,
            sessions=sessions,
            fps=sessions * ledger.speed_fps(site, recipe),
            cores=sessions * recipe.cores,
            memory_bytes=sessions * (recipe.device_bytes or recipe.host_bytes),
            kinds=recipe.kinds,
            reason=reason,
        )


def _why(claim: Claim, recipe: Recipe) -> str:
    names = ("NVENC" if kind.is_nvenc else kind.implementation for kind in recipe.kinds)
    return _WHY[recipe.route].format(claim.demand.decode.codec.value, " and ".join(dict.fromkeys(names)))


class _Refusals:
    """Why jobs are not on devices; jobs that ask for the same share the answers."""

    def __init__(self, ledger: Ledger, catalogue: Catalogue, *, in_full: bool) -> None:
        self._ledger = ledger
        self._catalogue = catalogue
        self._in_full = in_full
        self._names: dict[int, dict[int, str]] = {}
        self._full: dict[int, dict[str, dict[int, str]]] = {}

    def of(self, claim: Claim) -> Iterator[Refusal]:
        job = claim.demand.job
        if not claim.demand.segments:
            yield Refusal(job, "nothing is left to do")
            return
        if claim.kinds is None:
            yield from self._unplaceable(claim)
            return
        if not claim.sessions:
            yield Refusal(job, ALL_TAKEN)
        for reason, devices in self._catalogue.options(claim.demand, claim.kinds).refused.items():
            yield Refusal(job, reason, devices)
        if self._in_full:
            yield from self._unused(claim)

    def _unused(self, claim: Claim) -> Iterator[Refusal]:
        """Say why a job is not on devices that could do it."""
        used = {claim.options[index].site.order for index in claim.given}
        full = {_satisfied(claim): self._able(claim)} if claim.sessions >= claim.limit else self._why_full(claim)
        for reason, devices in full.items():
            unused = devices.copy()
            for order in used & unused.keys():
                del unused[order]
            if unused:
                yield Refusal(claim.demand.job, reason, tuple(unused.values()))

    def _able(self, claim: Claim) -> dict[int, str]:
        """Return the devices that could do it, by their order."""
        if id(claim.options) not in self._names:
            self._names[id(claim.options)] = {option.site.order: option.site.device.device for option in claim.options}
        return self._names[id(claim.options)]

    def _why_full(self, claim: Claim) -> dict[str, dict[int, str]]:
        """Return what keeps one more such session away, and from which devices."""
        if id(claim.options) not in self._full:
            found: dict[str, dict[int, str]] = {}
            firsts = {option.site.order: option for option in reversed(claim.options)}
            for order, option in reversed(firsts.items()):
                reason = self._ledger.why_not(option.site, option.recipe) or _OTHERS_FIRST
                found.setdefault(reason, {})[order] = option.site.device.device
            self._full[id(claim.options)] = found
        return self._full[id(claim.options)]

    def _unplaceable(self, claim: Claim) -> Iterator[Refusal]:
        """Say why a job is on no device at all: the first encoder kind's reason for each."""
        job, choices = claim.demand.job, self._catalogue.choices(claim.demand)
        too_large = self._why_too_large(claim, choices)
        reason_of: dict[str, str] = {}
        for kinds in choices:
            options = self._catalogue.options(claim.demand, kinds)
            for reason, devices in options.refused.items():
                for device in devices:
                    reason_of.setdefault(device, reason)
            for option in options.found:
                full = self._ledger.why_not(option.site, option.recipe) or _OTHERS_FIRST
                reason_of.setdefault(option.site.device.device, full)
        by_reason: dict[str, list[str]] = {}
        of_processors: set[str] = set()
        nothing_found = _no_encoder(claim)
        for site in self._ledger.sites:
            reason = reason_of.get(site.device.device, nothing_found)
            by_reason.setdefault(reason, []).append(site.device.device)
            if site.device.kind is DeviceKind.CPU:
                of_processors.add(reason)
        # What keeps a GPU away says more than what keeps processors away.
        weighed = sorted(by_reason, key=of_processors.__contains__)
        has_gpu = any(site.device.kind is not DeviceKind.CPU for site in self._ledger.sites)
        without = "" if has_gpu else _no_gpu(claim)
        nowhere = too_large or without or _nowhere(claim, weighed, has_choices=bool(choices))
        yield Refusal(job, nowhere, is_too_large=bool(too_large))
        for reason, devices_of_it in by_reason.items():
            yield Refusal(job, reason, tuple(devices_of_it))

    def _why_too_large(self, claim: Claim, choices: Sequence[Kinds]) -> str:
        """Say that one segment takes more memory than any host has that could do it; "" where it does not."""
        found = [option for kinds in choices for option in self._catalogue.options(claim.demand, kinds).found]
        if not found or not all(option.site.host.is_too_small_for(option.recipe.host_bytes) for option in found):
            return ""
        needs = gigabytes(min(option.recipe.host_bytes for option in found))
        has = gigabytes(max(option.site.host.node.memory_bytes or 0 for option in found))
        where = "this machine has" if len(self._ledger.hosts) == 1 else "the largest machine that could do it has"
        return f"one segment of it needs {needs} of memory, and {where} {has} for work"


def _satisfied(claim: Claim) -> str:
    if claim.sessions >= len(claim.demand.segments):
        return "every segment that is left has a session elsewhere already"
    if claim.sessions >= claim.wanted:
        return f"the job wants no more than {counted(claim.wanted, 'worker')}"
    return _TOO_LATE


def _no_gpu(claim: Claim) -> str:
    """Say that there is no GPU for a job that needs one; "" for one that does not."""
    needs_gpu = claim.demand.needs_gpu or claim.demand.encoder is EncoderChoice.NVENC
    return "no machine has a GPU" if needs_gpu else ""


def _no_encoder(claim: Claim) -> str:
    cases = (rendition.case for rendition in claim.demand.renditions)
    wanted = ", ".join(f"{case.codec.value} {case.chroma} with {case.bit_depth} bits" for case in cases)
    return f"no encoder that the job allows ({claim.demand.encoder.value}) writes what it asks for: {wanted}"


def _nowhere(claim: Claim, reasons: list[str], *, has_choices: bool) -> str:
    if not has_choices:
        return _no_encoder(claim)
    if not reasons:
        return "there is no device at all"
    more = f"; {counted(len(reasons) - 1, 'other reason')} on other devices" if len(reasons) > 1 else ""
    return f"no device can do it: {reasons[0]}{more}"
