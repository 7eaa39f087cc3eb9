"""Finds which devices could serve a demand, and why other devices could not. Equal demands share the result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge

from ...probes.report.engines import Engine
from ...version import makes_alike
from ..model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from ..model.inventory import DeviceState, Node
from ..model.policy import Policy, PreemptibleUse
from ..rates import Rates
from .ledger import Ledger, Site
from .option_queue import OptionQueue, PlacementOption
from .recipes import Kinds, Recipe, RecipeRequest, Recipes, SessionStages, nvenc_kind


@dataclass(slots=True)
class SiteClass:
    """Sites whose devices and hosts are equal, in the inventory's order."""

    refusal: str  # why the sites take no work; "" if they take work
    rank: int  # 1 on nodes that are used only as a last resort, otherwise 0
    sites: list[Site] = field(default_factory=list)


_Answer = tuple[SiteClass, Recipes]
"""A class of sites, and the recipes of a demand there."""


class Options:
    """Every open route of equal demands, with one encoder kind for each track.

    Most demands can choose among several encoder kinds, so values that are needed only for the chosen kind are computed
    only when they are used.
    """

    def __init__(self, kinds: Kinds, answers: Sequence[_Answer], ledger: Ledger) -> None:
        self.kinds = kinds
        self.has_nvenc = any(kind.is_nvenc for kind in kinds)
        self._answers = answers
        self._ledger = ledger
        self.open_recipes = [recipe for _, each in answers if not isinstance(each, str) for recipe in each]
        self.has_software = any(recipe.route.is_software for recipe in self.open_recipes)

    def by_speed(self) -> Iterator[PlacementOption]:
        """Yield the options, fastest first; equals keep the inventory's order, and nodes of last resort come last."""
        return merge(*self._runs(), key=lambda option: (option.rank, -option.recipe.fps, option.site.order))

    @cached_property
    def found(self) -> list[PlacementOption]:
        """All options, in the inventory's order."""
        return sorted((option for run in self._runs() for option in run), key=lambda option: option.site.order)

    @cached_property
    def queue(self) -> OptionQueue:
        """All options, in the order in which sessions take them."""
        return OptionQueue(self.found, self._ledger)

    @cached_property
    def at(self) -> dict[int, list[int]]:
        """The indices of each site's options; the keys are the sites' positions in the inventory."""
        found: dict[int, list[int]] = {}
        for index, option in enumerate(self.found):
            found.setdefault(option.site.order, []).append(index)
        return found

    @cached_property
    def refused(self) -> dict[str, tuple[str, ...]]:
        """The devices that have no option, by the reason, in the inventory's order."""
        refused: dict[str, list[Site]] = {}
        for members, recipes in self._answers:
            if isinstance(recipes, str):
                refused.setdefault(recipes, []).extend(members.sites)
        for sites in refused.values():
            sites.sort(key=lambda site: site.order)
        ordered = sorted(refused.items(), key=lambda entry: entry[1][0].order)
        return {reason: tuple(site.device.device for site in sites) for reason, sites in ordered}

    def _runs(self) -> list[Iterator[PlacementOption]]:
        """Return the options of each recipe for each class of sites, in the inventory's order."""
        return [
            _run(members, recipe, self._ledger.share_of(recipe))
            for members, recipes in self._answers
            if not isinstance(recipes, str)
            for recipe in recipes
        ]


def _run(members: SiteClass, recipe: Recipe, share: float) -> Iterator[PlacementOption]:
    return (PlacementOption(site, recipe, members.rank, share) for site in members.sites)


