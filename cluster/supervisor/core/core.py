"""The supervisor's decisions: a state machine without Ray, clock or I/O.

``Core.decide`` takes one event and the time, and returns effects for the runner to carry out; their results come back
as events. Nothing else changes the state, so the same events lead to the same state again. Events note what they are
about, and that something has changed; the next tick places everything from scratch, and closes the gap between what is
wanted and what exists. So the order of facts does not matter, nor whether one arrives twice.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....actors.backoff import Backoff
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.model.demand import Demand
from ...placement.model.inventory import Device, DeviceState, processor_name
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ...worker_names import epoch_of, station_of
from ..state import events
from ..state.events import Effect, Note, Start, Stop, SupervisorEvent
from ..state.plans import Plans
from ..state.quarantine import Blame, Cause
from ..state.settings import SupervisorSettings
from ..state.state import ANSWERS_PER_EPOCH, SupervisorState
from ..state.stations import DEATHS_IN_A_ROW_MAX, IN_USE, StationBook, StationState, unseen_station
from .answering import answers, concerned, due, last_answers, take_call
from .autoscaling import autoscaler_of
from .departures import ORPHANS_S, abandon, drop_orphans, expire_clients, hand_back
from .granting import note_stranded
from .health import retry_caps, see_encoding, see_health, unsee_health
from .node_events import miss_report, rest_longer, see_nodes, take_order, take_report
from .placing import next_pass_s, place_everything, set_out_stations
from .planner import Planner
from .previewing import growth, preview
from .quarantining import begin_trials, quarantine, recalled, resolved, take_faults
from .reconcile import reconcile, reserve_missing

STEADY_S = 10.0
"""A process that lived this long did not fail to start: its death begins a new count."""
RESTS = Backoff(first_s=0.1, most_s=0.4)
"""How long a station rests after its second death in a row, and so on; after the first it starts again at once."""
UNRESERVED_REST_S = 0.1
OVERSLEPT_S = 2.0
"""A longer gap between ticks means that this process stood still, not that clients were silent."""
_QUIET = (
    *(events.Ticked, events.Renewed, events.NodesSeen, events.Measured, events.RecycleDue, events.Encoding),
    *(events.HealthSeen, events.HealthUnseen, events.Resized),
)
"""Frequent events that mostly change nothing; their handlers say so when they do. All others do."""


class Core:
    """A supervisor's decisions; ``stations.EDGES`` has the states of a station.

    ``first_epoch`` is larger than any epoch of an earlier supervisor; ``now_s`` is on the clock of all later events.
    """

    def __init__(self, settings: SupervisorSettings, policy: Policy, first_epoch: int, now_s: float) -> None:
        self._planner = Planner(policy)
        self.state = SupervisorState(settings, first_epoch, now_s, now_s, now_s)
        self.state.granted = first_epoch * ANSWERS_PER_EPOCH
        self._autoscaler = autoscaler_of(self.state, self._planner.place)
        self._handlers = self._handling()

    def _handling(self) -> dict[type[SupervisorEvent], Callable[..., list[Effect]]]:
        return {
            events.NodesSeen: self._nodes_seen,
            events.Probed: self._probed,
            events.ProbeFailed: lambda event, now_s: miss_report(self.state, event, now_s),
            events.Reserved: self._reserved,
            events.NotReserved: self._not_reserved,
            events.Started: self._started,
            events.Died: self._died,
            events.Stopped: self._stopped,
            events.Found: self._found,
            events.Renewed: self._renewed,
            events.Departed: self._departed,
            events.Asked: lambda event, now_s: take_order(self.state, event, now_s),
            events.Ticked: self._ticked,
            events.Measured: self._measured,
            events.RecycleDue: self._recycle_due,
            events.Encoding: lambda event, now_s: see_encoding(self.state, event, now_s),
            events.HealthSeen: self._health_seen,
            events.HealthUnseen: lambda event, _now_s: unsee_health(self.state, event),
            events.Resized: self._resized,
            events.QuarantinesRecalled: lambda event, _now_s: recalled(self.state, event.records),
            events.Ended: self._ended,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return all that a copy of it needs, which decides as it does."""
        return {name: value for name, value in self.__dict__.items() if name != "_handlers"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        """Be a copy."""
        self.__dict__ |= kept
        self._handlers = self._handling()

    def decide(self, event: SupervisorEvent, now_s: float) -> list[Effect]:
        """Handle an event at ``now_s`` and return what is to be done, in order."""
        self.state.event += 1
        if not isinstance(event, _QUIET):
            self.state.is_dirty = True
        effects = self._handlers[type(event)](event, now_s)
        return [replace(effect, event=self.state.event) for effect in effects]

    @property
    def is_probing(self) -> bool:
        """Whether a node has GPUs that were never probed, so that their use is unknown."""
        return not all(node.is_known for node in self.state.nodes)

    def preview(self, demand: Demand, *, nodes_may_join: bool) -> PlacementPreview:
        """Return where a demand would be placed beside current work."""
        return preview(self.state, self._planner, demand, self._autoscaler, nodes_may_join=nodes_may_join)

    def growth(self, demand: Demand) -> str:
        """Return which nodes would be asked for where such a job came, and why; "" where the cluster does not grow."""
        return "" if self._autoscaler is None else growth(self.state, demand, self._autoscaler)

    # Events of nodes

    def _nodes_seen(self, event: events.NodesSeen, now_s: float) -> list[Effect]:
        effects = see_nodes(self.state, event, now_s)
        return effects if self._autoscaler is None else [*effects, *self._autoscaler.consider(self.state, now_s)]

    def _probed(self, event: events.Probed, now_s: float) -> list[Effect]:
        return take_report(self.state, self._planner, event, now_s)

    def _health_seen(self, event: events.HealthSeen, now_s: float) -> list[Effect]:
        return see_health(self.state, self._planner, event, now_s)

    def _resized(self, event: events.Resized, _now_s: float) -> list[Effect]:
        before, self.state.scaling.trouble = self.state.scaling.trouble, event.trouble
        is_new = event.trouble and event.trouble != before
        return [Note(LogAction.NODES_REFUSED, f"no node can be asked for or ended: {event.trouble}")] if is_new else []

    # Events of stations

    def _reserved(self, event: events.Reserved, now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.RESERVING)
        if book is None:
            return [Stop(event.worker)]
        book.to(StationState.STARTING, now_s)
        book.reserved_cores = event.cores
        book.unreserved_next, book.unreserved = False, ""
        slots = event.cores if event.cores and book.station.is_processor else book.station.slots
        node = self.state.nodes.get(book.station.node)
        gpus = () if node is None or not book.station.takes_gpu else node.gpus
        # Those that their probe closed, and those that failed since.
        avoided = frozenset(
            gpu.device
            for gpu in gpus
            if gpu.state is DeviceState.QUARANTINED or (node is not None and node.quarantine_of(gpu.device))
        )
        loads_cuda = book.station.takes_gpu or book.station.dla is not None
        path = node.node.search_path if node is not None and loads_cuda else None
        return [Start(event.worker, book.station, slots, avoided, path)]

    def _not_reserved(self, event: events.NotReserved, now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.RESERVING)
        if book is None:
            return [Stop(event.worker)]
        book.to(StationState.RESTING, now_s, event.reason)
        book.rest_until_s = now_s + UNRESERVED_REST_S
        book.unreserved = event.reason
        # Other work fills the node. A worker of ours that shares its cores is better than none.
        has_any = any(each.could_transcode for each in self.state.stations.values())
        book.unreserved_next = book.station.is_processor and not has_any
        return [Stop(event.worker), self._note(LogAction.WORKER_UNRESERVED, book, f"was not reserved: {event.reason}")]

    def _started(self, event: events.Started, now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.STARTING)
        if book is None:
            return [Stop(event.worker)]
        book.to(StationState.READY, now_s)
        book.occupy(event.facts)
        effects = self._check_device(book, now_s)
        if book.is_holding and book.facts is not None:
            # It keeps that GPU for a while, so that Ray gives the next worker another.
            book.reason = book.facts.trouble or "the GPU that Ray gave it has no slice for it"
            return [*effects, self._note(LogAction.WORKER_UP, book, f"gets no work: {book.reason}")]
        took = f" on {event.facts.device}" if event.facts.device else ""
        what = f"is up{took}: process {event.facts.pid}, {event.facts.slots} slots"
        return [*effects, self._note(LogAction.WORKER_UP, book, what)]

    def _check_device(self, book: StationBook, now_s: float) -> list[Effect]:
        """Compare a worker's device with the quarantines: they may have changed while it started."""
        node = self.state.nodes.get(book.station.node)
        if node is None or book.facts is None or not book.station.takes_gpu:
            return []
        book.device = resolved(node, book.device)
        held, trouble = node.quarantine_of(book.device), book.facts.trouble
        if held is None and trouble:
            device = self._device_of(book)
            return [] if device is None else quarantine(self.state, node, device, Blame(Cause.POLL, trouble, now_s))
        if held is not None:
            book.facts = replace(book.facts, trouble=trouble or "it is in quarantine")
        return []

    def _device_of(self, book: StationBook) -> Device | None:
        node = self.state.nodes.get(book.station.node)
        return None if node is None else next((each for each in node.gpus if each.device == book.device), None)

    def _died(self, event: events.Died, now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.STARTING, StationState.READY)
        if book is None:
            return []
        was_steady = book.state is StationState.READY and now_s - book.since_s >= STEADY_S
        book.deaths_in_a_row = 1 if was_steady else book.deaths_in_a_row + 1
        effects: list[Effect] = [Stop(event.worker)]
        if book.deaths_in_a_row < DEATHS_IN_A_ROW_MAX:
            book.to(StationState.RESTING, now_s, event.reason)
            book.rest_until_s = now_s + RESTS.wait_s(book.deaths_in_a_row - 1)
            effects.append(self._note(LogAction.WORKER_LOST, book, f"died and is replaced: {event.reason}"))
            self._wake(book, now_s)
            # What it did has its place again without waiting for the next placement.
            return effects + reserve_missing(self.state, (book,), self._planner.gpu_share, now_s)
        return [*effects, *self._give_up(book, event.reason, now_s)]

    def _give_up(self, book: StationBook, reason: str, now_s: float) -> list[Effect]:
        """Put the device of a station that keeps dying into quarantine, or the station where that is not known."""
        why = f"its processes died {book.deaths_in_a_row} times in a row: {reason}"
        device, node = self._device_of(book), self.state.nodes.get(book.station.node)
        if book.state is StationState.READY and device is not None and node is not None:
            book.to(StationState.RESTING, now_s, reason)
            book.rest_until_s, book.deaths_in_a_row = now_s, 0
            self._wake(book, now_s)
            return quarantine(self.state, node, device, Blame(Cause.DEATHS, why, now_s))
        book.to(StationState.QUARANTINED, now_s, why)
        rest_longer(self.state, book, now_s)
        return [self._note(LogAction.WORKER_QUARANTINED, book, f"is in quarantine: {book.reason}")]

    def _stopped(self, event: events.Stopped, now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.LEAVING)
        if book is None:
            return []
        book.to(StationState.EMPTY, now_s)
        return [self._note(LogAction.WORKER_ENDED, book, "was given back")]

    def _found(self, event: events.Found, now_s: float) -> list[Effect]:
        effects: list[Effect] = []
        for node in self.state.nodes:
            set_out_stations(self.state, node)
        for worker in event.workers:
            epoch = epoch_of(worker.worker)
            self.state.epoch = max(self.state.epoch, epoch + 1)
            book = self._station_of(station_of(worker.worker))
            if book is None or book.state is not StationState.EMPTY:
                effects.append(Stop(worker.worker))
                continue
            book.epoch = epoch
            book.to(StationState.READY, now_s, "adopted")
            book.occupy(worker.facts)
            book.reserved_cores = worker.facts.cores if worker.is_reserved else 0
            effects.append(self._note(LogAction.WORKER_ADOPTED, book, f"was adopted: process {worker.facts.pid}"))
        if event.workers:
            self.state.recovering_until_s = now_s + self.state.settings.recovery_s
            self.state.orphans_due_s = now_s + ORPHANS_S
        return effects

    def _station_of(self, station: str) -> StationBook | None:
        unseen = unseen_station(station)
        if unseen is not None and self.state.nodes.get(unseen.node) is not None:
            return self.state.stations.setdefault(station, StationBook(unseen))
        return self.state.stations.get(station)

    # Events of clients

    def _renewed(self, event: events.Renewed, now_s: float) -> list[Effect]:
        report = event.report
        is_new = self.state.clients.get(report.client) is None
        renewal = self.state.clients.renew(report, now_s)
        # Work that has begun moves nothing; a worker that is not wanted any more may go.
        is_let_go = any(station_of(worker) not in self.state.targets for worker in renewal.left)
        if renewal.is_wanted or is_let_go or (renewal.is_held and self.state.is_recovering(now_s)):
            self.state.is_dirty = True
        for worker in filter(self.state.is_live, report.proven):
            self.state.stations[station_of(worker)].deaths_in_a_row = 0
        client = self.state.clients.get(report.client)
        effects = take_call(self.state, event, now_s)
        if client is None:
            return effects
        if is_new:
            came = f"client {report.where} came"
            effects.append(Note(LogAction.CLIENT_CAME, came, LogIds(client=client.client)))
        for worker, reason in report.written_off.items():
            self.state.is_dirty = True
            effects += self._died(events.Died(worker, reason), now_s)
        new = [fault for fault in report.faults if fault.number > client.faults_seen]
        client.faults_seen = max((fault.number for fault in new), default=client.faults_seen)
        effects += take_faults(self.state, new, now_s)
        return effects + answers(self.state, concerned(self.state, client.client, renewal), now_s)

    def _departed(self, event: events.Departed, now_s: float) -> list[Effect]:
        book = self.state.clients.depart(event.client)
        if book is None:
            return []
        left = Note(LogAction.CLIENT_LEFT, f"client {book.where} left", LogIds(client=book.client))
        return [*abandon(self.state, book), left, *last_answers(self.state, book, now_s)]

    def _ticked(self, event: events.Ticked, now_s: float) -> list[Effect]:
        # After a pause of this process (a stopped process, a stalled machine), silence is not the clients'.
        overslept_s = now_s - self.state.ticked_s - OVERSLEPT_S
        if overslept_s > 0:
            self.state.clients.excuse(overslept_s)
        if self.state.is_recovering(self.state.ticked_s) and not self.state.is_recovering(now_s):
            self.state.is_dirty = True
        self.state.ticked_s = now_s
        retry_caps(self.state, now_s)
        effects = [
            *expire_clients(self.state, now_s),
            *drop_orphans(self.state, now_s),
            *begin_trials(self.state, now_s),
        ]
        effects += hand_back(self.state, now_s)
        for book in self.state.stations.values():
            self._wake(book, now_s)
            if book.state is StationState.QUARANTINED and now_s >= book.rest_until_s:
                effects += self._probe_quarantined(book, now_s)
        return effects + self._reconciled(event, now_s)

    def _reconciled(self, event: events.Ticked, now_s: float) -> list[Effect]:
        """Place everything where something has changed, and close the gap between that and what there is."""
        is_due = self.state.is_dirty and not self.state.end and now_s >= next_pass_s(self.state, event.pass_s)
        effects = place_everything(self.state, self._planner, now_s) if is_due else []
        note_stranded(self.state, now_s)
        effects += reconcile(self.state, self._planner.gpu_share, now_s)
        return effects + answers(self.state, self.state.clients if is_due else due(self.state, now_s), now_s)

    def _wake(self, book: StationBook, now_s: float) -> None:
        if book.state is StationState.RESTING and now_s >= book.rest_until_s:
            book.to(StationState.EMPTY, now_s)
            self.state.is_dirty = True

    def _probe_quarantined(self, station: StationBook, now_s: float) -> list[Effect]:
        book = self.state.nodes.get(station.station.node)
        return [] if book is None or book.is_probing(now_s) else [book.probe_again(now_s)]

    def _measured(self, event: events.Measured, _now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.READY)
        jobs = [job for job in self.state.clients.jobs() if job.key.endswith(f"/{event.job}")]
        node = None if book is None else self.state.nodes.get(book.station.node)
        if book is None or node is None or len(jobs) != 1:
            return []
        devices = {device.device: device for device in node.node.devices}
        processor = devices.get(processor_name(book.station.node))
        # A GPU's worker decodes in software until its sessions are open.
        device = devices.get(book.device) if event.on_device else processor
        # Others' use of its engines, or a missing licence, would look like slowness of its own.
        if device is not None and processor is not None and not device.busy and device.fps_max is None:
            demand = jobs[0].demand
            kinds = next((lane.kinds for lane in self.state.plan_of(jobs[0].key).lanes), ())
            self._planner.record_measurement(
                demand, device, event.sessions, event.fps, processor=processor, kinds=kinds
            )
        return []

    def _recycle_due(self, event: events.RecycleDue, _now_s: float) -> list[Effect]:
        book = self._of(event.worker, StationState.READY)
        if book is None or book.recycle_due:
            return []
        book.recycle_due = event.reason
        self.state.is_dirty = True
        return [self._note(LogAction.WORKER_DUE, book, f"is replaced as soon as it is idle: {event.reason}")]

    def _ended(self, event: events.Ended, now_s: float) -> list[Effect]:
        self.state.end = self.state.end or event.reason
        books = self.state.stations.values()
        stops = [Stop(book.worker) for book in books if book.state in IN_USE - {StationState.LEAVING}]
        self.state.stations.clear()
        self.state.plans, self.state.is_dirty = Plans(), False
        note = Note(LogAction.SUPERVISOR_ENDED, f"the end: {event.reason}")
        return [note, *stops, *answers(self.state, self.state.clients, now_s)]

    def _note(self, action: LogAction, book: StationBook, what: str) -> Note:
        return Note(action, f"{self.state.named(book)} {what}", book.ids)

    def _of(self, worker: str, *states: StationState) -> StationBook | None:
        """Return the station of a worker that is its current process and in one of ``states``."""
        book = self.state.stations.get(station_of(worker))
        return book if book is not None and book.worker == worker and book.state in states else None
