"""A supervisor's timeouts, in seconds, and what the environment changes of them and of the policy."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...autoscale.config import AutoscaleConfig, load_autoscale
from ...fleet_variables import autoscale_file, idle_release_s, policy_file
from ...placement.model.policy import Policy, load_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """The supervisor's timeouts, with a cluster's defaults.

    Attributes:
        idle_release_s: an unused worker keeps its process and reservation this long; None keeps it.
        client_expiry_s: a client without a report for this long loses its slots.
        recovery_s: after a restart, clients have this long to report what they hold before anything else is granted.
        node_wait_s: how long jobs wait for a first node with a CPU, on a cluster that is starting.
        device_wait_s: how long a job that only GPUs can serve waits for one.
        reserve_limit_s: how long a reservation may wait for Ray; the next attempt takes what is free.
        start_limit_s: how long a worker process may take to answer; a cold node needs some seconds.
        ping_limit_s: a worker without an answer for this long counts as dead: Ray needs 65 s to see a frozen node.
        quarantine_s: how long a device rests after too many deaths before it is probed; doubles each time.
        fence_s: a worker that is not renewed for this long ends itself.
        health_s: how often every node's GPUs are polled.
        health_limit_s: how long a poll may take; then the polling process is replaced.
        retire_s: a supervisor without clients and workers ends itself after this long.
        bridges: until the workers of a job's GPUs have started, it may use processors instead.
        gpu_start_s: how long a GPU's worker takes to start while none is there; who chooses an NVENC waits for it.
        autoscale: the groups of nodes that come and go with the work; None for a cluster that others resize.
    """

    idle_release_s: float | None = 30.0
    client_expiry_s: float = 10.0
    recovery_s: float = 3.0
    node_wait_s: float = 30.0
    device_wait_s: float = 30.0
    reserve_limit_s: float = 10.0
    start_limit_s: float = 60.0
    ping_limit_s: float = 20.0
    quarantine_s: float = 30.0
    fence_s: float = 60.0
    health_s: float = 10.0
    health_limit_s: float = 30.0
    retire_s: float = 600.0
    bridges: bool = False
    gpu_start_s: float = 0.0
    autoscale: AutoscaleConfig | None = None


def settings_from(environment: Mapping[str, str]) -> SupervisorSettings:
    """Return a cluster's settings, as the environment changes them.

    Raises:
        UsageError: a variable makes no sense.
    """
    settings, idle_s, autoscale = SupervisorSettings(), idle_release_s(environment), autoscale_file(environment)
    if idle_s is not None:
        settings = replace(settings, idle_release_s=idle_s)
    return replace(settings, autoscale=load_autoscale(autoscale)) if autoscale else settings


def policy_from(environment: Mapping[str, str]) -> Policy:
    """Return the policy that the environment names, or the default.

    Raises:
        UsageError: the file cannot be read, or is invalid.
    """
    path = policy_file(environment)
    return load_policy(path) if path else Policy()
