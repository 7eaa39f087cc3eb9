"""The grants sent to clients: which slots each job may use, or why it has none."""

from collections.abc import Callable, Iterable
from math import ceil

from ...placement.assign.networks import no_dla_for
from ...placement.model.inventory import DeviceState, Inventory, processor_name
from ...ray.keeper import Driving, Word
from ...version import makes_alike
from ...worker_names import NodeId, StationId, WorkerId
from ..state.clients import JobBook
from ..state.messages import Grants
from ..state.quarantine import Cause
from ..state.state import JobPlan, Stranded, SupervisorState
from ..state.stations import DEATHS_IN_A_ROW_MAX, NOT_STARTED, StationBook, StationState
from ..state.terms import term_of

_EXACT = 1e-6
"""Numbers of cores are sums of fractions, so differences below this are rounding errors."""
_ADD_A_NODE = "Start a worker node with CPUs, or run without an address."
_FIND_THE_CAUSE = "Find out what ends the processes (memory, a broken codec, a missing package), then try again."
_OPEN_ANOTHER = "Open a new fleet."


def grants_for(state: SupervisorState, client: str, now_s: float) -> Grants:
    """Return a client's grants, and record them as promised."""
    book = state.clients.get(client)
    jobs = {} if book is None else book.jobs
    dead = frozenset(worker for job in jobs.values() for worker in job.held if not state.is_live(worker))
    if book is None or state.end:
        return Grants({}, dead=dead, unrecoverable=state.end, what_next=_OPEN_ANOTHER)
    for job in jobs.values():
        state.clients.promise(job, _promise(state, job, now_s))

    def reasons(why: Callable[[SupervisorState, JobBook], str]) -> dict[str, str]:
        return {name: reason for name, job in jobs.items() if (reason := why(state, job))}

    never, what_next = _why_never(state, now_s)
    return Grants(
        slots={name: dict(job.promised) for name, job in jobs.items()},
        dead=dead,
        capacity_slots=state.capacity_slots,
        waiting=reasons(lambda state, job: "" if job.promised else why_not(state, job)),
        refused=reasons(_why_refused),
        too_large=reasons(_why_too_large),
        broken=reasons(lambda state, job: _why_broken(state, job, now_s)),
        leaving=_leaving(state, jobs.values(), now_s),
        word=_word(state, book.keeper),
        unrecoverable=never,
        what_next=what_next,
    )


def _word(state: SupervisorState, keeper: str) -> Word | None:
    is_drained = keeper and any(each.ray.draining and each.known.keeper == keeper for each in state.nodes)
    return Word(term_of(state.epoch), state.event, Driving.RESTS) if is_drained else None


def _promise(state: SupervisorState, job: JobBook, now_s: float) -> dict[WorkerId, int]:
    """Return a job's slots by worker.

    A slot is not promised while another job holds it, or has not acknowledged that it was revoked. Jobs therefore never
    use more slots than a worker has, however late messages arrive.
    """
    if state.is_recovering(now_s):
        return {worker: slots for worker, slots in job.held.items() if state.is_live(worker)}
    promised, clients, pyav = {}, state.clients, job.demand.pyav
    for station, most in state.plans.of(job.key).slots.items():
        book = state.stations.get(station)
        if book is None or (facts := book.facts) is None or book.is_astray or not makes_alike(pyav, facts.pyav):
            continue
        free = facts.slots - clients.occupied(book.worker, but_by=job.key)
        if free > 0:
            promised[book.worker] = min(most, free)
    _put_off(state, job, promised)
    return promised


