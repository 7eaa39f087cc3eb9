"""Requests nodes of each group from Ray's autoscaler, and ends idle nodes.

A request stays in force until it is replaced, even after the supervisor ends. docs/autoscaling.md has measurements.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from ....errors import FleetUnavailable
from ...autoscale.values import WantedNodes
from ...ray.private.autoscaler import Asked, AutoscalerReport, autoscaler_report, end_idle_node, knows_labels
from ...ray.public.nodes import request_nodes
from ...worker_names import NodeId
from ..state.events import Resize

REASON: Final = "codecfleet has no work for it"
SILENT_S: Final = 60.0  # Ray's autoscaler looks every 5 s; after this long without a look it counts as dead


class RayAutoscaler:
    """The autoscaler of this process's Ray. Calls may block; ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: Asked = Counter()
        self._looks = 0
        self._looked_s = clock()

    def knows_labels(self) -> bool:
        """Return whether Ray's second autoscaler is switched on; the first autoscaler ignores labels."""
        return knows_labels()

    def report(self) -> AutoscalerReport | None:
        """Return Ray's report on the autoscaler; None if unknown."""
        return autoscaler_report()

    def ask(self, wanted: Iterable[WantedNodes]) -> None:
        """Replace the cluster's request for nodes."""
        nodes = [group for group in wanted for _ in range(group.count)]
        request_nodes([node.resources for node in nodes], [node.labels for node in nodes])

    def end(self, node: NodeId) -> None:
        """End a node that Ray finds idle."""
        end_idle_node(node, REASON)

    def resize(self, order: Resize) -> None:
        """Request the nodes of an order unless they equal the last request, and end the nodes that the order names.

        Raises FleetUnavailable: Ray has no such autoscaler, or the autoscaler has stopped or refused the request.
        """
        if not self.knows_labels():
            raise FleetUnavailable("this Ray has no autoscaler that supports labels", _START_IT)
        wanted, report = asked_by(order.wanted), self.report()
        standing = self._asked if report is None else report.asked
        if standing != wanted:
            self.ask(order.wanted)
        self._asked = wanted
        for node in order.ended:  # after the smaller request, so that Ray does not replace the ended nodes
            self.end(node)
        if report is not None:
            self._check(report, is_known=standing == wanted)

    def _check(self, report: AutoscalerReport, *, is_known: bool) -> None:
        now_s = self._clock()
        if report.looks != self._looks:
            self._looks, self._looked_s = report.looks, now_s
        if now_s - self._looked_s > SILENT_S:
            raise FleetUnavailable(f"Ray's autoscaler has not looked at the cluster for {SILENT_S:g} s", _LOOK_AT_IT)
        if is_known and report.is_refused:
            raise FleetUnavailable(_REFUSED, _LIMITS)


def asked_by(wanted: Iterable[WantedNodes]) -> Asked:
    """Return a request for these nodes in Ray's form: one bundle for each node, which fills the node."""
    asked: Asked = Counter()
    for group in wanted:
        asked[frozenset(group.resources.items()), frozenset(group.labels.items())] += group.count
    return +asked


_START_IT: Final = "Start the head with RAY_enable_autoscaler_v2=1 and a list of node types."
_LOOK_AT_IT: Final = "See monitor.log on the head. Ray does not restart its autoscaler, so restart the head."
_REFUSED: Final = "Ray's autoscaler cannot provide all requested nodes, so it provides none"
_LIMITS: Final = "Compare the groups' labels, resources and nodes_max with Ray's node types."
