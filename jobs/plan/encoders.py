"""Chooses the encoder of a whole track: software, or the NVENC of one kind of GPU.

Every plan first assumes software. If placement finds NVENC faster and the job allows NVENC, a worker reports what its
NVENC can do, and the plan is rewritten for that kind of encoder.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from ...actors.device.encoder_offer import DescribeEncoder, EncoderOffer
from ...actors.media.values import VideoFormat
from ...actors.segment.filtering import FilterSettings
from ...actors.settle.nvenc import NvencRequest, nvenc_unsupported_reason
from ...actors.settle.request import settle
from ...actors.surfaces.conversion import device_conversion
from ...actors.surfaces.formats import surface_format
from ...cluster.fleet.pool import Pool
from ...cluster.placement.model import Demand, EncoderChoice, EncoderKind, PlacementPreview
from ...errors import DeviceError, EngineUnfit, FleetUnavailable, Unsupported, WorkerLost
from ..report.report import Warning_
from .losses import picture_losses
from .placing import demand_of, settled_demand
from .plan import Plan

NOT_ON_NVENC = "encoder"  #: The code of the warning that software encodes a track for which NVENC was chosen
Ask: TypeAlias = Callable[[DescribeEncoder], Awaitable[EncoderOffer]]
_NONE = "no device of this fleet has an NVENC that can encode this track"
_STEP = "Use --encoder software or --encoder auto."


async def settle_encoder_kind(plan: Plan, job: str, pool: Pool, retried: Ask) -> tuple[Plan, list[Warning_]]:
    """Return the plan for the encoder that will write the track, and warnings. ``retried`` submits work with retries.

    Raises:
        Unsupported: NVENC is required, but there is none, or it does not support these settings.
        DeviceError: NVENC is required, and the device failed.
        FleetUnavailable: NVENC is required, and the fleet does not answer.
    """
    require_device = plan.spec.encoder == "nvenc"
    if require_device and (problem := nvenc_unsupported_reason(plan.encoder.codec, plan.encoder.format)):
        raise Unsupported(f"NVENC cannot encode this track: {problem}", _STEP)
    demand, request = demand_of(plan, job), plan.nvenc
    if request is None or demand.encoder is EncoderChoice.SOFTWARE:
        return plan, []
    try:
        preview = await _known_preview(demand, pool)
        if (kind := preview.encoder_kind) is not None:
            pool.set_demand(job, settled_demand(replace(plan, kind=kind), job))
            work = DescribeEncoder(job=job, label="encoder", codec=plan.encoder.codec)
            offer = await retried(work)
            return with_nvenc(plan, request, kind, offer), []
    except (DeviceError, FleetUnavailable, Unsupported, WorkerLost) as error:
        if require_device and isinstance(error, EngineUnfit):
            raise Unsupported(f"no NVENC is available: {error.message}", _STEP) from error
        if require_device:
            raise
        return plan, [Warning_(code=NOT_ON_NVENC, message=f"software encodes: {error.message}", checks=())]
    finally:
        pool.set_demand(job, None)
    if require_device:
        message = f"no NVENC is available: {preview.never or preview.gpu_refusal or _NONE}"
        raise Unsupported(message, _STEP)
    return plan, []


async def _known_preview(demand: Demand, pool: Pool) -> PlacementPreview:
    preview = await pool.preview(demand)
    if preview.unknown:
        message = f"the fleet cannot say which encoder to use: {preview.unknown}"
        raise FleetUnavailable(message, "Use --encoder software, or try again.")
    return preview


def with_nvenc(plan: Plan, request: NvencRequest, kind: EncoderKind, offer: EncoderOffer) -> Plan:
    """Return the plan for the NVENC of one kind of GPU.

    Raises Unsupported: no NVENC supports the settings; EngineUnfit: this kind does not.
    """
    encoder = settle(request, plan.encoder.format, plan.clock.tick_s, offer.capabilities)
    software = picture_losses(plan.extras, plan.encoder, plan.container)
    losses = picture_losses(plan.extras, encoder, plan.container)
    on_device = request.target is None and _filters_on_device(
        plan.source_format, plan.filters, converts=offer.converts
    )  # a search for a quality measures pictures in host memory
    filters = replace(plan.filters, on_device=on_device)
    return replace(
        plan,
        encoder=encoder,
        filters=filters,
        kind=kind,
        package=offer.package,
        warnings=(*(warning for warning in plan.warnings if warning not in software), *losses),
    )


def _filters_on_device(source: VideoFormat, filters: FilterSettings, *, converts: bool) -> bool:
    """Return whether the device can make the pictures to encode, which it can only scale and convert."""
    surface = surface_format(source.pix_fmt)
    if filters.needs_software or surface is None or not surface.holds(source.width, source.height):
        return False
    return converts or device_conversion(surface, (source.width, source.height), filters.output).is_identity


def may_choose(plan: Plan) -> bool:
    """Return whether software and NVENC are both allowed."""
    return plan.nvenc is not None and plan.spec.encoder == "auto"


def may_restart(plan: Plan) -> bool:
    """Return whether software may start the track over if NVENC cannot finish it."""
    return plan.kind is not None and plan.spec.encoder == "auto"
