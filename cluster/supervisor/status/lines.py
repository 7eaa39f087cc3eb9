"""A supervisor's status as text: narrow, without colour, in a fixed order."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from textwrap import wrap

from ...grouping import counted
from ...version import named
from .device_status import GIB, DeviceStatus
from .status import AutoscalingStatus, JobStatus, Status, WorkerStatus

STATUS_SCHEMA = 1  # the version of the JSON document
WIDTH = 110

NO_SUPERVISOR = "no supervisor runs on this cluster: no job has used it lately, and nothing is leased"
LOG_LINES = 10


def status_lines(status: Status) -> Iterator[str]:
    """Yield the lines: nodes, devices, workers with leases, jobs, autoscaling, quarantine, and the newest events."""
    yield f"supervisor  process {status.pid} on {status.host}, {named(status.release)}"
    yield ""
    yield f"nodes       {len(status.nodes)}"
    for node in status.nodes:
        probed = "" if node.probed else ", not probed yet"
        runs = f", codecfleet {node.release}" if node.release else ""
        yield f"  {node.name:<24} {node.node[:8]}  {node.state:<9} {node.devices}{probed}{runs}"
        for line in filter(None, (node.driver_choice, node.clock)):
            yield from _indented(line)
    yield ""
    if status.devices:
        yield f"devices     {len(status.devices)}"
        for device in status.devices:
            yield from _device(device)
        yield ""
    used, slots = sum(worker.used for worker in status.ready), sum(worker.slots for worker in status.ready)
    yield f"workers     {len(status.ready)} ready, {used} of {slots} slots in use"
    yield from map(_worker, status.present)
    yield ""
    yield f"jobs        {len(status.jobs)}"
    for job in status.jobs:
        yield from _job(job)
    yield ""
    if status.autoscaling is not None:
        yield from _autoscaling(status.autoscaling)
        yield ""
    yield f"quarantine  {len(status.quarantine) or 'none'}"
    yield from (f"  {line}" for line in status.quarantine)
    yield ""
    yield "events"
    yield from (f"  {datetime.fromtimestamp(at_s, tz=UTC):%H:%M:%S}  {line}" for at_s, line in status.log[-LOG_LINES:])


def _autoscaling(scaling: AutoscalingStatus) -> Iterator[str]:
    most = "" if scaling.price_per_hour_max is None else f" of at most {scaling.price_per_hour_max}"
    wanted = sum(group.wanted for group in scaling.groups)
    yield f"autoscaling {counted(wanted, 'node')} wanted, {scaling.price_per_hour}{most} an hour"
    if scaling.trouble:
        yield from _indented(f"not carried out: {scaling.trouble}")
    for group in scaling.groups:
        count = f"{group.there} of {group.wanted}, {group.nodes_max} at most"
        yield from wrap(
            f"{group.group:<24} {count}; {group.reason}", WIDTH, initial_indent="  ", subsequent_indent="    "
        )
    for line in scaling.late:
        yield from _indented(f"late: {line.rpartition('/')[2]}")


def _indented(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")


def _device(device: DeviceStatus) -> Iterator[str]:
    known = [part for part in (*_uses(device), _memory(device), _sessions(device)) if part]
    age = "not polled yet" if device.seen_s is None else f"{device.seen_s:.0f} s ago"
    yield f"  {device.node:<24} {device.state:<11} {', '.join((device.name, *known, age))}"
    more = [device.reason, *_health(device)]
    if "poll" in device.unknown and device.seen_s is not None:
        more.append(f"not polled: {device.unknown['poll']}")
    for line in filter(None, more):
        yield from _indented(line)


def _uses(device: DeviceStatus) -> Iterator[str]:
    for engine, use in device.use.items():
        if use["percent"] is not None:
            others = f" ({use['others_percent']} % others)" if use["others_percent"] else ""
            yield f"{engine.upper()} {use['percent']} %{others}"


def _memory(device: DeviceStatus) -> str:
    others = device.memory.get("others_bytes")
    theirs = f" ({others / GIB:.1f} others)" if others else ""
    return f"{device.memory_used} GiB{theirs}" if device.memory_used else ""


def _sessions(device: DeviceStatus) -> str:
    count, others = device.encoder_sessions.get("open"), device.encoder_sessions.get("others")
    return f"{counted(count, 'encoder session')} ({others} others)" if count else ""


def _health(device: DeviceStatus) -> Iterator[str]:
    yield device.held_down
    yield device.licence or ""
    yield device.hosted
    if device.scheduler is not None:
        licensed = sum(vgpu["is_licensed"] is True for vgpu in device.vgpus)
        yield f"hosts {counted(len(device.vgpus), 'vGPU')}, {licensed} licensed; scheduler: {device.scheduler}"


def _worker(worker: WorkerStatus) -> str:
    fps = "" if worker.fps is None else f"{worker.fps:.1f} fps"
    pid = "" if worker.pid is None else f"process {worker.pid}"
    parts = filter(None, (worker.on, pid, counted(worker.slots, "slot"), fps, worker.jobs, worker.reason))
    return f"  {worker.place:<24} {worker.state:<11} {', '.join(parts)}"


def _job(job: JobStatus) -> Iterator[str]:
    name = " ".join(filter(None, (job.name, job.title)))
    left = counted(job.segments_left, "segment")
    urgency = f", priority {job.priority}" if job.priority else ""
    slots = counted(job.granted_slots, "slot")
    done = "" if job.done_percent is None else f"{job.done_percent} % done, "
    soon = "" if job.left_s is None else f"{timedelta(seconds=round(job.left_s))} to go, "
    yield f"  {name:<24} {done}{soon}uses {job.used_slots}, may use {slots}, {left} left{urgency} ({job.client})"
    if job.waits_for:
        yield from _indented(f"waits: {job.waits_for}")
