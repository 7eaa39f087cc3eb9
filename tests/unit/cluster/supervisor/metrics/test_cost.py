"""What monitoring is told of the nodes' prices."""

from dataclasses import replace

import pytest

from codecfleet.cluster.autoscale.config import AutoscaleConfig
from codecfleet.cluster.supervisor.metrics import table
from codecfleet.cluster.supervisor.metrics.tally import GAUGES_S, MetricTally
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings

from ...autoscale.groups import config, group
from ..core_worlds import World, node, wants

CHEAP, DEAR = group("cheap", "0.36"), group("dear", "7.20")


def of(name: str, labels: dict[str, str]) -> RayNode:
    """Return a node with labels."""
    return replace(node(name), labels=labels)


def costs(world: World, seconds: float) -> dict[str, float]:
    """Return what a look tells of the cost, so long after the one before."""
    tally = MetricTally(world.core.state, 0.0)
    return {each.labels[0]: each.value for each in tally.look({}, seconds) if each.metric is table.COST}


def world_of(autoscale: AutoscaleConfig | None) -> World:
    """Return two cheap nodes, a dear one, and one of no group, of which a job uses the first."""
    cheap = {"group": "cheap"}
    nodes = (of("a", {**cheap, "zone": "z"}), of("b", cheap), of("c", {"group": "dear"}), of("d", {}))
    world = World(*nodes, settings=SupervisorSettings(idle_release_s=30, autoscale=autoscale))
    world.say("one", wants("j", 50))
    world.wait(1.0)
    (worker,) = (each for each in world.say("one", wants("j", 50)).slots["j"] if each.startswith("a/"))
    world.say("one", wants("j", 50, {worker: 1}))
    return world


def test_nodes_cost_their_groups_price() -> None:
    """Each as a whole while it is there: busy where work runs, else idle; a node of no group has no price."""
    world = world_of(config(CHEAP, DEAR))
    assert costs(world, 10 * GAUGES_S) == {
        "busy": pytest.approx(0.36 / 3600 * 10 * GAUGES_S),
        "idle": pytest.approx((0.36 + 7.20) / 3600 * 10 * GAUGES_S),
    }


def test_without_prices_nothing_is_told() -> None:
    """Neither where no groups are set, nor where they cost nothing."""
    assert costs(world_of(None), GAUGES_S) == {}
    assert costs(world_of(config(group("cheap", "0"))), GAUGES_S) == {}
