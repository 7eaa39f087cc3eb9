"""How Ray's autoscaler is asked for nodes: once for each change, and with one line where it gives none."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from codecfleet.cluster.autoscale.values import WantedNodes
from codecfleet.cluster.ray.private.autoscaler import Asked, AutoscalerReport
from codecfleet.cluster.supervisor.backends.ray_autoscaler import (
    SILENT_S,
    AutoscalerCalls,
    RayAutoscaler,
    asked_by,
)
from codecfleet.cluster.supervisor.state.events import Resize
from codecfleet.errors import FleetUnavailable
from codecfleet.testing import FakeClock


@dataclass
class Calls(AutoscalerCalls):
    """An autoscaler that notes what it is asked for, in order."""

    made: list[object] = field(default_factory=list)
    asked: Asked = field(default_factory=Counter)
    has_labels: bool = True
    is_refused: bool = False
    tells: bool = True
    looks: int = 0

    def knows_labels(self) -> bool:
        """Return what a test says."""
        return self.has_labels

    def report(self) -> AutoscalerReport | None:
        """Return how it stands, where it tells."""
        return AutoscalerReport(self.asked, self.is_refused, self.looks) if self.tells else None

    def ask(self, wanted: Iterable[WantedNodes]) -> None:
        """Note the number of nodes."""
        self.asked = asked_by(wanted)
        self.made.append(sum(self.asked.values()))

    def end(self, node: str) -> None:
        """Note the node."""
        self.made.append(node)


def want(count: int, *ended: str) -> Resize:
    """Return an order for a number of nodes of one group, and none of another."""
    cpu = {"CPU": 8.0}
    small = WantedNodes(group="small", labels={"group": "small"}, resources=cpu, count=count)
    return Resize((small, WantedNodes(group="big", labels={"group": "big"}, resources=cpu, count=0)), ended)


@pytest.mark.parametrize("tells", [True, False])
def test_a_request_is_sent_when_it_changes(*, tells: bool) -> None:
    """Repeated orders send nothing; the first one for no nodes neither."""
    calls = Calls(tells=tells)
    autoscaler = RayAutoscaler(calls, FakeClock())
    for count in (0, 3, 3, 2, 2, 0, 0):
        autoscaler.resize(want(count))
    assert calls.made == [3, 2, 0]


def test_what_stands_is_not_asked_for_again() -> None:
    """A new supervisor finds what the last one asked for; what another program asked for is replaced."""
    calls = Calls()
    RayAutoscaler(calls, FakeClock()).resize(want(2))
    successor = RayAutoscaler(calls, FakeClock())
    successor.resize(want(2))
    assert calls.made == [2]
    calls.asked = asked_by(want(7).wanted)
    successor.resize(want(2))
    assert calls.made == [2, 2]


def test_a_node_is_ended_after_the_request_without_it() -> None:
    """Else the autoscaler would start another in its place."""
    calls = Calls()
    autoscaler = RayAutoscaler(calls, FakeClock())
    autoscaler.resize(want(2))
    autoscaler.resize(want(1, "a"))
    assert calls.made == [2, 1, "a"]


def test_without_an_autoscaler_nothing_is_asked_or_ended() -> None:
    """One line says so, and what to do."""
    calls = Calls(has_labels=False)
    with pytest.raises(FleetUnavailable, match=r"no autoscaler that knows labels\. Start the head with"):
        RayAutoscaler(calls, FakeClock()).resize(want(1, "a"))
    assert calls.made == []


def test_a_refusal_is_told_of_what_was_asked_for_alone() -> None:
    """The autoscaler's word on an earlier request says nothing of a new one."""
    calls = Calls()
    autoscaler = RayAutoscaler(calls, FakeClock())
    autoscaler.resize(want(9))
    calls.is_refused = True
    with pytest.raises(FleetUnavailable, match="so it gives none"):
        autoscaler.resize(want(9))
    autoscaler.resize(want(2))


async def test_an_autoscaler_that_does_not_look_any_more_is_told() -> None:
    """Ray does not start a dead one again."""
    calls, clock = Calls(), FakeClock()
    autoscaler = RayAutoscaler(calls, clock)
    calls.looks = 1
    autoscaler.resize(want(1))
    await clock.advance(SILENT_S)
    autoscaler.resize(want(1))
    await clock.advance(1)
    with pytest.raises(FleetUnavailable, match="has not looked"):
        autoscaler.resize(want(1))
    calls.looks = 2
    autoscaler.resize(want(1))
