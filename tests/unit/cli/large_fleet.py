"""Statuses of large fleets, in which one thing of each kind is broken."""

from dataclasses import replace
from typing import Any

from codecfleet.cluster.supervisor.status import DeviceStatus, JobStatus, NodeStatus, Status, WorkerStatus
from codecfleet.cluster.worker_names import StationId

NODES = 300
SICK, DRAINING, RESTING, WAITING = 111, 250, 33, 3
GIB = 1 << 30


def node(number: int) -> NodeStatus:
    """Return a node; one node is draining."""
    state = "draining" if number == DRAINING else "open"
    return NodeStatus(node=f"{number:08x}aa", name=f"gpu-{number}", state=state, devices="16 cores, L4", probed=True)


def device(number: int, **changes: Any) -> DeviceStatus:
    """Return a GPU that is as busy as its number says; one GPU is in quarantine."""
    is_sick = number == SICK
    found = DeviceStatus(
        node=f"gpu-{number}",
        device=f"GPU-{number:03}",
        name="L4",
        state="quarantined" if is_sick else "open",
        reason="3 files failed on it" if is_sick else "",
        use={"nvdec": {"percent": number // 3, "others_percent": 0}, "nvenc": {"percent": None}},
        memory={"total_bytes": 24 * GIB, "used_bytes": 3 * GIB, "others_bytes": 0},
        encoder_sessions={"open": 2, "others": 0},
    )
    return replace(found, **changes)


def worker(number: int) -> WorkerStatus:
    """Return the worker of a processor, which is as fast as its number says; one worker rests."""
    rests = number == RESTING
    return WorkerStatus(
        worker=StationId(f"{number:08x}aa/cpu#0"),
        node=f"gpu-{number}",
        kind="cpu",
        state="resting" if rests else "ready",
        since_s=3.0,
        reason="Ray did not reserve it" if rests else "",
        pid=None if rests else number,
        device="",
        slots=4,
        leases={} if rests else {"driver/35daf5cc": 3},
        fps=None if rests else float(number),
    )


def job(number: int) -> JobStatus:
    """Return a job; one job waits."""
    waits = number == WAITING
    return JobStatus(
        job=f"driver/{number:08x}",
        client=f"vm process {number}",
        priority=0,
        segments_left=number,
        granted_slots=0 if waits else 4,
        used_slots=0 if waits else 3,
        waits_for="other jobs hold the slots" if waits else "",
        title=f"{number}.mkv",
        done_percent=number,
        left_s=None if waits else 60.0 * number,
    )


def large_fleet(nodes: int = NODES, jobs: int = 40) -> Status:
    """Return a fleet with this many nodes, each with a GPU and a worker, and with jobs."""
    return Status(
        pid=4711,
        host="head",
        nodes=tuple(map(node, range(nodes))),
        devices=tuple(map(device, range(nodes))),
        workers=tuple(map(worker, range(nodes))),
        jobs=tuple(map(job, range(jobs))),
        quarantine=("L4 (GPU-111) since 2026-01-01, next trial in 20 s: 3 files failed on it",),
        log=tuple((float(second), f"event {second}") for second in range(100)),
    )