def _put_off(state: SupervisorState, job: JobBook, promised: dict[WorkerId, int]) -> None:
    """Withhold new slots on a node while the job's ending sessions on the node's other workers still use cores."""
    occupied = job.occupied
    new = [worker for worker, slots in promised.items() if slots > occupied.get(worker, 0)]
    if not new:
        return
    nodes = {worker.station.node for worker in new}
    ending = [worker for worker, slots in occupied.items() if slots > promised.get(worker, 0)]
    leaving: dict[NodeId, float] = {}
    for worker in sorted(worker for worker in ending if worker.station.node in nodes and state.is_live(worker)):
        cores = (occupied[worker] - promised.get(worker, 0)) * _cores_of_slot(state, job, worker.station)
        leaving[worker.station.node] = leaving.get(worker.station.node, 0.0) + cores
    for worker in sorted(new) if leaving else ():
        cores, in_use = _cores_of_slot(state, job, worker.station), leaving.get(worker.station.node, 0.0)
        if cores > 0 and in_use > 0:
            put_off = min(promised[worker] - occupied.get(worker, 0), ceil(in_use / cores - _EXACT))
            leaving[worker.station.node] = in_use - put_off * cores
            promised[worker] -= put_off
            if not promised[worker]:
                del promised[worker]


def _cores_of_slot(state: SupervisorState, job: JobBook, station: StationId) -> float:
    """Return how many cores one session of a job uses on a station.

    If the job is not placed there, this is 1 if the job may encode in software, else 0.
    """
    device = processor_name(station.node) if station.kind.is_processor else state.stations[station].device
    for lane in state.plans.of(job.key).lanes_at.get(station.node, ()):
        if lane.device == device:
            return lane.cores / lane.sessions
    return float(any(each.kind is None or not each.kind.is_nvenc for each in job.demand.renditions))


def _leaving(state: SupervisorState, jobs: Iterable[JobBook], now_s: float) -> dict[WorkerId, float]:
    ends = {node.ray.node: node.ends_s - now_s for node in state.nodes if node.ends_s is not None}
    held = (worker for job in jobs for worker in job.held) if ends else ()
    live = {worker: worker.station.node for worker in held if state.is_live(worker)}
    return {worker: ends[node] for worker, node in live.items() if node in ends}


def why_not(state: SupervisorState, job: JobBook) -> str:
    """Return why a job has no slots."""
    if (expected := state.scaling.expected()) and state.scaling.may_serve(job.key) and not job.held:
        return f"nodes are pending: {expected}"
    if job.key in state.stranded:
        return state.stranded[job.key].reason
    plan = state.plans.of(job.key)
    stations = _stations_of(state, plan)
    if stations and all(book.state is StationState.RESERVING for book in stations):
        return "Ray has not reserved its cores and GPUs: other work on the cluster may hold them"
    if stations:
        return "its workers are starting or still busy with other jobs"
    return plan.refusals[0].reason if plan.refusals else "nothing is free"


def _stations_of(state: SupervisorState, plan: JobPlan) -> list[StationBook]:
    return [state.stations[name] for name in plan.slots if name in state.stations]


def _why_refused(state: SupervisorState, job: JobBook) -> str:
    """Return why a job that runs a network can never start: every node was probed, and no suitable DLA was found."""
    if job.demand.dlas is None or not state.nodes or not all(node.has_answered for node in state.nodes):
        return ""
    return no_dla_for(job.demand, Inventory(tuple(node.node for node in state.nodes)))


def _why_too_large(state: SupervisorState, job: JobBook) -> str:
    """Return why a job cannot start even on an idle cluster: one segment needs more memory than any machine has."""
    if state.scaling.may_serve(job.key):
        return ""
    return next((refusal.reason for refusal in state.plans.of(job.key).refusals if refusal.is_too_large), "")


def _why_broken(state: SupervisorState, job: JobBook, now_s: float) -> str:
    """Return why a job cannot get the GPU or DLA that it needs: all are quarantined, or none appeared in time."""
    dlas, books = job.demand.dlas, state.stations.values()
    if dlas is not None:
        usable = (book for book in books if book.station.dla is not None and (not dlas or book.station.dla in dlas))
        return _why_all_died(usable, "DLA's worker process")
    if not job.demand.needs_devices:
        return ""
    gpus = (book for book in books if book.station.kind.takes_gpu)
    return _why_all_died(gpus, "GPU's worker process") or _why_no_gpu_left(state) or _why_stranded(state, job, now_s)


