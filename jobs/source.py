"""Describing a source's video: what the container says, completed by the first picture that decodes."""

from contextlib import closing

from ..actors.decoding import DecodeRange, DecodeTally, decode_range, open_track
from ..actors.describe import StreamExtras, describe_extras, describe_video
from ..actors.media import VideoFormat
from ..actors.opening import open_source
from ..errors import InputUnreadable
from .index import TrackIndex

__all__ = ["describe_source"]


def describe_source(source: str, index: TrackIndex) -> tuple[VideoFormat, StreamExtras]:
    """Return the format of the track's pictures and what it has beside them.

    The track's first size is that of the first picture in presentation order; a mid-stream change is scaled to it.

    Raises:
        InputUnreadable: no picture of the track can be decoded.
    """
    tally = DecodeTally()
    range_ = DecodeRange(
        source=source,
        stream_index=index.stream_index,
        time_base=index.time_base,
        nominal_ticks=index.nominal_ticks,
        shifts=index.shifts,
        untimed=index.untimed,
        expected_ticks=index.expected_from(None, None)[:1],
    )
    with closing(decode_range(range_, tally)) as frames:
        first = next(frames, None)
    if first is None:
        message = f"no picture of {source} can be decoded ({tally.failed_packets} of {tally.packets} packets failed)"
        raise InputUnreadable(message, "It may be encrypted or damaged; codecfleet has no keys for protected media.")
    with open_source(source) as container:
        stream = open_track(container, range_)
        return describe_video(stream, first[1]), describe_extras(stream, first[1])
