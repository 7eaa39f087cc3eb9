"""Reads a source once: the index of a video track, the other tracks, and the format of the pictures.

``SourceStamp`` detects later changes of the source, because index, segments and sound are read at different times.
"""

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Self

import av.error
from av.stream import Discard

from ...actors.decode.describe import StreamExtras
from ...actors.limits import InputLimits
from ...actors.media.av_stream import decoder_mark, extradata
from ...actors.media.headers import HeaderWatch, TrackEnd, has_several_descriptions, track_end
from ...actors.media.kept_sources import KEPT
from ...actors.media.location import HeldSource, is_local, local_path
from ...actors.media.opening import demux, no_file, open_source, side_data
from ...actors.media.stores import changed_meanwhile, local_version, source_version, version_anywhere
from ...actors.media.values import VideoFormat
from ...errors import InputError, InputNotFound, InputUnreadable
from .file_ends import PacketEnds, is_cut_short
from .index import TrackIndex
from .indexer import TrackIndexer, video_stream
from .life import UNCHANGING, PictureLife, picture_life
from .one_format import one_format, part_format, with_colours, with_life
from .riders import Riders
from .runs import RunReader
from .sound_life import SoundLives
from .tracks import SourceDescription, TrackStarts, describe_container, stated_languages

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream


