"""Helps to check sound, subtitles and metadata: aligns the clocks of the two files, and lists their tracks."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Discard, Disposition, Stream
from av.subtitles.stream import SubtitleStream
from av.video.stream import VideoStream

from ...actors.media.opening import demux
from ..source.tracks import container_tag

if TYPE_CHECKING:
    from av.packet import Packet

    from .container_checks import Containers


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the two files' clocks align, and which part of the source is in the output."""

    source_zero_s: Fraction  # the time of the first compared frame, on the source's clock
    output_zero_s: Fraction  # the time of the same frame, on the output's clock
    tracks: tuple[int, ...] | None  # the audio tracks that the output should have; None for all
    part_s: Fraction | None  # the time from the first to the last frame of the requested part; None for the whole track
    muxer: str  # FFmpeg's name of the output's demuxer
    dropped: frozenset[int] = frozenset()  # the source's streams that the report says are dropped
    encoded: frozenset[int] = frozenset()  # the source's streams that the report says are encoded
    begin_s: Fraction = Fraction(0)  # the time from the source's first frame to the first compared frame
    files: "Containers | None" = None  # the containers' own statements
    pix_fmts: tuple[str, ...] = ()  # all pixel formats of the source's pictures
    # the colours and shapes of all of the source's pictures
    seen: Mapping[str, Collection[Any]] = field(default_factory=dict)
    # the LUFS that the report states, by the source's stream index
    loudness: Mapping[int, float | None] = field(default_factory=dict)

    @property
    def trimmed(self) -> bool:
        """Whether only a part of the source was requested."""
        return self.part_s is not None

    @property
    def output_is_isobmff(self) -> bool:
        """Whether the output is mp4 or mov."""
        return "mp4" in self.muxer.split(",")

    @property
    def output_is_matroska(self) -> bool:
        """Whether the output is Matroska or WebM."""
        return "matroska" in self.muxer.split(",")

    @property
    def output_is_ts(self) -> bool:
        """Whether the output is an MPEG transport stream."""
        return self.muxer == "mpegts"

    @property
    def output_holds_tracks(self) -> bool:
        """Whether the output can hold more than one video track."""
        return self.output_is_isobmff or self.output_is_matroska or self.output_is_ts


def is_decodable(stream: Stream) -> bool:
    """Return whether FFmpeg knows the codec; otherwise PyAV gives the stream no type."""
    context: object = stream.codec_context
    return context is not None


def audio_tracks(container: InputContainer) -> list[AudioStream]:
    """Return the audio tracks whose codec is known."""
    return [stream for stream in container.streams.audio if is_decodable(stream)]


def subtitle_tracks(container: InputContainer) -> list[SubtitleStream]:
    """Return the subtitle tracks whose codec is known."""
    return [stream for stream in container.streams.subtitles if is_decodable(stream)]


def video_tracks(container: InputContainer) -> list[VideoStream]:
    """Return the video tracks, without cover art."""
    return [stream for stream in container.streams.video if not int(stream.disposition) & Disposition.attached_pic]


def covers(container: InputContainer) -> list[VideoStream]:
    """Return the tracks that are cover art."""
    return [stream for stream in container.streams.video if int(stream.disposition) & Disposition.attached_pic]


def data_tracks(container: InputContainer) -> list[Stream]:
    """Return the data tracks, except QuickTime's chapter titles and timecodes."""
    hidden = {"tmcd", "text"} if container.chapters() else {"tmcd"}
    found: list[Stream] = [s for s in container.streams.data if container_tag(s) not in hidden]
    return [s for s in found if "timecode" not in s.metadata]


def only(container: InputContainer, *streams: Stream) -> "Iterator[Packet[Stream]]":
    """Yield the packets of ``streams`` that have a payload. Other streams are not read."""
    wanted = {stream.index for stream in streams}
    for stream in container.streams:
        stream.discard = Discard.default if stream.index in wanted else Discard.all
    if streams:
        yield from demux(container, *streams)
