"""Ray's autoscaler v2: asks whether it is on, reads its report, and ends idle nodes."""

import os
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .guard import why_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCHED_ON: Final = "RAY_enable_autoscaler_v2"


def knows_labels() -> bool:
    """Return whether Ray's autoscaler v2 is switched on; v1 ignores labels.

    If Ray cannot be asked, this process's environment decides. The supervisor of a growing cluster runs on the head, so
    it has the environment of the autoscaler.
    """
    if why_unknown({"utils.is_autoscaler_v2": ()}, "ray.autoscaler.v2"):
        return os.environ.get(_SWITCHED_ON, "").lower() in ("1", "true")
    return bool(import_module("ray.autoscaler.v2.utils").is_autoscaler_v2())


Asked: TypeAlias = Counter[tuple[frozenset[tuple[str, float]], frozenset[tuple[str, str]]]]
"""The capacity to request from Ray's autoscaler: how many bundles of each combination of resources and node labels."""


class AutoscalerReport(NamedTuple):
    """Ray's report on its autoscaler."""

    asked: Asked  #: the last request that the autoscaler got
    is_refused: bool  #: whether the autoscaler cannot fulfil that request
    looks: int  #: a number that grows each time the autoscaler examines the cluster


_WORDS: Final = "ray.core.generated.autoscaler_pb2"  #: The message types of the service
_AUTOSCALER_S: Final = 5


def autoscaler_report() -> AutoscalerReport | None:
    """Return Ray's report on its autoscaler v2; None if this Ray cannot be asked."""
    client = _control_service("get_cluster_status", "timeout_s")
    if client is None:
        return None
    words: Any = import_module(_WORDS)
    status = words.GetClusterStatusReply.FromString(client.get_cluster_status(timeout_s=_AUTOSCALER_S))
    asked: Asked = Counter()
    for constraint in status.cluster_resource_state.cluster_resource_constraints:
        for each in constraint.resource_requests:
            selectors = [one for each_of in each.request.label_selectors for one in each_of.label_constraints]
            labels = frozenset((one.label_key, value) for one in selectors for value in one.label_values)
            asked[frozenset(each.request.resources_bundle.items()), labels] += each.count
    found = status.autoscaling_state
    is_refused = bool(found.infeasible_cluster_resource_constraints)
    return AutoscalerReport(asked, is_refused, found.last_seen_cluster_resource_state_version)


def end_idle_node(node: str, reason: str) -> bool:
    """Ask Ray to end an idle node; return False if the node is not idle.

    If this Ray lacks the call, Ray ends the node by itself after its own idle time-out.
    """
    client = _control_service("drain_node", "node_id", "reason", "reason_message", "deadline_timestamp_ms")
    if client is None:
        return False
    words: Any = import_module(_WORDS)
    idle = words.DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")
    return bool(client.drain_node(node, idle, reason, 0)[0])


def _control_service(call: str, *arguments: str) -> Any:
    """Return this process's client of Ray's control service; None if the client's ``call`` has another signature."""
    needed: dict[str, Mapping[str, tuple[str, ...] | type]] = {
        "ray": {f"_raylet.InnerGcsClient.{call}": ("self", *arguments)},
        "ray.core.generated": {"autoscaler_pb2.GetClusterStatusReply": type, "autoscaler_pb2.DrainNodeReason": object},
        "ray.experimental": {"internal_kv.internal_kv_get_gcs_client": ()},
    }
    if any(why_unknown(shapes, package) for package, shapes in needed.items()):
        return None
    from ray.experimental import internal_kv

    return internal_kv.internal_kv_get_gcs_client()
