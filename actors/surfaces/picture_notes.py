"""What a decoder reports about a picture beside its samples: SEI messages, and how it was coded."""

from dataclasses import dataclass

from ..media.values import SeiMessage


@dataclass(frozen=True, slots=True)
class DecodeStatistics:
    """How a picture was coded, block by block in the driver's order; all are equally long, or empty.

    ``luma_qp`` are quantizers, ``coding_units`` the driver's block types; motion vectors (across, down) are those of
    the first and second list. Documented, but not seen from any driver tested.
    """

    luma_qp: tuple[int, ...]
    coding_units: tuple[int, ...]
    first_motion: tuple[tuple[int, int], ...]
    second_motion: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PictureNotes:
    """NVDEC's notes on one picture; ``statistics`` is None where ``NvdecOptions`` did not request them."""

    sei_messages: tuple[SeiMessage, ...] = ()
    statistics: DecodeStatistics | None = None
