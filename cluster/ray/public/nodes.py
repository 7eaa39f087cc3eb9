"""Lists a cluster's nodes, runs functions on nodes, and finds out where in the cluster this process runs."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...worker_names import NodeId

ResultT = TypeVar("ResultT")


def all_nodes() -> list[dict[str, Any]]:
    """Return every node that is or was in the cluster, as Ray describes it."""
    import ray

    found: list[dict[str, Any]] = ray.nodes()
    return found


def on_node(node: str) -> Any:
    """Return the scheduling strategy that allows only the node with this Ray id."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def run_on_node(node: str, function: Callable[..., ResultT], *arguments: object) -> Awaitable[ResultT]:
    """Run a function once in a process on a node, without reserving CPUs; Ray's errors are raised unchanged."""
    import ray

    options: dict[str, Any] = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": on_node(node)}
    answer: Awaitable[ResultT] = ray.remote(**options)(function).remote(*arguments)
    return answer


def request_nodes(bundles: Sequence[Mapping[str, float]], labels: Sequence[Mapping[str, str]]) -> None:
    """Ask Ray's autoscaler for these bundles on nodes with these labels; this replaces all earlier requests."""
    from ray.autoscaler.sdk import request_resources

    request_resources(bundles=[dict(each) for each in bundles], bundle_label_selectors=[dict(each) for each in labels])


def this_node() -> NodeId:
    """Return the Ray id of this process's node."""
    import ray

    return NodeId(ray.get_runtime_context().get_node_id())


def cluster_address() -> str:
    """Return the address of the control service of this process's cluster."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


def this_actor() -> str:
    """Return the name of the actor that calls this function; "" if the actor has no name."""
    import ray

    return ray.get_runtime_context().get_actor_name() or ""


def given_gpus() -> list[str]:
    """Return the GPUs that Ray assigned to this actor or task, as numbers or UUIDs."""
    import ray

    return ray.get_runtime_context().get_accelerator_ids().get("GPU", [])


def log_folder() -> Path:
    """Return the folder of Ray's logs on this node. Raises RuntimeError if Ray did not start this process."""
    import ray

    if not ray.is_initialized():
        message = "Ray did not start this process"
        raise RuntimeError(message)  # without this check, Ray would start a cluster
    context = ray.get_runtime_context()
    return Path(context.get_temp_dir(), context.get_session_name(), "logs")