_SEEN_EVERYWHERE: Final = (
    "Add --ship to send the file to the nodes, or put the file on storage that every node sees under the same path."
)


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """The version of a source: device, inode, size and change time of a local file, or what the store reports."""

    source: str
    facts: Hashable | None  #: None if the store reports nothing, so that changes go unnoticed

    @classmethod
    def of(cls, source: str) -> Self:
        """Return the stamp of a source as it is now; a missing source has no facts."""
        return cls(source, source_version(source))

    def is_replaced(self) -> bool:
        """Return whether another source has this name now. A missing source does not count: it may come back."""
        now = SourceStamp.of(self.source).facts
        return self.facts is not None and now is not None and now != self.facts

    def check(self) -> None:
        """Raise InputUnreadable if the source was changed, replaced or removed."""
        if self.facts is None:
            return
        found = SourceStamp.of(self.source).facts
        # A store that does not answer proves no change; the next read reports the reason.
        if found != self.facts and (found is not None or is_local(self.source)):
            raise changed_meanwhile(self.source)

    def check_local(self) -> None:
        """Run ``check`` for a local source; for other sources, workers compare the version for each segment."""
        if is_local(self.source):
            self.check()

    @property
    def size_bytes(self) -> int | None:
        """The source's size; None if the store does not report it."""
        if not isinstance(self.facts, tuple):
            return None
        size = self.facts[2] if is_local(self.source) else self.facts[0]
        return size if isinstance(size, int) else None

    def explain(self, error: Exception) -> None:
        """Raise InputUnreadable or InputNotFound if the source is the cause of a job's ``error``."""
        self.check()
        if (unseen := self._unseen(error)) is not None:
            raise unseen from error

    def _unseen(self, error: Exception) -> InputError | None:
        """Return a clearer error if ``error`` comes from a node on which the file is missing or differs."""
        if not (is_local(self.source) and isinstance(error, InputError) and error.where):
            return None
        from ...cluster.worker_names import WorkerId  # noqa: PLC0415 - nothing else about a source needs the cluster

        node = WorkerId(error.where).station.node
        if error.message.startswith(no_file(local_path(self.source)).message):
            return InputNotFound(f"node {node} has no file {self.source}, which is on this machine", _SEEN_EVERYWHERE)
        if error.message == changed_meanwhile(self.source).message:
            message = f"{self.source} on node {node} is a different file than on this machine"
            return InputUnreadable(message, _SEEN_EVERYWHERE)
        return None

    @property
    def anywhere(self) -> Hashable | None:
        """The part of ``facts`` that is the same on every node."""
        return version_anywhere(self.source, self.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReading:
    """The result of one pass over a source's packets."""

    index: TrackIndex
    tracks: SourceDescription
    #: The common format (``jobs/source/one_format.py``); None if no picture decodes
    picture: tuple[VideoFormat, StreamExtras] | None
    undecodable: str  #: Why no picture decodes; "" if one does
    first_ticks: int | None = None  #: The time of the first picture that decodes; leading pictures may lack references
    is_cut_short: bool = False  #: Whether the file is shorter than its own structure says
    life: PictureLife = UNCHANGING  #: Changes of the pictures' properties

    def in_part(self, start_s: Fraction | None, end_s: Fraction | None) -> "SourceReading":
        """Return a copy that has only the format and changes of a part. Times count from the first picture."""
        index = self.index
        if self.picture is None or not self.life.runs or (start_s is None and end_s is None):
            return self
        start, end = (None if each is None else index.tick_at(each) for each in (start_s, end_s))
        part = self.life.during(start, end)
        format_, extras = self.picture
        return replace(self, picture=(part_format(format_, self.life, part, index), extras), life=part)

    def described(self) -> tuple[VideoFormat, StreamExtras]:
        """Return format and side data of the pictures. Raises InputUnreadable: no picture decodes."""
        if self.picture is None:
            advice = "The source may be encrypted or damaged; codecfleet has no keys for protected media."
            raise InputUnreadable(self.undecodable, advice)
        return self.picture


def read_source(source: str, track: int = 0) -> SourceReading:
    """Read every packet of video track ``track`` of a source, and decode one picture of each run.

    Headers state only sizes; decoded pictures show pixel format, interlacing, captions and HDR. Raises InputError: the
    source cannot be read, breaks a limit, or has no packets; NoVideoTrack.
    """
    limits = InputLimits.of(os.environ)
    watch = HeaderWatch()
    version = local_version(source) if is_local(source) else None
    with open_source(source, limits=limits, watch=watch) as container:
        stream = video_stream(container, source, track)
        KEPT.look_at(source, version, container, stream.index)
        return _Pass(source, container, stream, watch, limits).read()


def read_growing(
    source: str, held: HeldSource, track: int, wants: Callable[[], bool], give: Callable[[SourceReading], None]
) -> SourceReading:
    """Read a growing source through ``held``, whose reads wait for more bytes; return the reading of the ended file.

    At each keyframe for which ``wants`` returns True, ``give`` gets the reading of everything before it. The errors are
    those of ``read_source``.
    """
    limits = InputLimits.of(os.environ)
    watch = HeaderWatch()
    with open_source(held, limits=limits, watch=watch) as container:
        stream = video_stream(container, source, track)
        reading = _Pass(source, container, stream, watch, limits)

        def look() -> None:
            if reading.is_described and wants():
                give(reading.so_far())

        return reading.read(look)


class _Pass:
    def __init__(
        self, source: str, container: "InputContainer", stream: "VideoStream", watch: HeaderWatch, limits: InputLimits
    ) -> None:
        self._source = source
        self._container = container
        self._stream = stream
        self._limits = limits
        self._watch = watch
        self._languages = stated_languages(container, watch)
        self._ends = PacketEnds()
        is_boxed = container.format.name.startswith("mov")
        fragments = watch.fragments(container.size, decoder_mark(stream)) if is_boxed else None
        self._indexer = TrackIndexer(source, container.size, stream, limits, fragments)
        self._riders = Riders(stream.codec_context.codec.canonical_name, extradata(stream))
        self._runs = RunReader(stream)
        self._starts = TrackStarts(container, stream)
        self._lives = SoundLives(container, has_several=has_several_descriptions(watch.read))
        self._tracks: SourceDescription | None = None
        self._look: Callable[[], None] | None = None

    def read(self, look: Callable[[], None] | None = None) -> SourceReading:
        """Read to the end. ``look`` is called before each keyframe of a file that grows."""
        self._look = look
        self._see_all()
        # A file that grew is complete: it ends where its recorder stopped.
        is_cut = look is None and is_cut_short(self._source, self._container, self._watch, self._ends)
        return self._reading(is_cut)

    @property
    def is_described(self) -> bool:
        """Whether a picture has been decoded, and all tracks have been described."""
        return self._tracks is not None and self._runs.described is not None

    def so_far(self) -> SourceReading:
        """Return the reading of the packets that were read so far."""
        return replace(self._reading(is_cut=True), is_cut_short=False)

    def _reading(self, is_cut: bool) -> SourceReading:  # noqa: FBT001 - passed on
        index = self._indexer.index(lambda: None if is_cut else self._track_end())
        index.check(self._limits)
        is_cut = is_cut or self._lacks_end(index)
        tracks = self._lives.described(self._tracks or self._described())
        if self._runs.described is None:
            failed = f"{self._runs.failed} of {index.packets} packets failed"
            message = f"no picture of {self._source} can be decoded ({failed})"
            return SourceReading(index=index, tracks=tracks, picture=None, undecodable=message, is_cut_short=is_cut)
        format_, extras = self._runs.described
        self._indexer.check(format_.width * format_.height)
        bottom_first = self._indexer.is_bottom_first if self._indexer.orders else format_.bottom_first
        first = replace(format_, frame_rate=index.frame_rate, bottom_first=bottom_first)
        life = picture_life(index, self._indexer.marks, self._runs.pictures, self._indexer.orders)
        life = with_colours(life, first)
        index = with_life(index, life)
        pts = self._runs.pts
        return SourceReading(
            index=index,
            tracks=tracks,
            picture=(
                one_format(first, life, index),
                extras.with_riders(self._riders.ridden(index), tuple(self._riders.held_messages)),
            ),
            undecodable="",
            first_ticks=None if pts is None or index.untimed else pts * index.tick_divisor,
            is_cut_short=is_cut,
            life=life,
        )

    def _track_end(self) -> TrackEnd | None:
        return track_end(self._watch.read, self._stream.id)

    def _lacks_end(self, index: TrackIndex) -> bool:
        """Return whether an mp4 or mov promises more packets, and a later end, than FFmpeg reads."""
        end = self._track_end() if self._stream.frames > index.packets else None
        return end is not None and end.end_s > (index.end_ticks + index.nominal_ticks) * index.time_base

    def _see_all(self) -> None:
        beside = self._starts.streams
        for each in self._container.streams:
            each.discard = Discard.default if each is self._stream or each in beside else Discard.all
        self._describe_tracks()
        try:
            for packet in demux(self._container, self._stream, *beside):
                self._ends.see(packet)
                if packet.stream_index == self._stream.index:
                    self._see_picture(packet)
                else:
                    self._see_other(packet)
        except av.error.FFmpegError:
            self._ends.is_broken = True  # the part that was read so far is used
        self._runs.finish(changes=len(self._indexer.orders) > 1)
        self._starts.give_up()

    def _see_picture(self, packet: "Packet[Any]") -> None:
        if self._look is not None and packet.is_keyframe:
            self._look()
        beside = side_data(packet)
        self._indexer.see(packet, beside)
        self._riders.see(packet, beside)
        self._runs.see(packet, self._indexer.mark, self._indexer.new_extradata)

    def _see_other(self, packet: "Packet[Any]") -> None:
        self._lives.see(packet)
        if self._tracks is None:
            self._starts.see(packet)
            self._describe_tracks()

    def _describe_tracks(self) -> None:
        """Describe the tracks once all have started; after that, read only sound tracks whose format may change."""
        if self._tracks is None and self._starts.are_known:
            self._tracks = self._described()
            for each in self._starts.streams:
                if not self._lives.follows(each):
                    each.discard = Discard.all

    def _described(self) -> SourceDescription:
        return describe_container(self._source, self._container, self._starts, self._languages)
