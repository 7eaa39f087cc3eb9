"""Finds how fast one node of each group would run a job, and chooses the job's encoder.

The speed comes from a placement of only this job on only this node.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Final

from ..placement.assign.recipes import nvenc_kind
from ..placement.model.demand import Demand, EncoderChoice, EncoderKind
from ..placement.model.inventory import Inventory, Node
from ..placement.model.preview import Place
from ..probes.report.engines import Engine
from .config import AutoscaleConfig
from .deciding import decide
from .values import Decision, Forecast, JobWork, NodeSeen

FILLING: Final = 1024
"""More segments than any machine can run at the same time."""
FRESH_S: Final = 60.0
"""How long a speed is cached. Speeds change, because workers measure them all the time."""


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """The speed of one idle node for a demand."""

    fps: float = 0.0  # source frames a second
    sessions: int = 0
    refusal: str = ""  # why the speed is 0; "" if it is not


class Speeds:
    """The speed of each group for each kind of demand, cached for ``FRESH_S``."""

    def __init__(self, config: AutoscaleConfig, place: Place) -> None:
        self._config = config
        self._place = place
        self._known: dict[Demand, tuple[float, dict[str, NodeSpeed]]] = {}
        self._machines = {group.name: group.node for group in config.groups}
        self._seen: set[str] = set()

    def note_machine(self, group: str, node: Node) -> None:
        """Let ``node`` represent a group that has no node yet, or whose representative has other encoders."""
        if group not in self._seen or set(_kinds(node)) != set(_kinds(self._machines[group])):
            self._seen.add(group)
            self._machines[group] = node
            self._known = {}

    def of(self, demand: Demand, now_s: float) -> dict[str, NodeSpeed]:
        """Return the speed of one node of each group for a demand with a chosen encoder."""
        key = _filling(demand)
        known = self._known.get(key)
        if known is None or now_s - known[0] >= FRESH_S:
            speeds = {name: node_speed(key, node, self._place) for name, node in self._machines.items()}
            self._known = {kind: each for kind, each in self._known.items() if now_s - each[0] < FRESH_S}
            known = self._known[key] = now_s, speeds
        return known[1]

    def with_encoder(self, demand: Demand, now_s: float) -> Demand:
        """Choose the cheapest encoder for a demand, unless the demand already has an encoder."""
        return min(self.variants(demand), key=lambda each: self._frame_cost(each, now_s))

    def variants(self, demand: Demand) -> Iterator[Demand]:
        """Yield a demand with each encoder that the groups' nodes have, software first."""
        if not demand.chooses_encoder:
            yield demand
            return
        if demand.encoder is EncoderChoice.AUTO:
            yield replace(demand, encoder=EncoderChoice.SOFTWARE)
        kinds = dict.fromkeys(kind for node in self._machines.values() for kind in _kinds(node))
        if not kinds and demand.encoder is EncoderChoice.NVENC:
            yield demand
        for kind in kinds:
            renditions = tuple(replace(each, kind=kind) for each in demand.renditions)
            yield replace(demand, encoder=EncoderChoice.NVENC, renditions=renditions)

    def _frame_cost(self, demand: Demand, now_s: float) -> float:
        speeds = self.of(demand, now_s)
        able = [(group, speeds[group.name].fps) for group in self._config.groups if speeds[group.name].fps > 0]
        return min((group.price_per_s / fps for group, fps in able), default=inf)

    def work_of(self, demand: Demand, since_s: float, now_s: float, running: int = 0) -> JobWork:
        """Return the remaining work of a job that was first seen at ``since_s`` and now runs ``running`` segments."""
        speeds = self.of(demand, now_s)
        promised_s = demand.finish_within_s
        within_s = self._config.finish_within_s if promised_s is None else float(promised_s)
        count, frames = len(demand.segments), sum(demand.segments)
        at_once, running = min(count, demand.workers_max or count), min(running, count)
        return JobWork(
            job=demand.job,
            frames=frames - frames * running // max(1, 2 * count),
            at_once=at_once,
            waiting=max(0, at_once - running),
            longest_frames=max(demand.segments, default=0),
            due_s=since_s + within_s,
            is_promised=promised_s is not None,
            fps={name: speed.fps for name, speed in speeds.items() if speed.fps > 0},
            sessions={name: speed.sessions for name, speed in speeds.items() if speed.fps > 0},
            refusals={name: speed.refusal for name, speed in speeds.items() if speed.fps <= 0},
        )

    def later_work(self, demand: Demand, now_s: float) -> JobWork:
        """Return the work of a batch's waiting jobs, which is due in ``finish_within_s``."""
        like = self.with_encoder(replace(demand, frames_total=0, workers_max=None, finish_within_s=None), now_s)
        at_once = demand.workers_max or 1
        found = self.work_of(like, now_s, now_s)
        return replace(found, frames=demand.frames_total, at_once=at_once, waiting=at_once, is_later=True)


def node_speed(demand: Demand, node: Node, place: Place) -> NodeSpeed:
    """Return a node's speed for a demand that fills the node."""
    placement = place((demand,), Inventory((node,)))
    fps, sessions = sum(lane.fps for lane in placement.lanes), sum(lane.sessions for lane in placement.lanes)
    if fps > 0:
        return NodeSpeed(fps, sessions)
    gpus = {device.device for device in node.gpus}
    # A reason about a GPU is more useful than a reason about a processor.
    named = sorted(placement.refusals, key=lambda each: (gpus.isdisjoint(each.devices), not each.devices))
    return NodeSpeed(refusal=named[0].reason if named else "it has no device for the job")


def _kinds(node: Node) -> list[EncoderKind]:
    return [nvenc_kind(each) for each in node.devices if each.engine_count(Engine.NVENC) > 0]


def _filling(demand: Demand) -> Demand:
    """Return a demand of the same kind that fills any node. This demand is the key under which speeds are cached."""
    return replace(
        demand,
        job="",
        title="",
        segments=(demand.longest_frames,) * FILLING,
        frames_total=demand.about_frames,
        priority=0,
        weight=Fraction(1),
        workers_max=None,
        finish_within_s=None,
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A demand with a chosen encoder, and the forecast and decision for this demand."""

    demand: Demand
    forecast: Forecast
    decision: Decision

    def growth(self, last: Decision) -> str:
        """Return each group that grew since the ``last`` decision and why, the job's cost, and why the job is late."""
        sizes = (size for size in self.decision.sizes if size.wanted > last.size(size.group).wanted)
        more = [f"{size.group}: {size.reason}" for size in sizes]
        cost = f"about {self.forecast.cost:.2f} for the job, including the nodes' start and final idle time"
        return "; ".join([*more, *([cost] if more else []), *filter(None, [self.forecast.reason])])


def choose(
    config: AutoscaleConfig,
    speeds: Speeds,
    demand: Demand,
    others: Sequence[JobWork],
    *,
    nodes: Sequence[NodeSeen],
    last: Decision | None,
    now_s: float,
) -> Choice:
    """Choose the encoder with the least delay; of equal delays, the cheapest; of equal costs, software."""
    choices = []
    for variant in speeds.variants(demand):
        decision = decide(config, [*others, speeds.work_of(variant, now_s, now_s)], nodes, last, now_s)
        forecast = next(each for each in decision.forecasts if each.job == demand.job)
        choices.append(Choice(variant, forecast, decision))
    return min(choices, key=lambda choice: (choice.forecast.late_s, choice.forecast.cost))
