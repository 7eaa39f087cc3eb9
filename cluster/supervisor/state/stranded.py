"""Jobs that only GPUs can serve and that get none: since when, and why, so that none waits without end.

Jobs that wait for other jobs are not among them: they are served when those end.
"""

from collections.abc import Callable

from ...placement.model.demand import Demand
from ...placement.model.placement import Placement
from .clients import JobBook
from .state import Stranded, SupervisorState
from .stations import StationState

_NOT_COMING = frozenset({StationState.EMPTY, StationState.RESERVING, StationState.RESTING})
"""States that may last for as long as Ray gives nothing; a process that starts answers or dies in time."""


def find_unservable(state: SupervisorState, place_alone: Callable[[Demand], Placement]) -> dict[str, str]:
    """Return why jobs that need devices could not be placed even alone: {job: reason}."""
    placed = {lane.job for lane in state.placement.lanes}
    reasons = {}
    for job in state.clients.jobs():
        if _needs_gpus(job) and job.demand.segments and job.key not in placed:
            alone = place_alone(job.demand)
            if not alone.lanes:
                reasons[job.key] = alone.refusals[0].reason
    return reasons


def note_stranded(state: SupervisorState, now_s: float) -> None:
    """Update which jobs can get nothing."""
    before, state.stranded = state.stranded, {}
    for job in state.clients.jobs():
        if _needs_gpus(job) and not job.held and (reason := _why(state, job)):
            since_s = before[job.key].since_s if job.key in before else now_s
            state.stranded[job.key] = Stranded(since_s, reason)


def why_stranded(state: SupervisorState, job: JobBook, now_s: float) -> str:
    """Say why a job has waited long enough for devices, "" while some may still come."""
    found = state.stranded.get(job.key)
    is_known = all(node.has_answered for node in state.nodes if node.ray.gpus)
    if found is None or not is_known or now_s - found.since_s < state.settings.device_wait_s:
        return ""
    return f"no GPU came for it within {state.settings.device_wait_s:g} s: {found.reason}"


def _needs_gpus(job: JobBook) -> bool:
    return job.demand.needs_devices and job.demand.dlas is None


def _why(state: SupervisorState, job: JobBook) -> str:
    if job.key in state.unservable:
        return state.unservable[job.key]
    nodes = {lane.node for lane in state.placement.lanes if lane.job == job.key}
    stations = [state.stations[name] for name, wanted in state.targets.items() if job.key in wanted]
    if any(book.state not in _NOT_COMING for book in stations):
        return ""
    # A station that rests after such an attempt is not a job's target now.
    gpus = [book for book in state.stations.values() if book.station.takes_gpu and book.station.node in nodes]
    return next((book.unreserved for book in gpus if book.unreserved and book.state in _NOT_COMING), "")
