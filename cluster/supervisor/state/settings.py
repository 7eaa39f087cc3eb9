"""A supervisor's timeouts and policy; environment variables can change them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...autoscale.config import AutoscaleConfig, load_autoscale
from ...fleet_variables import AUTOSCALE, POLICY, QUEUE, idle_release_s
from ...placement.model.policy import Policy, load_policy
from ...queue.values import has_password


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The supervisor's timeouts in seconds, and other options; the defaults suit a cluster."""

    idle_release_s: float | None = 30.0  # how long an unused worker keeps its process and reservation; for ever if None
    client_expiry_s: float = 10.0  # a client without a report for this long loses its slots
    # How long clients have after a restart to report their slots; until then slots do not change.
    recovery_s: float = 3.0
    node_wait_s: float = 30.0  # how long jobs wait for the first node with a CPU while a cluster starts
    device_wait_s: float = 30.0  # how long a job that needs a GPU waits for a GPU
    # how long Ray may take for a reservation; the next attempt reserves only free resources
    reserve_limit_s: float = 10.0
    # How long a worker process may take to answer after its start; some seconds are usual on a cold node.
    start_limit_s: float = 60.0
    # A worker without an answer for this long counts as dead; Ray itself needs 65 s to notice a frozen node.
    ping_limit_s: float = 20.0
    # How long a quarantined device waits for the first trial; doubles with each failed trial.
    quarantine_s: float = 30.0
    fence_s: float = 60.0  # a worker whose state no supervisor has read for this long ends itself
    health_s: float = 10.0  # how often every node's GPUs are polled
    health_limit_s: float = 30.0  # how long a poll may take; after that, the polling process is replaced
    retire_s: float = 600.0  # a supervisor without clients and workers ends itself after this long
    bridges: bool = False  # whether a job runs on ready devices while the GPU workers chosen for the job start
    gpu_start_s: float = 0.0  # how long the first GPU's worker takes to start, as assumed when an encoder is chosen
    # The node groups that the supervisor resizes; None if something else resizes the cluster.
    autoscale: AutoscaleConfig | None = None
    queue: str = ""  # the queue whose figures the metrics show; "" for none


def settings_from(environment: Mapping[str, str]) -> SupervisorSettings:
    """Return a cluster's settings, changed by environment variables. Raises UsageError: a variable is invalid."""
    idle_s, autoscale, queue = idle_release_s(environment), environment.get(AUTOSCALE, ""), environment.get(QUEUE, "")
    settings = SupervisorSettings(queue=_shared(queue) if queue else "")
    if idle_s is not None:
        settings = replace(settings, idle_release_s=idle_s)
    return replace(settings, autoscale=load_autoscale(autoscale)) if autoscale else settings


def _shared(queue: str) -> str:
    """Return a queue's place with an absolute path, because the supervisor's working folder differs.

    Return "" if the place has a password, because other programs of the cluster can read a supervisor's settings.
    """
    if has_password(queue):
        return ""
    return queue if "://" in queue else str(Path(queue).absolute())


def policy_from(environment: Mapping[str, str]) -> Policy:
    """Return the policy that the environment names, or the default. Raises UsageError: the policy's file is invalid."""
    path = environment.get(POLICY, "")
    return load_policy(path) if path else Policy()
