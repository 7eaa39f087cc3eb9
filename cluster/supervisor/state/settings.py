"""A supervisor's timeouts and policy, with the environment's changes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...autoscale.config import AutoscaleConfig, load_autoscale
from ...fleet_variables import AUTOSCALE, POLICY, idle_release_s
from ...placement.model.policy import Policy, load_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The supervisor's timeouts in seconds, and its options; the defaults suit a cluster."""

    idle_release_s: float | None = 30.0  # how long an unused worker keeps its process and reservation; None: for ever
    client_expiry_s: float = 10.0  # a client without a report for this long loses its slots
    recovery_s: float = 3.0  # after a restart clients have this long to report their slots, which do not change
    node_wait_s: float = 30.0  # how long jobs wait for the first node with a CPU while a cluster starts
    device_wait_s: float = 30.0  # how long a job that only GPUs can serve waits for one
    reserve_limit_s: float = 10.0  # how long Ray may take for a reservation; the next attempt takes what is free
    start_limit_s: float = 60.0  # how long a worker process may take to answer; a cold node needs some seconds
    ping_limit_s: float = 20.0  # a worker without an answer for this long is dead: Ray needs 65 s for a frozen node
    quarantine_s: float = 30.0  # how long a device waits for its first trial; doubles each time
    fence_s: float = 60.0  # a worker that is not renewed for this long ends itself
    health_s: float = 10.0  # how often every node's GPUs are polled
    health_limit_s: float = 30.0  # how long a poll may take; then the polling process is replaced
    retire_s: float = 600.0  # a supervisor without clients and workers ends itself after this long
    bridges: bool = False  # until the workers of a job's GPUs have started, it may use processors instead
    gpu_start_s: float = 0.0  # how long the first GPU's worker takes to start; the choice of an encoder allows for it
    autoscale: AutoscaleConfig | None = None  # groups of nodes that it resizes; None: others resize the cluster


def settings_from(environment: Mapping[str, str]) -> SupervisorSettings:
    """Return a cluster's settings with the environment's changes. Raises UsageError: a variable is invalid."""
    settings, idle_s, autoscale = SupervisorSettings(), idle_release_s(environment), environment.get(AUTOSCALE, "")
    if idle_s is not None:
        settings = replace(settings, idle_release_s=idle_s)
    return replace(settings, autoscale=load_autoscale(autoscale)) if autoscale else settings


def policy_from(environment: Mapping[str, str]) -> Policy:
    """Return the policy that the environment names, or the default. Raises UsageError: its file is invalid."""
    path = environment.get(POLICY, "")
    return load_policy(path) if path else Policy()
