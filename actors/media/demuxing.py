"""Reading the packets of an open source's tracks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

__all__ = ["demux"]


def demux(container: "InputContainer", *streams: "Stream") -> "Iterator[Packet[Any]]":
    """Yield the packets of these tracks, or of all of them, in the container's order, less the empty ones at the end.

    Tracks that a transport stream begins only later, after it was opened, are left out.

    Raises:
        av.error.FFmpegError: the container cannot be read any further.
    """
    try:
        for packet in container.demux(*streams):
            if packet.size:
                yield packet
    except IndexError:
        # PyAV ends by flushing every track that FFmpeg knows by then, also those for which it made no object.
        return
