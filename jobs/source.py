"""A source's video, described: what the container says, completed by the first picture that decodes.

And whether the source is still the same: its index, its segments and its sound are read at different times.
"""

from contextlib import closing
from dataclasses import dataclass
from typing import Self

from ..actors.decoding import SOFTWARE, DecodeRange, DecodeTally, decode_range, open_track
from ..actors.describe import StreamExtras, describe_extras, describe_video
from ..actors.location import is_local, local_path
from ..actors.media import VideoFormat
from ..actors.opening import open_source
from ..errors import InputUnreadable
from .index import TrackIndex

__all__ = ["SourceStamp", "describe_source"]


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """What tells whether a local source was replaced or written to: device, inode, bytes, time of the last change.

    A remote source has none; what it is read through holds on to one version, or does not.
    """

    source: str
    facts: tuple[int, ...] | None

    @classmethod
    def of(cls, source: str) -> Self:
        """Take the stamp of a source as it is now; one that is not there has no facts."""
        if not is_local(source):
            return cls(source, None)
        try:
            found = local_path(source).stat()
        except (OSError, ValueError):
            return cls(source, None)
        return cls(source, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))

    def check(self) -> None:
        """Make sure that the source is what it was.

        Raises:
            InputUnreadable: it was changed, replaced or removed.
        """
        if self.facts is not None and SourceStamp.of(self.source).facts != self.facts:
            message = f"{self.source} was changed or removed while it was read"
            raise InputUnreadable(message, "Start again once nothing writes to it any more.")


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
    with closing(decode_range(range_, tally, SOFTWARE)) as frames:
        first = next(frames, None)
    if first is None:
        message = f"no picture of {source} can be decoded ({tally.failed_packets} of {tally.packets} packets failed)"
        raise InputUnreadable(message, "It may be encrypted or damaged; codecfleet has no keys for protected media.")
    with open_source(source) as container:
        stream = open_track(container, range_)
        return describe_video(stream, first[1]), describe_extras(stream, first[1])
