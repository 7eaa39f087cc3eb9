"""Resizes the cluster: passes the supervisor's state to ``cluster/autoscale``, and turns the decision into orders."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from ...autoscale.config import AutoscaleConfig
from ...autoscale.deciding import decide, with_vgpu_rooms
from ...autoscale.speeds import Choice, Speeds, choose
from ...autoscale.values import Decision, JobWork, NodeSeen, WantedNodes
from ...grouping import counted
from ...logs.actions import LogAction
from ...placement.model.demand import Demand
from ...placement.model.inventory import DeviceState
from ..state.clients import JobBook
from ..state.events import Effect, Note, Order, Resize
from ..state.guests import vgpu_rooms
from ..state.nodes import NodeBook
from ..state.state import SupervisorState
from ..state.stations import IN_USE, StationBook
from .effective import stations_by_node

REPEAT_S: Final = 10.0
"""How often an unchanged order is repeated."""


def scale(state: SupervisorState, now_s: float) -> list[Effect]:
    """Decide how many nodes to have, and return the orders; do nothing before clients have reported their slots."""
    config, speeds, scaling = state.settings.autoscale, state.speeds, state.scaling
    if config is None or speeds is None or state.is_recovering(now_s) or state.end:
        return []
    for book in state.nodes:
        _note_machine(config, speeds, book)
    scaling.since_s = {job.key: scaling.since_s.get(job.key, now_s) for job in _scaled(state)}
    work, before = _work(state, speeds, now_s), scaling.decision
    scaling.able = frozenset(each.job for each in work if each.fps)
    nodes = _nodes(state, config, now_s)
    scaling.idle_since_s = {each.node: each.idle_since_s for each in nodes if each.idle_since_s is not None}
    scaling.decision = now = decide(_limited(state, config, nodes), work, nodes, before, now_s)
    effects = [*_keep_work_away(state, now), *_what_changed(before, now)]
    order = _order(state, config)
    if order != scaling.sent or now_s - scaling.sent_s >= REPEAT_S:
        scaling.sent, scaling.sent_s = order, now_s
        effects.append(order)
    return effects


def choice_for(state: SupervisorState, demand: Demand, now_s: float) -> Choice | None:
    """Choose the encoder of a new job, and the nodes wanted with that encoder; None without autoscaling."""
    config, speeds = state.settings.autoscale, state.speeds
    if config is None or speeds is None:
        return None
    others, nodes = _work(state, speeds, now_s), _nodes(state, config, now_s)
    last = state.scaling.decision
    return choose(_limited(state, config, nodes), speeds, demand, others, nodes=nodes, last=last, now_s=now_s)


def _scaled(state: SupervisorState) -> list[JobBook]:
    """Return the jobs for which nodes may be requested: unfinished jobs, except those that run networks."""
    return [job for job in state.clients.jobs() if job.demand.segments and job.demand.dlas is None]


def _work(state: SupervisorState, speeds: Speeds, now_s: float) -> list[JobWork]:
    asked = [
        speeds.work_of(
            speeds.with_encoder(job.demand, now_s),
            state.scaling.since_s.get(job.key, now_s),
            now_s,
            sum(job.held.values()),
        )
        for job in _scaled(state)
    ]
    later = (replace(each, job=f"{of.client}/{each.job}") for of in state.clients for each in of.later)
    return asked + [speeds.later_work(each, now_s) for each in later]


def _nodes(state: SupervisorState, config: AutoscaleConfig, now_s: float) -> list[NodeSeen]:
    """Return the nodes of all groups with their idle times.

    No node counts as idle while Ray refuses orders, or while a client, such as a job of the node's driver, runs on it.
    """
    seen, driven = [], state.clients.nodes
    here = stations_by_node(state.stations)
    for book in state.nodes:
        group, node = config.group_of(book.ray.labels), book.ray.node
        if group is not None:
            leases = _leases(state, here.get(node, ())) or int(bool(state.scaling.trouble) or node in driven)
            idle_since_s = None if leases else state.scaling.idle_since_s.get(node, now_s)
            is_leaving = _is_leaving(book)
            seen.append(
                NodeSeen(node=node, group=group.name, leases=leases, idle_since_s=idle_since_s, is_leaving=is_leaving)
            )
    return seen


def _limited(state: SupervisorState, config: AutoscaleConfig, nodes: list[NodeSeen]) -> AutoscaleConfig:
    return with_vgpu_rooms(config, nodes, state.scaling.decision, vgpu_rooms(state))


def _note_machine(config: AutoscaleConfig, speeds: Speeds, book: NodeBook) -> None:
    """Take a healthy node as the model of all nodes of its group, if ``Speeds`` has no better model."""
    group = config.group_of(book.ray.labels)
    if group is not None and book.probed is not None and book.state is DeviceState.OPEN:
        node = book.node
        if all(device.state is DeviceState.OPEN for device in node.devices):
            speeds.note_machine(group.name, node)


def _order(state: SupervisorState, config: AutoscaleConfig) -> Resize:
    """Return the order for Ray. It includes nodes that take no more work but still exist, because Ray counts them."""
    leaving = [book for book in state.nodes if _is_leaving(book) and not book.ray.draining]
    used = {book.station.node for book in state.stations.values() if book.state in IN_USE}
    ended = {book.ray.node for book in leaving if book.ending} - used - state.clients.nodes
    staying = [config.group_of(book.ray.labels) for book in leaving if book.ray.node not in ended]
    wanted = (
        WantedNodes(
            group.name,
            group.labels,
            group.resources,
            state.scaling.decision.size(group.name).wanted + sum(each is group for each in staying),
        )
        for group in config.groups
    )
    return Resize(tuple(wanted), tuple(sorted(ended)))


def _is_leaving(book: NodeBook) -> bool:
    """Return whether a node takes no more work. A surplus node is not leaving, because it may get work again."""
    is_surplus = book.state is DeviceState.CORDONED and book.order is Order.UNCORDON
    return book.state is not DeviceState.OPEN and not is_surplus


def _leases(state: SupervisorState, stations: Iterable[StationBook]) -> int:
    leases = 0
    for book in stations:
        held = state.clients.occupied(book.worker)
        leases += max(held, sum(state.plans.targets.get(book.station.station, {}).values()))
    return leases


def _keep_work_away(state: SupervisorState, decision: Decision) -> Iterator[Effect]:
    """Keep new work away from surplus nodes, and close ending nodes for good."""
    surplus, ending = ({order.node: order.reason for order in orders} for orders in (decision.surplus, decision.drain))
    for book in state.nodes:
        before = book.state
        book.surplus = surplus.get(book.ray.node, "")
        if book.ray.node in ending:
            book.ending = ending[book.ray.node]
            line = f"node {state.nodes.title(book.ray.node)} ends: {book.ending}"
            yield Note(LogAction.NODE_GIVEN_UP, line, book.ids)
        state.is_dirty |= book.state is not before


def _what_changed(before: Decision, now: Decision) -> Iterator[Effect]:
    for size in now.sizes:
        if size.wanted != before.size(size.group).wanted:
            line = f"{counted(size.wanted, 'node')} of {size.group} wanted: {size.reason}"
            yield Note(LogAction.NODES_WANTED, line)
