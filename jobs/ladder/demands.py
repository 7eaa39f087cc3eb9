"""The demand of a whole ladder, and the encoder with which its renditions can share their decodes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ...cluster.placement.model import Demand, EncoderChoice, EncoderKind, PlacementPreview, Rendition


def demand_of_all(ladder: str, demands: Sequence[Demand]) -> Demand | None:
    """Return the demand of a whole ladder; None if no rendition has a demand.

    Its segments are those of the rendition with the most work left, and each is encoded for every rendition. A
    rendition that only software may encode stays in software, whatever encodes the others.
    """
    if not demands:
        return None
    most = max(demands, key=lambda each: sum(each.segments))
    choices = {each.encoder for each in demands}
    order = (EncoderChoice.NVENC, EncoderChoice.AUTO, EncoderChoice.SOFTWARE)
    encoder = next(each for each in order if each in choices)
    return replace(
        most,
        job=ladder,
        renditions=tuple(chain.from_iterable(_renditions(each, encoder) for each in demands)),
        encoder=encoder,
        software_decode=next((each.software_decode for each in demands if each.software_decode), ""),
        has_filters=any(each.has_filters for each in demands),
        filter_bytes=sum(each.filter_bytes for each in demands),
    )


def _renditions(demand: Demand, encoder: EncoderChoice) -> tuple[Rendition, ...]:
    """Return a demand's renditions.

    If only software may encode them, but the ladder's ``encoder`` allows NVENC, each names its software encoder.
    """
    if demand.encoder is encoder or demand.encoder is not EncoderChoice.SOFTWARE:
        return demand.renditions
    return tuple(replace(each, kind=EncoderKind(each.software)) for each in demand.renditions)


@dataclass(frozen=True, slots=True)
class LadderPlace:
    """How a ladder runs: together or apart, and with which encoder."""

    apart: str = ""  # why its renditions cannot share their decodes; "" if they can
    kind: EncoderKind | None = None  # the NVENC for renditions that may use NVENC or software; None for software


async def place_ladder(
    preview: Callable[[Demand], Awaitable[PlacementPreview]], ladder: str, demands: Sequence[Demand]
) -> LadderPlace:
    """Decide, once for all renditions, whether they share their decodes, and which encoder writes them.

    They run apart if no machine can run all of them at once, or if NVENC can encode one of them alone, but not all at
    once. ``preview`` is ``Pool.preview``.
    """
    whole = demand_of_all(ladder, demands)
    if whole is None:
        return LadderPlace()
    found = await preview(whole)
    if found.never or found.unknown or found.encoder_kind is not None or whole.encoder is not EncoderChoice.AUTO:
        return LadderPlace(found.never, found.encoder_kind)
    required = await preview(replace(whole, encoder=EncoderChoice.NVENC))
    if required.encoder_kind is None and (reason := required.never or required.gpu_refusal):
        for demand in demands:
            if demand.chooses_encoder and (await preview(demand)).encoder_kind is not None:
                return LadderPlace(f"NVENC could encode only a part of the ladder at once: {reason}")
    return LadderPlace()
