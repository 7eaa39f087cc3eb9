"""Ray's second autoscaler: whether there is one, what it says of itself, and the end of an idle node."""

import os
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .guard import why_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

_SWITCHED_ON: Final = "RAY_enable_autoscaler_v2"


def knows_labels() -> bool:
    """Return whether Ray's second autoscaler is switched on; the first one ignores labels.

    By the head's environment where Ray cannot be asked: there a supervisor runs whose cluster grows.
    """
    if why_unknown({"utils.is_autoscaler_v2": ()}, "ray.autoscaler.v2"):
        return os.environ.get(_SWITCHED_ON, "").lower() in ("1", "true")
    return bool(import_module("ray.autoscaler.v2.utils").is_autoscaler_v2())


Asked: TypeAlias = Counter[tuple[frozenset[tuple[str, float]], frozenset[tuple[str, str]]]]
"""What Ray's autoscaler is to have room for: how many bundles of these resources, on nodes with these labels."""


class AutoscalerReport(NamedTuple):
    """What Ray says of its autoscaler."""

    asked: Asked  #: its last request
    is_refused: bool  #: whether it found that it cannot give that
    looks: int  #: grows each time that it looks at the cluster


_WORDS: Final = "ray.core.generated.autoscaler_pb2"  #: What the service's messages are made of
_AUTOSCALER_S: Final = 5


def autoscaler_report() -> AutoscalerReport | None:
    """Return what Ray says of its second autoscaler; None where this Ray cannot be asked: judge by what it does."""
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
    """Ask Ray to end a node that runs nothing; False if it runs something.

    A Ray without this call ends it after its own idle time.
    """
    client = _control_service("drain_node", "node_id", "reason", "reason_message", "deadline_timestamp_ms")
    if client is None:
        return False
    words: Any = import_module(_WORDS)
    idle = words.DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")
    return bool(client.drain_node(node, idle, reason, 0)[0])


def _control_service(call: str, *arguments: str) -> Any:
    """Return this process's client of Ray's control service; None where that call of it is not as expected."""
    needed: dict[str, Mapping[str, tuple[str, ...] | type]] = {
        "ray": {f"_raylet.InnerGcsClient.{call}": ("self", *arguments)},
        "ray.core.generated": {"autoscaler_pb2.GetClusterStatusReply": type, "autoscaler_pb2.DrainNodeReason": object},
        "ray.experimental": {"internal_kv.internal_kv_get_gcs_client": ()},
    }
    if any(why_unknown(shapes, package) for package, shapes in needed.items()):
        return None
    from ray.experimental import internal_kv

    return internal_kv.internal_kv_get_gcs_client()
