"""What a decoder tells of a picture beside its samples, for whoever asked: SEI messages, and how it was coded."""

from dataclasses import dataclass

from ..media.values import SeiMessage

__all__ = ["DecodeStatistics", "PictureNotes"]


@dataclass(frozen=True, slots=True)
class DecodeStatistics:
    """How a picture was coded, block by block in the order that the driver gives: all are as long, or empty.

    ``luma_qp`` are quantizers, ``coding_units`` the driver's numbers of what a block is; motion vectors are those of
    the first and of the second list, as (across, down). Documented, never seen: no driver at hand gives any.
    """

    luma_qp: tuple[int, ...]
    coding_units: tuple[int, ...]
    first_motion: tuple[tuple[int, int], ...]
    second_motion: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PictureNotes:
    """What NVDEC told of one picture, as ``NvdecOptions`` asked; ``statistics`` is None where they did not."""

    sei_messages: tuple[SeiMessage, ...] = ()
    statistics: DecodeStatistics | None = None
