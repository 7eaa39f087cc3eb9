"""Where a demand would be placed, before its job is bound to an encoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .demand import Demand, EncoderChoice, EncoderKind
from .inventory import Inventory
from .placement import Placement

Place = Callable[[Sequence[Demand], Inventory], Placement]
"""Returns the placement of demands on an inventory; the rates and the policy are fixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPreview:
    """Where a demand would be placed. Unknown values stay empty."""

    never: str = ""  # why these machines could not run the job even if idle; "" if they can, or other machines may join
    encoder_kind: EncoderKind | None = None  # the NVENC that would encode the job's tracks; None if software would
    gpu_refusal: str = ""  # why no GPU would take part; "" if a GPU would, or the reason is unknown
    takes_gpu: bool = False
    unknown: str = ""  # why the placement is unknown
    is_probing: bool = False  # whether the placement will be known when all GPUs have been probed


def preview_of(
    demand: Demand, others: Sequence[Demand], inventory: Inventory, place: Place, *, idle: Inventory | None
) -> PlacementPreview:
    """Return where a demand would be placed.

    A demand that can choose its encoder is placed together with ``others``, any other demand alone. If ``others`` use
    every NVENC, a demand that requires NVENC is placed alone too: its job waits for an NVENC. ``idle`` has all nodes,
    without any work; None if more nodes may join.
    """
    placement = place((*others, demand) if demand.chooses_encoder else (demand,), inventory)
    lanes = [lane for lane in placement.lanes if lane.job == demand.job]
    refusals = [refusal for refusal in placement.refusals if refusal.job == demand.job]
    gpus = {device.device for node in inventory.nodes for device in node.gpus}
    refused = (refusal.reason for refusal in refusals if not gpus.isdisjoint(refusal.devices))
    never = ""
    waits = demand.encoder is EncoderChoice.NVENC
    if not lanes and (idle is not None or waits):
        alone = place((demand,), inventory if idle is None else idle)
        never = "" if alone.lanes or idle is None else alone.refusals[0].reason
        lanes = list(alone.lanes) if waits else []
    takes_gpu = any(lane.device in gpus for lane in lanes)
    return PlacementPreview(
        never=never,
        encoder_kind=next((kind for lane in lanes for kind in lane.kinds if kind.is_nvenc), None),
        gpu_refusal="" if takes_gpu else next(refused, ""),
        takes_gpu=takes_gpu,
    )
