"""What one node of each group does for a job, by a placement on that node alone; and which encoder a job should have.

A GPU without NVENC is as fast as the cores beside it encode; one that can neither decode nor encode does not help.
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
"""More segments than any one machine has sessions for."""
FRESH_S: Final = 60.0
"""How long a speed is used before it is asked for again: workers measure all the time."""


@dataclass(frozen=True, slots=True)
class NodeSpeed:
    """What one node does that does nothing else."""

    fps: float = 0.0  # source frames a second
    sessions: int = 0
    refusal: str = ""  # why it can do nothing


class Speeds:
    """Speeds of groups for kinds of demand, each kept for ``FRESH_S``."""

    def __init__(self, config: AutoscaleConfig, place: Place) -> None:
        self._config = config
        self._place = place
        self._known: dict[Demand, tuple[float, dict[str, NodeSpeed]]] = {}
        self._machines = {group.name: group.node for group in config.groups}
        self._seen: set[str] = set()

    def note_machine(self, group: str, node: Node) -> None:
        """Use a probed node for its whole group: its driver, and so its kind of NVENC, may not be the file's."""
        if group not in self._seen or set(_kinds(node)) != set(_kinds(self._machines[group])):
            self._seen.add(group)
            self._machines[group] = node
            self._known = {}

    def of(self, demand: Demand, now_s: float) -> dict[str, NodeSpeed]:
        """Return what one node of each group does for a demand whose encoder is chosen."""
        key = _filling(demand)
        known = self._known.get(key)
        if known is None or now_s - known[0] >= FRESH_S:
            speeds = {name: node_speed(key, node, self._place) for name, node in self._machines.items()}
            self._known = {kind: each for kind, each in self._known.items() if now_s - each[0] < FRESH_S}
            known = self._known[key] = now_s, speeds
        return known[1]

    def with_encoder(self, demand: Demand, now_s: float) -> Demand:
        """Return a demand with the encoder that costs least, where one is to be chosen."""
        return min(self.variants(demand), key=lambda each: self._frame_cost(each, now_s))

    def variants(self, demand: Demand) -> Iterator[Demand]:
        """Yield a demand with each encoder that nodes of the groups could bind it to, software first."""
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
        """Return what a job first seen at ``since_s`` has left to do; ``running`` of its segments run."""
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
        """Return what a batch will ask for after its running jobs, as clients report it.

        It is to end in the time that a job has, from now on: as it gets less, it asks for no more nodes than before.
        """
        like = self.with_encoder(replace(demand, frames_total=0, workers_max=None, finish_within_s=None), now_s)
        at_once = demand.workers_max or 1
        found = self.work_of(like, now_s, now_s)
        return replace(found, frames=demand.frames_total, at_once=at_once, waiting=at_once, is_later=True)


def node_speed(demand: Demand, node: Node, place: Place) -> NodeSpeed:
    """Return what a node does for a demand of more segments than it has room for."""
    placement = place((demand,), Inventory((node,)))
    fps, sessions = sum(lane.fps for lane in placement.lanes), sum(lane.sessions for lane in placement.lanes)
    if fps > 0:
        return NodeSpeed(fps, sessions)
    gpus = {device.device for device in node.gpus}
    # Of a GPU, where there is one; the first sums up.
    named = sorted(placement.refusals, key=lambda each: (gpus.isdisjoint(each.devices), not each.devices))
    return NodeSpeed(refusal=named[0].reason if named else "it has nothing for it")


def _kinds(node: Node) -> list[EncoderKind]:
    return [nvenc_kind(each) for each in node.devices if each.engine_count(Engine.NVENC) > 0]


def _filling(demand: Demand) -> Demand:
    """Return a demand like another that fills any node, to look it up by."""
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
    """A demand whose encoder is chosen, when it would be done, and the decision that it leads to."""

    demand: Demand
    forecast: Forecast
    decision: Decision

    def growth(self, last: Decision) -> str:
        """Say which nodes would be asked for beside those of the last decision, why, and what the job then costs."""
        sizes = (size for size in self.decision.sizes if size.wanted > last.size(size.group).wanted)
        more = [f"{size.group}: {size.reason}" for size in sizes]
        cost = f"about {self.forecast.cost:.2f} for the job, with the nodes' start and their idle time at the end"
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
    """Return the encoder that does a job in time at the least cost, or with the least delay; software among equals."""
    choices = []
    for variant in speeds.variants(demand):
        decision = decide(config, [*others, speeds.work_of(variant, now_s, now_s)], nodes, last, now_s)
        forecast = next(each for each in decision.forecasts if each.job == demand.job)
        choices.append(Choice(variant, forecast, decision))
    return min(choices, key=lambda choice: (choice.forecast.late_s, choice.forecast.cost))