class Catalogue:
    """The options of every demand; equal demands share them."""

    def __init__(self, ledger: Ledger, rates: Rates, policy: Policy) -> None:
        self._ledger = ledger
        self._rates = rates
        self._policy = policy
        self._choices: dict[object, list[Options]] = {}
        classes: dict[tuple[object, ...], SiteClass] = {}
        for site in ledger.sites:
            node, device = site.host.node, site.device
            refusal = node_refusal(node, policy) or _state_refusal("it", device.state, device.state_reason)
            rank = int(node.preemptible and policy.preemptible is not PreemptibleUse.FREELY)
            key = (_device_key(site), refusal, rank)
            members = classes.get(key) or classes.setdefault(key, SiteClass(refusal, rank))
            members.sites.append(site)
        self._classes = list(classes.values())
        # One site for each set of equal devices, whatever the states of the devices.
        samples = {key[0]: members.sites[0] for key, members in classes.items()}
        self._encoding = [site for site in samples.values() if site.device.engines.get(Engine.NVENC, 0) > 0]
        found = {nvenc_kind(site.device) for site in self._encoding}
        self._nvenc_kinds = sorted(found, key=lambda kind: (kind.architecture, kind.driver_branch))

    def choices(self, demand: Demand) -> list[Options]:
        """Return a demand's options for each choice of encoder kinds: software if possible, and each kind of NVENC.

        A track that has begun keeps its kind. If NVENC cannot write a track's codec, software encodes the track.
        """
        key = _shape(demand)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = [self._options(demand, kinds) for kinds in self._kinds_of(demand)]
        return found

    def _kinds_of(self, demand: Demand) -> list[Kinds]:
        families: list[EncoderKind | None] = []
        if demand.encoder is not EncoderChoice.NVENC:
            families.append(None)
        if demand.encoder is not EncoderChoice.SOFTWARE and Engine.NVENC in self._policy.engines:
            families += self._nvenc_kinds
        if all(rendition.kind is not None for rendition in demand.renditions):
            families = [None]
        chosen = ([self._kind(demand, each, family) for each in demand.renditions] for family in families)
        complete = ((tuple(kind for kind in kinds if kind is not None), len(kinds)) for kinds in chosen)
        return list(dict.fromkeys(kinds for kinds, tracks in complete if len(kinds) == tracks))

    def _kind(self, demand: Demand, rendition: Rendition, family: EncoderKind | None) -> EncoderKind | None:
        if rendition.kind is not None:
            return rendition.kind
        if family is not None and self._writes(family, rendition):
            return family
        allowed = demand.encoder is not EncoderChoice.NVENC and rendition.software != ""
        return EncoderKind(rendition.software) if allowed else None

    def _writes(self, family: EncoderKind, rendition: Rendition) -> bool:
        return any(
            site.device.can(rendition.case, Engine.NVENC) and nvenc_kind(site.device) == family
            for site in self._encoding
        )

    def _options(self, demand: Demand, kinds: Kinds) -> Options:
        stages = SessionStages.of(demand, kinds, self._rates.hardware.host)
        answers = [(each, each.refusal or self._recipes_of(stages, each.sites[0])) for each in self._classes]
        return Options(kinds, answers, self._ledger)

    def _recipes_of(self, stages: SessionStages, site: Site) -> Recipes:
        host, pyav = site.host, stages.demand.pyav
        if not makes_alike(pyav, host.node.pyav):
            return f"its node has PyAV {host.node.pyav}, but the job needs {pyav}"
        rates, policy, cores = self._rates, self._policy, host.cores or 0.0
        request = RecipeRequest(stages, site.device, rates, policy, host.processor, host.node.speed, host_cores=cores)
        recipes = request.recipes()
        if not isinstance(recipes, str) and host.cores is None and not any(kind.is_nvenc for kind in stages.kinds):
            return "its host's processor is unknown"
        return recipes


def node_refusal(node: Node, policy: Policy) -> str:
    """Return why a node as a whole takes no work; "" if it takes work."""
    if refusal := _state_refusal("its node", node.state, node.state_reason):
        return refusal
    if node.preemptible and policy.preemptible is PreemptibleUse.NEVER:
        return "its node is preemptible, and the policy does not use such nodes"
    return ""


def _state_refusal(name: str, state: DeviceState, reason: str) -> str:
    because = f" because {reason}" if reason else ""
    return "" if state is DeviceState.OPEN else f"{name} is {state.value}{because}"


def _device_key(site: Site) -> object:
    device, host = site.device, site.host
    # Equal devices share one tuple of trials, so comparing identities is enough. Enums hash faster by identity.
    return (
        site.is_processor,
        device.name,
        id(device.trials),
        *map(id, device.engines),
        *device.engines.values(),
        device.architecture,
        device.driver_branch,
        device.max_video_clock_mhz,
        device.share,
        tuple(device.busy.items()),
        device.fps_max,
        host.processor,
        host.node.speed,
        host.cores,
        host.node.pyav,
    )


def _shape(demand: Demand) -> object:
    """Return all parts of a demand on which the options depend."""
    return (
        demand.encoder,
        demand.decode,
        demand.width,
        demand.height,
        demand.renditions,
        demand.software_decode,
        demand.needs_gpu,
        demand.about_frames,
        demand.longest_frames,
        demand.has_filters,
        demand.filter_bytes,
        demand.pyav,
    )
