"""Finds out where a demand would be placed beside current work."""

from dataclasses import replace
from math import inf, isinf

from ...autoscale.speeds import Choice
from ...placement.assign.prediction import predict
from ...placement.model.demand import Demand, EncoderChoice
from ...placement.model.inventory import Inventory
from ...placement.model.preview import PlacementPreview, preview_of
from ..state.state import Planner, SupervisorState
from ..state.stations import StationState
from .autoscaling import choice_for
from .effective import without_late_gpus
from .placing import usable_inventory

_ENOUGH = "no node would be requested: existing and pending nodes suffice"


def preview(state: SupervisorState, demand: Demand, *, nodes_may_join: bool) -> PlacementPreview:
    """Return where a demand would be placed; in a cluster that can grow, new nodes count too."""
    if demand.chooses_encoder and state.may_grow and (choice := choice_for(state, demand, state.ticked_s)):
        return _grown(choice)
    others = [job.demand for job in state.clients.jobs()]
    inventory, planner = usable_inventory(state), state.planner
    idle = None if nodes_may_join else Inventory(tuple(node.node for node in state.nodes))
    found = preview_of(demand, others, inventory, planner.place, idle=idle)
    if found.encoder_kind is not None and demand.encoder is EncoderChoice.AUTO and _has_late_gpus(state):
        now = without_late_gpus(inventory, state.stations.values())
        soft_s = _wall_s(replace(demand, encoder=EncoderChoice.SOFTWARE), others, now, planner)
        nvenc_s = state.settings.gpu_start_s + _wall_s(demand, others, inventory, planner)
        found = found if nvenc_s < soft_s else replace(found, encoder_kind=None)
    # GPUs that are not listed yet may exist.
    unlisted = next((node.ray.unlisted for node in state.nodes if node.ray.unlisted and not node.gpus), "")
    if not unlisted:
        return found
    never = unlisted if found.never and demand.needs_devices else found.never
    own = "" if demand.may_use_gpu else demand.software_decode
    return replace(found, never=never, gpu_refusal=found.gpu_refusal or own or unlisted)


def _grown(choice: Choice) -> PlacementPreview:
    kinds = (each.kind for each in choice.demand.renditions)
    kind = next((kind for kind in kinds if kind is not None and kind.is_nvenc), None)
    is_able = not isinf(choice.forecast.late_s)
    return PlacementPreview(
        encoder_kind=kind if is_able else None,
        takes_gpu=is_able and kind is not None,
        gpu_refusal="" if is_able else choice.forecast.reason,
    )


def growth(state: SupervisorState, demand: Demand) -> str:
    """Return which nodes would be requested for a job, or why none would be; "" without autoscaling."""
    if state.scaling.trouble:
        return f"no node can be requested: {state.scaling.trouble}"
    choice = choice_for(state, demand, state.ticked_s)
    return "" if choice is None else choice.growth(state.scaling.decision) or _ENOUGH


def _wall_s(demand: Demand, others: list[Demand], inventory: Inventory, planner: Planner) -> float:
    """Return how many seconds a demand takes beside other demands; infinite if it cannot be placed."""
    wall_s = predict(demand, planner.place((*others, demand), inventory)).wall_s
    return inf if wall_s is None else wall_s


def _has_late_gpus(state: SupervisorState) -> bool:
    """Return whether no GPU worker has started yet, as in a private Ray's first seconds."""
    ready = (book for book in state.stations.values() if book.state is StationState.READY)
    return state.settings.gpu_start_s > 0 and not any(book.station.kind.takes_gpu for book in ready)
