"""The supervisor's decisions: a state machine without Ray, clock or I/O.

Only ``Core.decide`` changes the state, so the same events lead to the same state. An event only records a fact, and the
next tick places everything from scratch: neither the order of events nor duplicates matter.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ...autoscale.speeds import Speeds
from ...logs.actions import LogAction
from ...placement.measurements import measurement_of
from ...placement.model.inventory import processor_name
from ...placement.model.policy import Policy
from ...placement.rates import record_measurement
from ..state import events
from ..state.events import Effect, Note, Stop, SupervisorEvent
from ..state.settings import SupervisorSettings
from ..state.state import ANSWERS_PER_EPOCH, Planner, Plans, SupervisorState
from ..state.stations import IN_USE, StationState
from .answering import answers, due
from .client_events import departed, drop_orphans, expire_clients, renewed
from .granting import note_stranded
from .health import encoding, health_seen, health_unseen, retry_caps
from .node_events import asked, hand_back, nodes_seen, probe_failed, probed, tell_nodes, untold
from .placing import place_if_due
from .quarantining import begin_trials, end_waits, keep_again, recalled
from .reconcile import reconcile
from .worker_events import died, found, not_reserved, recycle_due, reserved, started, stopped

OVERSLEPT_S = 2.0
"""If more seconds pass between two ticks, this process was suspended; only this many count as clients' silence."""
_QUIET = (
    *(events.Ticked, events.Renewed, events.NodesSeen, events.Measured, events.RecycleDue, events.Encoding),
    *(events.HealthSeen, events.HealthUnseen, events.Resized, events.Untold),
)
"""Frequent events that rarely change anything: their handlers may set ``is_dirty``. All other events set it."""


class Core:
    """A supervisor's decisions. ``first_epoch`` is larger than all epochs of earlier supervisors."""

    def __init__(self, settings: SupervisorSettings, policy: Policy, first_epoch: int, now_s: float) -> None:
        planner, autoscale = Planner(policy), settings.autoscale
        self.state = SupervisorState(
            settings,
            planner,
            speeds=None if autoscale is None else Speeds(autoscale, planner.place),
            epoch=first_epoch,
            recovering_until_s=now_s,
            processor_seen_s=now_s,
            ticked_s=now_s,
            granted=first_epoch * ANSWERS_PER_EPOCH,
        )

    def decide(self, event: SupervisorEvent, now_s: float) -> list[Effect]:
        """Handle an event at ``now_s`` and return the effects, in order."""
        self.state.event += 1
        if not isinstance(event, _QUIET):
            self.state.is_dirty = True
        effects = _HANDLERS[type(event)](self.state, event, now_s)
        return [replace(effect, event=self.state.event) for effect in effects]


def _ticked(state: SupervisorState, event: events.Ticked, now_s: float) -> list[Effect]:
    state.clients.excuse(max(0.0, now_s - state.ticked_s - OVERSLEPT_S))
    if state.is_recovering(state.ticked_s) and not state.is_recovering(now_s):
        state.is_dirty = True
    state.ticked_s = now_s
    retry_caps(state, now_s)
    effects = [
        *expire_clients(state, now_s),
        *drop_orphans(state, now_s),
        *begin_trials(state, now_s),
        *keep_again(state, now_s),
        *hand_back(state, now_s),
        *end_waits(state, now_s),
        *tell_nodes(state, now_s),
    ]
    for node in state.nodes:
        state.is_dirty |= node.reopen(now_s)
    placed = place_if_due(state, event.pass_s, now_s)
    effects += placed or []
    note_stranded(state, now_s)
    effects += reconcile(state, now_s)
    return effects + answers(state, due(state, now_s) if placed is None else state.clients, now_s)


def _measured(state: SupervisorState, event: events.Measured, _now_s: float) -> list[Effect]:
    book = state.station(event.worker, StationState.READY)
    jobs = [job for client in state.clients if (job := client.jobs.get(event.job)) is not None]
    if book is None or len(jobs) != 1:
        return []
    devices = {device.device: device for device in state.node_of(book).node.devices}
    processor = devices.get(processor_name(book.station.node))
    # Until its sessions are open, a GPU's worker decodes in software.
    device = devices.get(book.device) if event.on_device else processor
    # Use by other programs, or a missing licence, would make the device itself look slow.
    if device is not None and processor is not None and not device.busy and device.fps_max is None:
        kinds = next((lane.kinds for lane in state.plans.of(jobs[0].key).lanes), ())
        rates, demand = state.planner.rates, jobs[0].demand
        seen = measurement_of(rates, demand, device, processor, kinds=kinds, sessions=event.sessions, fps=event.fps)
        if seen is not None:
            state.planner.rates = record_measurement(rates, seen)
    return []


def _resized(state: SupervisorState, event: events.Resized, _now_s: float) -> list[Effect]:
    before, state.scaling.trouble = state.scaling.trouble, event.trouble
    is_new = event.trouble and event.trouble != before
    return [Note(LogAction.NODES_REFUSED, f"nodes cannot be requested or ended: {event.trouble}")] if is_new else []


def _ended(state: SupervisorState, event: events.Ended, now_s: float) -> list[Effect]:
    state.end = state.end or event.reason
    books = state.stations.values()
    stops = [Stop(book.worker) for book in books if book.state in IN_USE - {StationState.LEAVING}]
    state.stations.clear()
    state.plans, state.is_dirty = Plans(), False
    note = Note(LogAction.SUPERVISOR_ENDED, f"the supervisor ends: {event.reason}")
    return [note, *stops, *answers(state, state.clients, now_s)]


_HANDLERS: Final[Mapping[type[SupervisorEvent], Callable[..., list[Effect]]]] = {
    events.NodesSeen: nodes_seen,
    events.Probed: probed,
    events.ProbeFailed: probe_failed,
    events.Untold: untold,
    events.Asked: asked,
    events.Reserved: reserved,
    events.NotReserved: not_reserved,
    events.Started: started,
    events.Died: died,
    events.Stopped: stopped,
    events.Found: found,
    events.RecycleDue: recycle_due,
    events.Renewed: renewed,
    events.Departed: departed,
    events.Ticked: _ticked,
    events.Measured: _measured,
    events.Encoding: encoding,
    events.HealthSeen: health_seen,
    events.HealthUnseen: health_unseen,
    events.QuarantinesRecalled: recalled,
    events.Resized: _resized,
    events.Ended: _ended,
}
