"""Which devices could serve a demand, and why others could not: looked up once per kind of device."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ...version import makes_alike
from ..model.demand import Demand, EncoderChoice, EncoderKind, Rendition
from ..model.inventory import DeviceState, Node
from ..model.policy import Policy, PreemptibleUse
from ..rates import Rates
from .ledger import Ledger, Site
from .recipes import Kinds, Recipe, RecipeRequest, Recipes, SessionStages, nvenc_kind


class PlacementOption(NamedTuple):
    """One route on one device. ``rank`` is 1 on nodes that come last, else 0."""

    site: Site
    recipe: Recipe
    rank: int


class Row(NamedTuple):
    """A site, its kind of device, why it takes no work at all ("" where it does), and the rank of its options."""

    site: Site
    kind: int
    refusal: str
    rank: int


@dataclass(frozen=True, slots=True)
class Candidates:
    """What options are looked for among: each site's row, and the sites that take work by kind and rank."""

    rows: Sequence[Row]
    open_sites: Mapping[tuple[int, int], Sequence[Site]]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Candidates":
        """Group rows, which are in the inventory's order."""
        open_sites: dict[tuple[int, int], list[Site]] = {}
        for site, kind, refusal, rank in rows:
            if not refusal:
                open_sites.setdefault((kind, rank), []).append(site)
        return cls(rows, open_sites)


@dataclass(slots=True)
class Options:
    """Every route that is open to a demand with its encoder kinds, and why other devices have none.

    Most demands take one of several encoder kinds, so what only the taken one needs is made when it is asked for.
    """

    candidates: Candidates
    recipes: dict[int, Recipes]
    """By kind of device."""
    _found: list[PlacementOption] | None = None
    _refused: dict[str, tuple[str, ...]] | None = None

    @property
    def found(self) -> list[PlacementOption]:
        """All of them, in the inventory's order."""
        if self._found is None:
            open_here = {kind: () if isinstance(recipes, str) else recipes for kind, recipes in self.recipes.items()}
            self._found = [
                PlacementOption(site, recipe, rank)
                for site, kind, refusal, rank in self.candidates.rows
                if not refusal
                for recipe in open_here[kind]
            ]
        return self._found

    @property
    def open_recipes(self) -> list[Recipe]:
        """Those of each kind of device."""
        return [recipe for recipes in self.recipes.values() if not isinstance(recipes, str) for recipe in recipes]

    def by_speed(self) -> Iterator[PlacementOption]:
        """Yield them: fastest first in the inventory's order; on nodes of last resort last."""
        alike: dict[tuple[int, float], list[tuple[Recipe, Sequence[Site]]]] = {}
        for (kind, rank), sites in self.candidates.open_sites.items():
            recipes = self.recipes[kind]
            for recipe in () if isinstance(recipes, str) else recipes:
                alike.setdefault((rank, -recipe.fps), []).append((recipe, sites))
        for rank, slowness in sorted(alike):
            members = [_at_each(sites, recipe, rank) for recipe, sites in alike[rank, slowness]]
            yield from merge(*members, key=lambda option: option.site.order)

    @property
    def refused(self) -> dict[str, tuple[str, ...]]:
        """Why devices have none, by reason."""
        if self._refused is None:
            self._refused = self._refusals()
        return self._refused

    def _refusals(self) -> dict[str, tuple[str, ...]]:
        refused: dict[str, list[str]] = {}
        why_not = {kind: recipes for kind, recipes in self.recipes.items() if isinstance(recipes, str)}
        for site, kind, refusal, _ in self.candidates.rows:
            if reason := refusal or why_not.get(kind):
                refused.setdefault(reason, []).append(site.device.device)
        return {reason: tuple(devices) for reason, devices in refused.items()}


def _at_each(sites: Iterable[Site], recipe: Recipe, rank: int) -> Iterator[PlacementOption]:
    return (PlacementOption(site, recipe, rank) for site in sites)


