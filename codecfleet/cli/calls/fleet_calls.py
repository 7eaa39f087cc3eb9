"""The calls of clusters, of the warm fleet, of this machine as a node, and of Ray jobs. Imports happen in the calls."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from .answers import Answer, Machines, NodeRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ...cluster.fleet.status_messages import SupervisorSide
    from ...cluster.node.listed import ListedNode
    from ...cluster.node.offer import Offer
    from ...cluster.node.orders import PreparedNode
    from ...cluster.operate.desk import AskDesk
    from ...cluster.operate.watch import Seen
    from ...cluster.probes.node import NodeReport, SilentNode
    from ...cluster.submission.job_server import JobServer
    from ...cluster.supervisor.status import Status


def ray_jobs(action: str, job_id: str, address: str | None) -> Answer:
    """List, show or stop Ray jobs."""
    from ...console.ray_job_text import job_json, job_rows

    server = job_server(address)
    if action == "logs":
        text = server.printed(job_id)
        return Answer(text.splitlines(), {"schema": 1, "job": job_id, "log": text})
    if action == "stop":
        was_running = server.stop(job_id)
        line = f"job {job_id} {'is being cancelled' if was_running else 'was over'}"
        return Answer([line], {"schema": 1, "job": job_id, "was_running": was_running})
    jobs = server.jobs()
    return Answer(job_rows(jobs), {"schema": 1, "jobs": [job_json(each) for each in jobs]})


def job_server(address: str | None) -> "JobServer":
    """Reach the job server at an address."""
    from ...cluster.submission.job_server import RayJobServer, job_server_address

    return RayJobServer(job_server_address(address))


def reports(machines: Machines) -> "Sequence[NodeReport | SilentNode]":
    """Probe machines; those of a simulated fleet say what real ones would."""
    import asyncio

    if machines.address is not None:
        from ...cluster.operate.desk import ProbeNodes, ask_cluster

        return asyncio.run(ask_cluster(machines.address, ProbeNodes(machines.fresh)))
    if machines.fleet is not None:
        from ...cluster.simulated.fleet_file import load_fleet
        from ...testing.fleet.simulated_report import simulated_report

        fleet = load_fleet(Path(machines.fleet))
        return [simulated_report(node, fleet.name) for node in fleet.nodes]
    from ...cluster.probes.node import probe_node

    return [probe_node(fresh=machines.fresh, software=machines.software)]


def list_nodes(address: str) -> "Sequence[tuple[NodeReport | SilentNode, ListedNode]]":
    """Return the nodes of a cluster, as probed and as Ray knows them."""
    import asyncio

    from ...cluster.operate.desk import ListNodes, ask_cluster

    return asyncio.run(ask_cluster(address, ListNodes()))


def status(address: str | None) -> "Status | None":
    """Return the status of a cluster, or of the warm fleet."""
    import asyncio

    from ...cluster.operate.watch import fleet_status

    return asyncio.run(fleet_status(address))


def keep_events(address: str | None, file: str) -> Answer:
    """Write what a cluster's supervisor decided lately to a file."""
    import asyncio
    from pathlib import Path

    from ...cluster.fleet_variables import EVENTS
    from ...cluster.operate.desk import ReadEvents, ask_cluster
    from ...cluster.operate.supervisor import require_address
    from ...errors import UsageError

    found = asyncio.run(ask_cluster(require_address(address), ReadEvents()))
    if not found:
        message = "the cluster has no supervisor, or one that keeps no events"
        raise UsageError(message, f"Set {EVENTS} to a folder on all nodes before the first job.")
    try:
        Path(file).write_bytes(found)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", "Name another file.") from error
    return Answer([f"the newest events are in {file}"], {"schema": 1, "file": file, "bytes": len(found)})


async def watch(address: str | None, show: "Callable[[Seen], None]", every_s: float) -> None:
    """Show a fleet's status again and again."""
    from ...cluster.operate.watch import watch_status

    await watch_status(address, show, every_s)


def open_desk(address: str | None) -> "AbstractAsyncContextManager[AskDesk[SupervisorSide]]":
    """Open the connection over which a fleet's status and history are asked for."""
    from ...cluster.operate.desk import fleet_desk

    return fleet_desk(address)


def order(address: str | None, order: str, node: str) -> Answer:
    """Have a cluster's supervisor cordon, drain or uncordon a node."""
    import asyncio

    from ...cluster.operate.desk import OrderNode, ask_cluster
    from ...cluster.operate.supervisor import require_address
    from ...cluster.supervisor.state import Order

    asyncio.run(ask_cluster(require_address(address), OrderNode(Order(order), node)))
    return Answer([f"{order}: {node}"], {"schema": 1, "node": node, "order": order})


def up(slots: int | None, idle_minutes: int) -> Answer:
    """Bring the warm fleet up, or say that it was up before."""
    from ...cluster.fleet.orders import bring_up

    process, is_new, greeting = bring_up(slots, 60.0 * idle_minutes)
    ends = f"it ends after {greeting.idle_s / 60:g} minutes without a program, or with `codecfleet down`"
    line = f"the warm fleet {'is up' if is_new else 'was up before'}: process {process}, {greeting.slots} slots; {ends}"
    fields = {"process": process, "is_new": is_new, "slots": greeting.slots, "idle_minutes": greeting.idle_s / 60}
    return Answer([line], {"schema": 1, **fields})


def down() -> Answer:
    """End every warm fleet of this user on this machine."""
    from ...cluster.fleet.orders import take_down

    processes = take_down()
    lines = [f"the warm fleet is down: process {process}" for process in processes]
    return Answer(lines or ["no warm fleet was up"], {"schema": 1, "processes": processes})


def prepare_node(asked: NodeRequest) -> "PreparedNode":
    """Check that this machine may start as a node, and find out what it offers."""
    from ...cluster.node.orders import prepare_node as prepared
    from ...cluster.node.ray_start import NodeOptions

    options = NodeOptions(
        address=asked.address,
        ip=asked.ip,
        port=asked.port,
        dashboard_host=asked.dashboard_host,
        dashboard_port=asked.dashboard_port,
        temp_dir=asked.temp_dir,
        drain_s=asked.drain_s,
        is_open=asked.is_open,
        rest=asked.rest,
    )
    return prepared(lambda: _offer(asked), options)


def _offer(asked: NodeRequest) -> "Offer":
    from ...cluster.node.orders import machines_offer

    return machines_offer(cpus=asked.cpus, labels=asked.labels, zone=asked.zone)


def start_node(asked: NodeRequest) -> Answer:
    """Start this machine as a node, in the background."""
    from ...cluster.node.orders import bring_node_up

    node = prepare_node(asked)
    process = bring_node_up(node)
    lines = [*node.notes, f"the node is up: process {process} keeps it; `codecfleet node stop` ends it"]
    return Answer(lines, {"schema": 1, "process": process, "notes": list(node.notes)})


def stop_nodes() -> Answer:
    """End the nodes that this user keeps on this machine."""
    from ...cluster.node.orders import take_nodes_down

    processes = take_nodes_down()
    lines = [f"the node is down: process {process}" for process in processes]
    return Answer(lines or ["no node was up"], {"schema": 1, "processes": processes})


def node_env(asked: NodeRequest) -> Answer:
    """Return what a ``ray start`` of others is to have in its environment."""
    from ...cluster.node.ray_start import export_lines, exports

    variables = exports(_offer(asked), os.environ)
    return Answer(export_lines(variables), {"schema": 1, "variables": variables})
