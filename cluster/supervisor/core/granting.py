"""The grants that clients are sent: which slots they may use, and why they have none."""

from collections.abc import Iterable, Mapping
from functools import partial
from math import ceil

from ...placement.assign.networks import no_dla_for
from ...placement.model.inventory import DeviceState, Inventory, processor_name
from ...probes.report.device_report import DeviceKind
from ...worker_names import node_of, station_of
from ..state.clients import JobBook
from ..state.messages import Grants, JobGrants
from ..state.plans import JobPlan
from ..state.quarantine import Cause
from ..state.state import Stranded, SupervisorState
from ..state.stations import DEATHS_IN_A_ROW_MAX, NOT_STARTED, StationBook, StationState
from .assigning import promise


def grants_for(state: SupervisorState, client: str, now_s: float) -> Grants:
    """Return what a client may use from now on, and record it as promised."""
    book = state.clients.get(client)
    if book is None or state.end:
        jobs = () if book is None else book.jobs.values()
        dead = frozenset(worker for job in jobs for worker in _dead(state, job))
        return Grants({}, dead=dead, unrecoverable=state.end, what_next=_OPEN_ANOTHER)
    ends = {node.ray.node: node.ray.leaves_utc_s for node in state.nodes if node.ray.leaves_utc_s is not None}
    told = {name: _granted(state, job, ends, now_s) for name, job in book.jobs.items()}
    never, what_next = _why_never(state, now_s)
    return Grants(
        slots={name: each.slots for name, each in told.items()},
        dead=frozenset(worker for each in told.values() for worker in each.dead),
        capacity_slots=state.capacity_slots,
        waiting={name: each.waiting for name, each in told.items() if each.waiting},
        refused={name: each.refused for name, each in told.items() if each.refused},
        too_large={name: each.too_large for name, each in told.items() if each.too_large},
        broken={name: each.broken for name, each in told.items() if each.broken},
        leaving={worker: end_s for each in told.values() for worker, end_s in each.leaving.items()},
        unrecoverable=never,
        what_next=what_next,
    )


def _granted(state: SupervisorState, job: JobBook, ends: Mapping[str, float], now_s: float) -> JobGrants:
    """Return what a job may use from now on, and record it as promised; ``ends`` is when nodes leave."""
    if state.is_recovering(now_s):
        promised = {worker: slots for worker, slots in job.held.items() if state.is_live(worker)}
    else:
        occupied = partial(state.clients.occupied, but_by=job.key)
        promised = promise(job, state.plan_of(job.key).slots, state.stations, occupied)
        _put_off(state, job, promised)
    state.clients.promise(job, promised)
    return JobGrants(
        dict(promised),
        dead=_dead(state, job),
        waiting="" if promised else why_not(state, job),
        refused=_why_refused(state, job),
        too_large=_why_too_large(state, job),
        broken=_why_broken(state, job, now_s),
        leaving=_leaving(state, job, ends) if ends else {},
    )


def _put_off(state: SupervisorState, job: JobBook, promised: dict[str, int]) -> None:
    """Take back new slots whose cores the job's sessions still use that are placed elsewhere on the node now.

    So its sessions do not share cores while work moves between a processor's workers and those of GPUs beside it.
    """
    leaving: dict[str, float] = {}
    for worker in sorted({*job.held, *job.promised, *job.revoked}):
        left = job.occupies(worker) - promised.get(worker, 0)
        if left > 0 and state.is_live(worker):
            book = state.stations[station_of(worker)]
            cores = left * _cores_of_slot(state, job, book)
            leaving[book.station.node] = leaving.get(book.station.node, 0.0) + cores
    for worker in sorted(promised) if leaving else ():
        more, book = promised[worker] - job.occupies(worker), state.stations[station_of(worker)]
        cores = _cores_of_slot(state, job, book)
        if more > 0 and cores > 0 and (in_use := leaving.get(book.station.node, 0.0)) > 0:
            put_off = min(more, ceil(in_use / cores - _EXACT))
            leaving[book.station.node] = in_use - put_off * cores
            promised[worker] -= put_off
            if not promised[worker]:
                del promised[worker]


def _cores_of_slot(state: SupervisorState, job: JobBook, book: StationBook) -> float:
    """Return how many cores a session of a job keeps: as placed; where it is not any more, one if it encodes there."""
    device = processor_name(book.station.node) if book.station.is_processor else book.device
    lanes = state.plan_of(job.key).lanes_at.get(book.station.node, ())
    lane = next((lane for lane in lanes if lane.device == device), None)
    if lane is not None:
        return lane.cores / lane.sessions
    return float(any(each.kind is None or not each.kind.is_nvenc for each in job.demand.renditions))


def _dead(state: SupervisorState, job: JobBook) -> frozenset[str]:
    return frozenset(worker for worker in job.held if not state.is_live(worker))


def _leaving(state: SupervisorState, job: JobBook, ends: Mapping[str, float]) -> dict[str, float]:
    nodes = {worker: node_of(station_of(worker)) for worker in job.held if state.is_live(worker)}
    return {worker: ends[node] for worker, node in nodes.items() if node in ends}


def why_not(state: SupervisorState, job: JobBook) -> str:
    """Say why a job has no slots."""
    if (expected := state.scaling.expected()) and state.scaling.may_serve(job.key) and not job.held:
        return f"nodes are to come: {expected}"
    if job.key in state.stranded:
        return state.stranded[job.key].reason
    plan = state.plan_of(job.key)
    stations = _stations_of(state, plan)
    if stations and all(book.state is StationState.RESERVING for book in stations):
        return "Ray has not given it the cores and GPUs that it reserved: other work on the cluster may hold them"
    if stations:
        return "its workers are starting, or other jobs still use them"
    return plan.refusals[0].reason if plan.refusals else "nothing is free"


