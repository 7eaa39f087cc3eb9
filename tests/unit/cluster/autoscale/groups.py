"""Builders of groups, work and nodes for tests of the autoscaler."""

from decimal import Decimal

from codecfleet.cluster.autoscale.config import AutoscaleConfig, Group
from codecfleet.cluster.autoscale.values import JobWork, NodeSeen
from codecfleet.cluster.placement.model import processor_of


def group(name: str, price: str = "1.00", *, nodes_max: int = 10, nodes_min: int = 0, start_s: float = 100.0) -> Group:
    """Return a group of nodes with 8 cores."""
    return Group(
        name=name,
        labels={"group": name},
        resources={"CPU": 8.0},
        node=processor_of(name, name, 8),
        nodes_max=nodes_max,
        nodes_min=nodes_min,
        price_per_hour=Decimal(price),
        start_s=start_s,
    )


def config(
    *groups: Group,
    finish_within_s: float = 1000.0,
    idle_s: float = 300.0,
    turn_s: float = 200.0,
    nodes_max: int = 100,
    price: str | None = None,
) -> AutoscaleConfig:
    """Return a configuration with these groups."""
    return AutoscaleConfig(
        groups=groups,
        finish_within_s=finish_within_s,
        idle_s=idle_s,
        turn_s=turn_s,
        nodes_max=nodes_max,
        price_per_hour_max=None if price is None else Decimal(price),
    )


def work(
    job: str = "job",
    *,
    frames: int = 90_000,
    due_s: float = 1000.0,
    is_promised: bool = False,
    at_once: int = 1000,
    waiting: int | None = None,
    sessions: int = 10,
    segment_frames: int = 100,
    **fps: float,
) -> JobWork:
    """Return a job's work; the keywords are the frames a second of a node of each group."""
    return JobWork(
        job=job,
        frames=frames,
        at_once=at_once,
        waiting=at_once if waiting is None else waiting,
        longest_frames=segment_frames,
        due_s=due_s,
        is_promised=is_promised,
        fps=fps,
        sessions=dict.fromkeys(fps, sessions),
    )


def node(name: str, of: str = "a", *, idle_since_s: float | None = None, leaves: bool = False) -> NodeSeen:
    """Return a running node, which is busy unless ``idle_since_s`` is given."""
    leases = 0 if idle_since_s is not None else 1
    return NodeSeen(node=name, group=of, leases=leases, idle_since_s=idle_since_s, is_leaving=leaves)
