"""Requests to Ray's autoscaler: one for each change, and one line if the autoscaler refuses."""

from collections import Counter
from collections.abc import Iterable

import pytest

from codecfleet.cluster.autoscale.values import WantedNodes
from codecfleet.cluster.ray.private.autoscaler import Asked, AutoscalerReport
from codecfleet.cluster.supervisor.backends.ray_autoscaler import SILENT_S, RayAutoscaler, asked_by
from codecfleet.cluster.supervisor.state.events import Resize
from codecfleet.errors import FleetUnavailable
from codecfleet.testing import FakeClock


class Calls(RayAutoscaler):
    """An autoscaler that records the requests in order."""

    def __init__(self, clock: FakeClock | None = None, *, tells: bool = True, has_labels: bool = True) -> None:
        super().__init__(clock or FakeClock())
        self.made: list[object] = []
        self.asked: Asked = Counter()
        self.has_labels = has_labels
        self.is_refused = False
        self.tells = tells
        self.looks = 0

    def knows_labels(self) -> bool:
        """Return the value that the test has set."""
        return self.has_labels

    def report(self) -> AutoscalerReport | None:
        """Return a report, unless the test withholds it."""
        return AutoscalerReport(self.asked, self.is_refused, self.looks) if self.tells else None

    def ask(self, wanted: Iterable[WantedNodes]) -> None:
        """Record the number of nodes."""
        self.asked = asked_by(wanted)
        self.made.append(sum(self.asked.values()))

    def end(self, node: str) -> None:
        """Record the node."""
        self.made.append(node)


def want(count: int, *ended: str) -> Resize:
    """Return an order for a number of nodes of one group and none of another."""
    cpu = {"CPU": 8.0}
    small = WantedNodes(group="small", labels={"group": "small"}, resources=cpu, count=count)
    return Resize((small, WantedNodes(group="big", labels={"group": "big"}, resources=cpu, count=0)), ended)


@pytest.mark.parametrize("tells", [True, False])
def test_a_request_is_sent_when_it_changes(*, tells: bool) -> None:
    """Repeated orders send no request; neither does a first order for no nodes."""
    autoscaler = Calls(tells=tells)
    for count in (0, 3, 3, 2, 2, 0, 0):
        autoscaler.resize(want(count))
    assert autoscaler.made == [3, 2, 0]


def test_a_request_in_force_is_not_repeated() -> None:
    """A new supervisor keeps the request of the one before, and replaces a request of another program."""
    successor = Calls()
    successor.asked = asked_by(want(2).wanted)
    successor.resize(want(2))
    assert successor.made == []
    successor.asked = asked_by(want(7).wanted)
    successor.resize(want(2))
    assert successor.made == [2]


def test_a_node_is_ended_after_the_request_without_it() -> None:
    """The request comes first, because the autoscaler would otherwise start a replacement."""
    autoscaler = Calls()
    autoscaler.resize(want(2))
    autoscaler.resize(want(1, "a"))
    assert autoscaler.made == [2, 1, "a"]


def test_without_an_autoscaler_nothing_is_requested_or_ended() -> None:
    """The error says that there is no autoscaler, and what to do."""
    autoscaler = Calls(has_labels=False)
    with pytest.raises(FleetUnavailable, match=r"no autoscaler that supports labels\. Start the head with"):
        autoscaler.resize(want(1, "a"))
    assert autoscaler.made == []


def test_a_refusal_counts_only_for_the_current_request() -> None:
    """A refusal of an earlier request does not count for a new request."""
    autoscaler = Calls()
    autoscaler.resize(want(9))
    autoscaler.is_refused = True
    with pytest.raises(FleetUnavailable, match="so it provides none"):
        autoscaler.resize(want(9))
    autoscaler.resize(want(2))


async def test_a_dead_autoscaler_is_reported() -> None:
    """A dead autoscaler is reported, because Ray does not restart it."""
    clock = FakeClock()
    autoscaler = Calls(clock)
    autoscaler.looks = 1
    autoscaler.resize(want(1))
    await clock.advance(SILENT_S)
    autoscaler.resize(want(1))
    await clock.advance(1)
    with pytest.raises(FleetUnavailable, match="has not looked"):
        autoscaler.resize(want(1))
    autoscaler.looks = 2
    autoscaler.resize(want(1))