class Catalogue:
    """Recipes, kept by kind of device and by what of a demand matters."""

    def __init__(self, ledger: Ledger, rates: Rates, policy: Policy) -> None:
        self._rates = rates
        self._policy = policy
        self._options: dict[tuple[int, Kinds], Options] = {}
        self._choices: dict[tuple[int, EncoderChoice], list[Kinds]] = {}
        # What options depend on is large: it is compared once for each demand, which stays in memory meanwhile.
        self._shapes: dict[object, int] = {}
        self._shape_of: dict[int, tuple[int, Demand]] = {}
        self._kinds: dict[object, int] = {}
        # Their trials stay in memory, so that no later ones have the same identity.
        self._examples: list[Site] = []
        self._candidates = Candidates.of(list(map(self._row, ledger.sites)))
        found = {nvenc_kind(site.device) for site in self._examples if site.device.engines.get(Engine.NVENC, 0) > 0}
        self._nvenc_kinds = sorted(found, key=lambda kind: (kind.architecture, kind.driver_branch))

    def options(self, demand: Demand, kinds: Kinds) -> Options:
        """Return every route that is open to a demand, in the inventory's order."""
        key = (self._number(demand), kinds)
        if key not in self._options:
            self._options[key] = self._look_up(demand, kinds)
        return self._options[key]

    def choices(self, demand: Demand) -> list[Kinds]:
        """Return the encoder kinds that a demand's tracks may have: software where it can, and each NVENC.

        A track that has begun keeps its kind. Where an NVENC does not write a track's codec, software does.
        """
        key = (self._number(demand), demand.encoder)
        if key not in self._choices:
            self._choices[key] = self._choose(demand)
        return self._choices[key]

    def _number(self, demand: Demand) -> int:
        """Return the number of what a demand's options depend on."""
        known = self._shape_of.get(id(demand))
        if known is None:
            number = self._shapes.setdefault(_shape(demand), len(self._shapes))
            known = self._shape_of[id(demand)] = (number, demand)
        return known[0]

    def _choose(self, demand: Demand) -> list[Kinds]:
        families: list[EncoderKind | None] = []
        if demand.encoder is not EncoderChoice.NVENC:
            families.append(None)
        if demand.encoder is not EncoderChoice.SOFTWARE and Engine.NVENC in self._policy.engines:
            families += self._nvenc_kinds
        if all(rendition.kind is not None for rendition in demand.renditions):
            families = [None]
        chosen = ([self._kind(demand, each, family) for each in demand.renditions] for family in families)
        settled = ((tuple(kind for kind in kinds if kind is not None), len(kinds)) for kinds in chosen)
        return list(dict.fromkeys(kinds for kinds, tracks in settled if len(kinds) == tracks))

    def _kind(self, demand: Demand, rendition: Rendition, family: EncoderKind | None) -> EncoderKind | None:
        if rendition.kind is not None:
            return rendition.kind
        if family is not None and self._writes(family, rendition):
            return family
        allowed = demand.encoder is not EncoderChoice.NVENC and rendition.software != ""
        return EncoderKind(rendition.software) if allowed else None

    def _writes(self, family: EncoderKind, rendition: Rendition) -> bool:
        return any(
            site.device.can(rendition.case, Engine.NVENC)
            for site in self._examples
            if site.device.engines.get(Engine.NVENC, 0) > 0 and nvenc_kind(site.device) == family
        )

    def _look_up(self, demand: Demand, kinds: Kinds) -> Options:
        options = Options(self._candidates, {})
        stages = SessionStages.of(demand, kinds, self._rates.hardware.host)
        for (kind, _), sites in self._candidates.open_sites.items():
            if kind not in options.recipes:
                options.recipes[kind] = self._recipes_of(stages, sites[0])
        return options

    def _kind_of(self, site: Site) -> int:
        number = self._kinds.setdefault(_device_key(site), len(self._examples))
        if number == len(self._examples):
            self._examples.append(site)
        return number

    def _row(self, site: Site) -> Row:
        node, device = site.host.node, site.device
        refusal = node_refusal(node, self._policy) or _state_refusal("it", device.state, device.state_reason)
        rank = int(node.preemptible and self._policy.preemptible is not PreemptibleUse.FREELY)
        return Row(site, self._kind_of(site), refusal, rank)

    def _recipes_of(self, stages: SessionStages, site: Site) -> Recipes:
        host, pyav = site.host, stages.demand.pyav
        if not makes_alike(pyav, host.node.pyav):
            return f"its node has PyAV {host.node.pyav}, and the job's bytes are made with {pyav}"
        rates, policy, cores = self._rates, self._policy, host.cores or 0.0
        request = RecipeRequest(stages, site.device, rates, policy, host.processor, host.node.speed, host_cores=cores)
        recipes = request.recipes()
        if not isinstance(recipes, str) and host.cores is None and not any(kind.is_nvenc for kind in stages.kinds):
            return "nothing is known of its host's processor"
        return recipes


def node_refusal(node: Node, policy: Policy) -> str:
    """Return why a node as a whole takes no work; "" when it does."""
    if refusal := _state_refusal("its node", node.state, node.state_reason):
        return refusal
    if node.preemptible and policy.preemptible is PreemptibleUse.NEVER:
        return "its node may be taken away at any moment, and the policy does not use such nodes"
    return ""


def _state_refusal(name: str, state: DeviceState, reason: str) -> str:
    if state is DeviceState.OPEN:
        return ""
    return f"{name} is {state.value}" + (f" because {reason}" if reason else "")


def _device_key(site: Site) -> object:
    """Return what a device's recipes depend on; equal for all devices of a kind on equal hosts."""
    device, host = site.device, site.host
    # Trials are shared by devices of a kind, so their identity says enough, and comparing them all would take long.
    return (
        device.kind is DeviceKind.CPU,
        device.name,
        id(device.trials),
        tuple(device.engines.items()),
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
    """Return all of a demand that its options depend on."""
    return (
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