def _why_no_gpu_left(state: SupervisorState) -> str:
    """Return why no GPU is left, if all are closed and at least one of them after deaths or faults; otherwise ""."""
    nodes = [node for node in state.nodes if node.ray.gpus]
    devices = [(node, device) for node in nodes for device in node.node.gpus]
    if any(device.state is DeviceState.OPEN for _, device in devices) or not all(node.is_known for node in nodes):
        return ""
    found = [each for node, device in devices if (each := node.quarantine_of(device.device)) is not None]
    for each in found:
        if each.cause is Cause.DEATHS:
            return _all_died("GPU's worker process", each.reason)
    return next((f"every GPU is in quarantine: {each.reason}" for each in found if each.cause is Cause.FAULTS), "")


def _why_all_died(books: Iterable[StationBook], whose: str) -> str:
    """Return why all these stations are quarantined; "" if one is not, or if there are no stations."""
    reasons = []
    for book in books:
        if book.state is not StationState.QUARANTINED:
            return ""
        reasons.append(book.reason)
    return _all_died(whose, reasons[0]) if reasons else ""


def _all_died(whose: str, reason: str) -> str:
    cause = reason.partition("in a row: ")[2] or reason
    return f"every {whose} died {DEATHS_IN_A_ROW_MAX} times in a row: {cause}"


def _why_never(state: SupervisorState, now_s: float) -> tuple[str, str]:
    """Return why no worker can ever start, and the remedy; two empty texts if a worker may start."""
    has_processor = any(node.ray.cores for node in state.nodes) or state.may_grow
    if not has_processor and now_s - state.processor_seen_s > state.settings.node_wait_s:
        return "the Ray cluster has no node with a CPU", _ADD_A_NODE
    processors = (book for book in state.stations.values() if book.station.kind.is_processor)
    died = _why_all_died(processors, "worker process")
    return (died, _FIND_THE_CAUSE) if died else ("", "")


def note_stranded(state: SupervisorState, now_s: float) -> None:
    """Record which jobs wait for GPUs that may never appear; jobs that only wait for other jobs are left out."""
    before, state.stranded = state.stranded, {}
    for key, job in state.clients.jobs_by_key.items():
        if not job.said.held and needs_gpus(job) and (reason := _why_no_gpu(state, job)):
            since_s = before[key].since_s if key in before else now_s
            state.stranded[key] = Stranded(since_s, reason)


def _why_stranded(state: SupervisorState, job: JobBook, now_s: float) -> str:
    """Return why a job has waited too long for a GPU; "" while one may still appear."""
    found, wait_s = state.stranded.get(job.key), state.settings.device_wait_s
    if found is None or now_s - found.since_s < wait_s or state.scaling.may_serve(job.key):
        return ""
    is_known = all(node.is_known for node in state.nodes)
    return f"no GPU became available for it within {wait_s:g} s: {found.reason}" if is_known else ""


def needs_gpus(job: JobBook) -> bool:
    """Return whether a job cannot run without a GPU."""
    return job.demand.needs_devices and job.demand.dlas is None


def _why_no_gpu(state: SupervisorState, job: JobBook) -> str:
    if job.key in state.unservable:
        return state.unservable[job.key]
    plan = state.plans.of(job.key)
    if any(book.state not in NOT_STARTED for book in _stations_of(state, plan)):
        return ""
    # A station whose reservation failed waits without a job, so look at all GPU stations of the job's nodes.
    gpus = [
        book for book in state.stations.values() if book.station.kind.takes_gpu and book.station.node in plan.lanes_at
    ]
    return next((book.unreserved for book in gpus if book.unreserved and book.state in NOT_STARTED), "")
