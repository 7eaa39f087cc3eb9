"""Has the cluster grow and shrink with its work: what ``cluster/autoscale`` decides, by what the supervisor knows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from ...autoscale.choosing import Choice, choose
from ...autoscale.config import AutoscaleConfig
from ...autoscale.deciding import decide
from ...autoscale.speeds import Place, Speeds
from ...autoscale.values import Decision, JobWork, NodeSeen, WantedNodes
from ...autoscale.vgpus import with_vgpu_rooms
from ...grouping import counted
from ...logs.actions import LogAction
from ...placement.model.demand import Demand
from ...placement.model.inventory import DeviceState
from ..state.clients import JobBook
from ..state.events import Effect, Note, Resize
from ..state.guests import vgpu_rooms
from ..state.nodes import NodeBook
from ..state.state import SupervisorState
from ..state.stations import IN_USE, StationBook
from .effective import stations_by_node

REPEAT_S: Final = 10.0
"""How often an order is repeated though nothing has changed."""


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """Groups, and how fast their nodes are."""

    config: AutoscaleConfig
    speeds: Speeds

    def consider(self, state: SupervisorState, now_s: float) -> list[Effect]:
        """Decide how many nodes there should be; return the orders that follow from it.

        Nothing is decided while clients have not yet said what they hold.
        """
        if state.is_recovering(now_s) or state.end:
            return []
        for node in state.nodes:
            self._note_machine(node)
        work, before = self.work(state, now_s), state.scaling.decision
        state.scaling.able = frozenset(each.job for each in work if each.fps)
        nodes = self.nodes(state, now_s)
        state.scaling.decision = now = decide(self._limited(state, nodes), work, nodes, before, now_s)
        effects = [*_keep_work_away(state, now), *_what_changed(before, now)]
        order = self._order(state)
        if order != state.scaling.sent or now_s - state.scaling.sent_s >= REPEAT_S:
            state.scaling.sent, state.scaling.sent_s = order, now_s
            effects.append(order)
        return effects

    def work(self, state: SupervisorState, now_s: float) -> list[JobWork]:
        """Return what all jobs have left to do, but those that run networks, and what waits behind them."""
        jobs = [job for job in state.clients.jobs() if job.demand.segments and job.demand.dlas is None]
        state.scaling.since_s = {job.key: state.scaling.since_s.get(job.key, now_s) for job in jobs}
        asked = [self._work_of(job, state.scaling.since_s[job.key], now_s) for job in jobs]
        behind = (replace(each, job=f"{of.client}/{each.job}") for of in state.clients for each in of.behind)
        return asked + [self.speeds.work_behind(each, now_s) for each in behind]

    def _work_of(self, job: JobBook, since_s: float, now_s: float) -> JobWork:
        settled = self.speeds.settled(job.demand, now_s)
        return self.speeds.work_of(settled, since_s, now_s, sum(job.held.values()))

    def nodes(self, state: SupervisorState, now_s: float) -> list[NodeSeen]:
        """Return the nodes of all groups, and since when each has had nothing to do.

        Where Ray takes no orders all of them count as busy: none is given up that would not come back.
        """
        seen = []
        idle_since_s = {}
        here = stations_by_node(state.stations)
        for book in state.nodes:
            group = self.config.group_of(book.ray.labels)
            if group is None:
                continue
            node = book.ray.node
            leases = _leases(state, here.get(node, ())) or bool(state.scaling.trouble)
            if not leases:
                idle_since_s[node] = state.scaling.idle_since_s.get(node, now_s)
            seen.append(
                NodeSeen(
                    node=node,
                    group=group.name,
                    leases=leases,
                    idle_since_s=idle_since_s.get(node),
                    is_leaving=_is_leaving(book),
                )
            )
        state.scaling.idle_since_s = idle_since_s
        return seen

    def choose(self, state: SupervisorState, demand: Demand, now_s: float) -> Choice:
        """Return which encoder a new job should be bound to, and the nodes that would be wanted then."""
        others = self.work(state, now_s)
        nodes, last = self.nodes(state, now_s), state.scaling.decision
        return choose(self._limited(state, nodes), self.speeds, demand, others, nodes=nodes, last=last, now_s=now_s)

    def _limited(self, state: SupervisorState, nodes: list[NodeSeen]) -> AutoscaleConfig:
        """Return the configuration, with no more machines with vGPUs than the cluster's hosts can make."""
        return with_vgpu_rooms(self.config, nodes, state.scaling.decision or Decision(), vgpu_rooms(state))

    def _note_machine(self, book: NodeBook) -> None:
        """Take the first sound node of a group for what all of them are."""
        group = self.config.group_of(book.ray.labels)
        if group is not None and book.probed is not None and book.state is DeviceState.OPEN:
            node = book.node
            if all(device.state is DeviceState.OPEN for device in node.devices):
                self.speeds.note_machine(group.name, node)

    def _order(self, state: SupervisorState) -> Resize:
        """Return the order for Ray: it counts nodes that take no work of ours for as long as they are there."""
        leaving = [book for book in state.nodes if _is_leaving(book) and not book.ray.draining]
        used = {book.station.node for book in state.stations.values() if book.state in IN_USE}
        ended = {book.ray.node for book in leaving if book.given_up} - used
        staying = [self.config.group_of(book.ray.labels) for book in leaving if book.ray.node not in ended]
        wanted = (
            WantedNodes(
                group.name,
                group.labels,
                group.resources,
                state.scaling.decision.size(group.name).wanted + sum(each is group for each in staying),
            )
            for group in self.config.groups
        )
        return Resize(tuple(wanted), tuple(sorted(ended)))


def autoscaler_of(state: SupervisorState, place: Place) -> Autoscaler | None:
    """Return the autoscaler of a cluster whose settings have one."""
    config = state.settings.autoscale
    return None if config is None else Autoscaler(config, Speeds(config, place))


def _is_leaving(book: NodeBook) -> bool:
    """Return whether a node takes no more work; one that is only too many may take some again."""
    is_surplus = book.state is DeviceState.CORDONED and not book.has_order
    return book.state is not DeviceState.OPEN and not is_surplus


def _leases(state: SupervisorState, stations: Iterable[StationBook]) -> int:
    """Return how many segments run at stations, or may."""
    leases = 0
    for book in stations:
        held = sum(job.occupies(book.worker) for job in state.clients.at(book.worker))
        leases += max(held, sum(state.targets.get(book.station.station, {}).values()))
    return leases


def _keep_work_away(state: SupervisorState, decision: Decision) -> Iterator[Effect]:
    """Close nodes for new work that are too many, and for good those that end."""
    surplus, given_up = ({order.node: order.reason for order in orders} for orders in (decision.rest, decision.drain))
    for book in state.nodes:
        before = book.state
        book.surplus = surplus.get(book.ray.node, "")
        if book.ray.node in given_up:
            book.given_up = given_up[book.ray.node]
            line = f"node {state.nodes.title(book.ray.node)} ends: {book.given_up}"
            yield Note(LogAction.NODE_GIVEN_UP, line, book.ids)
        if book.state is not before:
            state.is_dirty = True


def _what_changed(before: Decision, now: Decision) -> Iterator[Effect]:
    for size in now.sizes:
        if size.wanted != before.size(size.group).wanted:
            line = f"{counted(size.wanted, 'node')} of {size.group} wanted: {size.reason}"
            yield Note(LogAction.NODES_WANTED, line)
