"""Which encoder a job should be bound to where nodes for it may still have to come, and which nodes those are."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..placement.model.demand import Demand
from .config import AutoscaleConfig
from .deciding import decide
from .speeds import Speeds
from .values import Decision, Forecast, JobWork, NodeSeen


@dataclass(frozen=True, slots=True)
class Choice:
    """A demand whose encoder is settled, when it would be done, and the decision that it leads to."""

    demand: Demand
    forecast: Forecast
    decision: Decision


def growth_of(choice: Choice, last: Decision) -> str:
    """Say which nodes would be asked for beside those of the last decision, why, and what the job costs with them."""
    sizes = (size for size in choice.decision.sizes if size.wanted > last.size(size.group).wanted)
    more = [f"{size.group}: {size.reason}" for size in sizes]
    cost = f"about {choice.forecast.cost:.2f} for the job, with the nodes' start and their idle time at the end"
    return "; ".join([*more, *([cost] if more else []), *filter(None, [choice.forecast.reason])])


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
        work = speeds.work_of(variant, now_s, now_s)
        decision = decide(config, [*others, work], nodes, last, now_s)
        forecast = next(each for each in decision.forecasts if each.job == demand.job)
        choices.append(Choice(variant, forecast, decision))
    return min(choices, key=lambda choice: (choice.forecast.late_s, choice.forecast.cost))
