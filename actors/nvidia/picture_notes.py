"""What NVDEC tells of a picture beside its samples, for whoever asked: SEI messages, and how it was decoded."""

from dataclasses import dataclass
from typing import Any, Final

from ...errors import EngineUnfit
from ..media import SeiMessage

__all__ = ["DecodeStatistics", "PictureNotes", "picture_notes"]

_ADVICE: Final = "Do without them, or use a GPU whose driver has them."


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


def picture_notes(frame: Any, *, statistics: bool) -> PictureNotes:  # noqa: ANN401 - publishes no types
    """Read the notes of a ``DecodedFrame``; they are the decoder's until its next call.

    Raises:
        EngineUnfit: the driver gives no statistics.
    """
    messages = tuple(SeiMessage(about["sei_type"], bytes(payload)) for about, payload in frame.getSEIMessage() or ())
    return PictureNotes(messages, _statistics(frame) if statistics else None)


def _statistics(frame: Any) -> DecodeStatistics:  # noqa: ANN401 - as above
    if not frame.decode_stats_size:
        message = "statistics: this GPU's driver gives no decode statistics; NVIDIA's 590 is the first that does"
        raise EngineUnfit(message, _ADVICE)
    found = frame.ParseDecodeStats()
    return DecodeStatistics(
        luma_qp=tuple(found["qp_luma"]),
        coding_units=tuple(found["cu_type"]),
        first_motion=tuple(zip(found["mv0_x"], found["mv0_y"], strict=True)),
        second_motion=tuple(zip(found["mv1_x"], found["mv1_y"], strict=True)),
    )