def _stations_of(state: SupervisorState, plan: JobPlan) -> list[StationBook]:
    """Return the stations where a job has slots; that of a node that has just gone is not among them any more."""
    return [state.stations[name] for name in plan.slots if name in state.stations]


def _why_refused(state: SupervisorState, job: JobBook) -> str:
    """Say why a job that runs a network never can: every node was probed, and none has a DLA for it."""
    nodes = list(state.nodes)
    if job.demand.dlas is None or not nodes or not all(node.has_answered for node in nodes):
        return ""
    return no_dla_for(job.demand, Inventory(tuple(node.node for node in nodes)))


def _why_too_large(state: SupervisorState, job: JobBook) -> str:
    """Say why a job never can, whatever ends: no machine has the memory for one segment."""
    if state.scaling.may_serve(job.key):
        return ""
    return next((refusal.reason for refusal in state.plan_of(job.key).refusals if refusal.is_too_large), "")


def _why_broken(state: SupervisorState, job: JobBook, now_s: float) -> str:
    """Say why a job gets no GPU or DLA that it needs: all are quarantined, or none came; else ""."""
    dlas = job.demand.dlas
    if dlas is not None:
        books = (book for book in state.stations.values() if book.station.dla is not None)
        return _why_all_rest((book for book in books if not dlas or book.station.dla in dlas), "DLA's worker process")
    if not job.demand.needs_devices:
        return ""
    gpus = (book for book in state.stations.values() if book.station.takes_gpu)
    resting = _why_all_rest(gpus, "GPU's worker process") or _why_all_away(state)
    return resting or _why_stranded(state, job, now_s)


def _why_all_away(state: SupervisorState) -> str:
    """Say why no GPU is left: those that were usable are in quarantine for what happened at work; else ""."""
    nodes = [node for node in state.nodes if node.ray.gpus]
    devices = [(node, device) for node in nodes for device in node.node.devices if device.kind is not DeviceKind.CPU]
    if any(device.state is DeviceState.OPEN for _, device in devices) or not all(node.is_known for node in nodes):
        return ""
    found = [each for node, device in devices if (each := node.quarantine_of(device.device)) is not None]
    died = next((each for each in found if each.cause is Cause.DEATHS), None)
    if died is not None:
        return f"every GPU's worker process died {DEATHS_IN_A_ROW_MAX} times in a row: {_cause_of(died.reason)}"
    failed = next((each for each in found if each.cause is Cause.FAULTS), None)
    return "" if failed is None else f"every GPU is in quarantine: {failed.reason}"


def _why_all_rest(books: Iterable[StationBook], whose: str) -> str:
    """Say why all of some stations rest; "" where one does not, behind which none is looked at."""
    reason: str | None = None
    for book in books:
        if book.state is not StationState.QUARANTINED:
            return ""
        reason = book.reason if reason is None else reason
    return "" if reason is None else f"every {whose} died {DEATHS_IN_A_ROW_MAX} times in a row: {_cause_of(reason)}"


def _cause_of(reason: str) -> str:
    return reason.partition("in a row: ")[2] or reason


def _why_never(state: SupervisorState, now_s: float) -> tuple[str, str]:
    """Say why no worker will ever come, and what to do about it; "" while one may."""
    has_processor = any(node.ray.cores for node in state.nodes) or state.may_grow
    if not has_processor and now_s - state.processor_seen_s > state.settings.node_wait_s:
        return "the Ray cluster has no node with a CPU", _ADD_A_NODE
    processors = (book for book in state.stations.values() if book.station.is_processor)
    died = _why_all_rest(processors, "worker process")
    return (died, _FIND_THE_CAUSE) if died else ("", "")


_EXACT = 1e-6
"""Cores are sums of parts: a smaller difference is none."""
_ADD_A_NODE = "Start a worker node with CPUs, or run without an address."
_FIND_THE_CAUSE = "Look for what ends the processes (memory, a broken codec, a missing package), then try again."
_OPEN_ANOTHER = "Open a new fleet."


def note_stranded(state: SupervisorState, now_s: float) -> None:
    """Update which of the jobs that only GPUs can serve get none, so that none waits without end.

    Jobs that wait for other jobs are not among them: they are served when those end.
    """
    before, state.stranded = state.stranded, {}
    for job in filter(needs_gpus, state.clients.jobs()):
        if not job.held and (reason := _why_no_gpu(state, job)):
            since_s = before[job.key].since_s if job.key in before else now_s
            state.stranded[job.key] = Stranded(since_s, reason)


def _why_stranded(state: SupervisorState, job: JobBook, now_s: float) -> str:
    """Say why a job has waited long enough for devices, "" while some may still come."""
    found = state.stranded.get(job.key)
    is_known = all(node.is_known for node in state.nodes)
    if (
        found is None
        or not is_known
        or state.scaling.may_serve(job.key)
        or now_s - found.since_s < state.settings.device_wait_s
    ):
        return ""
    return f"no GPU came for it within {state.settings.device_wait_s:g} s: {found.reason}"


def needs_gpus(job: JobBook) -> bool:
    """Return whether a job waits for GPUs where there are none."""
    return job.demand.needs_devices and job.demand.dlas is None


def _why_no_gpu(state: SupervisorState, job: JobBook) -> str:
    if job.key in state.unservable:
        return state.unservable[job.key]
    plan = state.plan_of(job.key)
    stations = _stations_of(state, plan)
    if any(book.state not in NOT_STARTED for book in stations):
        return ""
    # A station that rests after such an attempt is not a job's target now.
    gpus = [book for book in state.stations.values() if book.station.takes_gpu and book.station.node in plan.lanes_at]
    return next((book.unreserved for book in gpus if book.unreserved and book.state in NOT_STARTED), "")
