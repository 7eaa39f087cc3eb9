"""Reading what NVDEC tells of a picture beside its samples: SEI messages, and how it was coded."""

from typing import Any, Final

from ....errors import EngineUnfit
from ...media.values import SeiMessage
from ...surfaces.picture_notes import DecodeStatistics, PictureNotes

_ADVICE: Final = "Do without them, or use a GPU whose driver has them."


def picture_notes(frame: Any, *, statistics: bool) -> PictureNotes:
    """Read the notes of a ``DecodedFrame``; they are the decoder's until its next call.

    Raises:
        EngineUnfit: the driver gives no statistics.
    """
    messages = tuple(SeiMessage(about["sei_type"], bytes(payload)) for about, payload in frame.getSEIMessage() or ())
    return PictureNotes(messages, _statistics(frame) if statistics else None)


def _statistics(frame: Any) -> DecodeStatistics:
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
