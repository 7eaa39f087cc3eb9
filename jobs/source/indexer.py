"""Builds a track's index in one demux pass, without decoding."""

from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from ...actors.bitstream.access_points import RandomAccess, random_access_kind
from ...actors.bitstream.field_orders import FieldOrders
from ...actors.bitstream.picture_marks import PictureMarks
from ...actors.bitstream.picture_sizes import PictureSizes
from ...actors.decode.describe import nominal_frame_rate
from ...actors.limits import InputLimits
from ...actors.media.av_stream import FieldOrder
from ...actors.media.headers import Fragments, TrackEnd
from ...actors.media.timeline import LONGEST_GAP_S, RESET_S, TimeShift, nominal_ticks, tick_divisor, whole_ticks
from ...errors import InputUnreadable, NoVideoTrack
from .index import CORRUPT, DISCARD, KEY, MISSING, TrackIndex
from .last_picture import stated_duration
from .whole_pictures import WholePictures

if TYPE_CHECKING:
    from av.packet import Packet, PacketSideData

    from ...actors.media.values import PictureSize

_FARTHEST_TICKS = 1 << 61
_COLUMNS = 6
_CHECKED_PACKETS = 256  #: The number of packets between two checks of the limits


def video_stream(container: InputContainer, source: str, track: int) -> VideoStream:
    """Return video track ``track`` of an open source, counted from 0; cover art does not count.

    Raises NoVideoTrack: the track does not exist; InputUnreadable: the source has no tracks, or the codec is unknown.
    """
    if not container.streams:
        message = f"{source} has no tracks"
        raise InputUnreadable(
            message, "The file is cut short, or only refers to other files; use a complete media file."
        )
    tracks = [s for s in container.streams.video if not Disposition(s.disposition) & Disposition.attached_pic]
    if not tracks:
        message = f"{source} has no video to encode"
        raise NoVideoTrack(message, "Give a file with a video track; codecfleet does not convert sound-only files.")
    if track >= len(tracks):
        message = f"{source} has no video track {track}: it has {len(tracks)}"
        raise NoVideoTrack(message, "Count from 0; `codecfleet probe` lists the tracks.")
    stream = tracks[track]
    # PyAV's types promise a context, but a codec that FFmpeg does not know has none.
    if getattr(stream, "codec_context", None) is None:
        message = f"the video of {source} is in a codec that cannot be decoded here"
        raise InputUnreadable(message, "`codecfleet probe` names the codec.")
    return stream


class TrackIndexer:
    """Collects every packet of one video track, in demux order, and builds the index. Use an instance only once."""

    def __init__(
        self, source: str, source_bytes: int, stream: VideoStream, limits: InputLimits, fragments: Fragments | None
    ) -> None:
        context = stream.codec_context
        self._source = source
        self._stream = stream
        self._limits = limits
        self._source_bytes = source_bytes
        self._fragments = fragments
        self._pixels = stream.width * stream.height
        # The codec's own rate comes first, because the container of a raw bitstream has only a default. The rate is
        # read now, because FFmpeg's guess changes if parameters change in mid-stream.
        self._rate = nominal_frame_rate(stream.guessed_rate, stream.average_rate, stream.base_rate)
        self._codec = context.codec.canonical_name
        self._extradata = context.extradata or b""
        self._pictures = WholePictures(self._codec, self._extradata)
        self._picture_sizes = PictureSizes(self._codec, self._extradata)
        self._picture_marks = PictureMarks(self._codec, self._extradata)
        self._field_orders = FieldOrders(self._codec, self._extradata)
        self.new_extradata = b""  #: The codec's latest changed configuration, if any
        #: The first packet of each run, and the values in the headers of the run
        self.marks: list[tuple[int, Hashable]] = []
        #: The values in the headers of the last access point; None before the first access point
        self.mark: Hashable = None
        self.orders: list[tuple[int, FieldOrder]] = []  #: Packets at which the field order changes, and the new order
        self._rows = array("q")  # six numbers for each packet: a list of tuples would need six times the memory
        self._packets = 0
        self._kinds: dict[int, RandomAccess] = {}
        self._sizes: dict[int, PictureSize] = {}

    def see(self, packet: "Packet[VideoStream]", beside: "Mapping[str, PacketSideData]") -> None:
        """Take the next packet and its side data."""
        flags = packet.is_keyframe * KEY | packet.is_discard * DISCARD | packet.is_corrupt * CORRUPT
        pts = MISSING if packet.pts is None else packet.pts
        dts = MISSING if packet.dts is None else packet.dts
        if packet.is_keyframe:
            self._see_keyframe(packet, beside)
        if self._field_orders.needs_packets:
            self._note_order(self._field_orders.order(memoryview(packet)))
        self._rows.extend(
            (pts, dts, -1 if packet.pos is None else packet.pos, packet.size, flags, packet.duration or 0)
        )
        self._packets += 1
        if self._packets % _CHECKED_PACKETS == 0:
            self.check(self._pixels)
        if packet.is_keyframe or beside or self._pictures.reads_all:
            self._pictures.see(packet, beside)

    def _see_keyframe(self, packet: "Packet[VideoStream]", beside: "Mapping[str, PacketSideData]") -> None:
        number, data = self._packets, bytes(packet)
        self._kinds[number] = random_access_kind(self._codec, data, self._extradata)
        extradata = bytes(beside.get("new_extradata", b""))
        self.new_extradata = extradata or self.new_extradata
        size = self._picture_sizes.size(data, extradata)
        if self._kinds[number] is not RandomAccess.NONE and not packet.is_corrupt:
            self._see_access_point(data, extradata)
        if size is not None and not packet.is_corrupt:
            self._limits.check_size(self._source, size.width, size.height)
            self._sizes[number] = size

    def _see_access_point(self, data: bytes, new_extradata: bytes) -> None:
        mark = self._picture_marks.mark(data, self._picture_sizes, new_extradata)
        if mark != self.mark:
            self.mark = mark
            self.marks.append((self._packets, mark))
        self._field_orders.begin(self._picture_sizes.sequence_set, new_extradata)
        if self._field_orders.is_read and not self._field_orders.needs_packets:
            self._note_order(FieldOrder.PROGRESSIVE)

    def _note_order(self, order: FieldOrder | None) -> None:
        if order is not None and (not self.orders or self.orders[-1][1] is not order):
            self.orders.append((self._packets, order))

    @property
    def is_bottom_first(self) -> bool:
        """Whether the first interlaced picture states bottom field first."""
        interlaced = (order for _, order in self.orders if order is not FieldOrder.PROGRESSIVE)
        return next(interlaced, None) is FieldOrder.BOTTOM_FIRST

    def check(self, pixels: int) -> None:
        """Raise InputTooLarge if the packets so far exceed a limit, or have too many pixels for the source's size."""
        packets, bytes_ = self._packets, self._source_bytes
        self._limits.check("max_packets", packets, f"{self._source} has {packets} packets of video or more")
        if bytes_ > 0:
            ratio = pixels * packets // bytes_
            message = f"{self._source} states {ratio} pixels or more for each of its {bytes_} bytes"
            self._limits.check("max_pixels_per_byte", ratio, message)

    def index(self, track_end: Callable[[], TrackEnd | None]) -> TrackIndex:
        """Build the index; ``track_end`` returns where the edit list of an mp4 or mov ends.

        Raises InputUnreadable: there are no packets, or times would overflow.
        """
        source = self._source
        if not self._rows:
            message = f"the video track of {source} has no packets"
            raise InputUnreadable(
                message, "The file is cut short, empty, or refers to another file; get a complete file."
            )
        stream = self._stream
        time_base = Fraction(stream.time_base or 1)
        # A copy, because more rows follow if the file grows.
        columns = np.array(self._rows, dtype=np.int64).reshape(-1, _COLUMNS)
        pts, dts, flags = columns[:, 0].copy(), columns[:, 1], columns[:, 4].astype(np.uint8)
        _refuse_far(source, _farthest(pts), _farthest(dts))
        rate = self._rate
        shifts = find_resets(dts, flags, time_base, rate)
        _refuse_far(source, *accumulate(shift.ticks for shift in shifts))
        for shift in shifts:
            later = pts[shift.first_packet :]
            later[later != MISSING] += shift.ticks
        stated = None if shifts else self._stated(columns, time_base, track_end)
        divisor = tick_divisor(_shared_times(pts, flags), time_base)
        _refuse_far(source, _farthest(pts) * divisor)
        pts[pts != MISSING] *= divisor
        return TrackIndex(
            source=source,
            stream_index=stream.index,
            codec=self._codec,
            time_base=time_base / divisor,
            frame_rate=rate,
            pts=pts,
            dts=dts,
            pos_bytes=columns[:, 2],
            sizes_bytes=columns[:, 3],
            flags=flags,
            kinds=dict(self._kinds),
            shifts=shifts,
            has_whole_pictures=self._pictures.are_proven,
            tick_divisor=divisor,
            sizes=dict(self._sizes),
            max_pixels=self._limits.max_pixels,
            clusters=_clusters(stream),
            fragments=self._fragments,
            stated_last_ticks=None if stated is None else stated * divisor,
        )

    def _stated(
        self, columns: NDArray[np.int64], time_base: Fraction, track_end: Callable[[], TrackEnd | None]
    ) -> Fraction | None:
        """Return the last picture's duration as the container states it, in the source's ticks."""
        timed = columns[(columns[:, 0] != MISSING) & ((columns[:, 4] & DISCARD) == 0)]
        return stated_duration(
            self._stream.container.format.name,
            timed[:, 0],
            timed[:, 1],
            timed[:, 5],
            tick_s=time_base,
            track_end=track_end,
            hides_packets=bool((columns[:, 4] & DISCARD).any()),
            lacks_packets=self._stream.frames > len(columns),
        )


def _clusters(stream: VideoStream) -> NDArray[np.int64]:
    """Return Matroska's index as far as the demuxer has read it: (ticks, position) of each keyframe."""
    entries = stream.index_entries if stream.container.format.name.startswith("matroska") else ()
    return np.array([(each.timestamp, each.pos) for each in entries], np.int64).reshape(-1, 2)


def _farthest(times: NDArray[np.int64]) -> int:
    known = times[times != MISSING]
    return max(-int(known.min()), int(known.max())) if len(known) else 0


def _refuse_far(source: str, *ticks: int) -> None:
    """Raise InputUnreadable for times whose sum might overflow 64 bits."""
    if any(abs(each) > _FARTHEST_TICKS for each in ticks):
        message = f"the times of {source}'s video track are implausibly far apart"
        raise InputUnreadable(
            message, "The track's clock is damaged; get an intact copy, or extract the bare video stream."
        )


def _shared_times(pts: NDArray[np.int64], flags: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Yield, for each time that visible packets share, how many share it and the ticks to the next time."""
    times, counts = np.unique(pts[(pts != MISSING) & ((flags & DISCARD) == 0)], return_counts=True)
    for place in np.flatnonzero(counts[:-1] > 1):
        yield int(counts[place]), int(times[place + 1] - times[place])


def find_resets(
    dts: NDArray[np.int64], flags: NDArray[np.uint8], time_base: Fraction, rate: Fraction
) -> tuple[TimeShift, ...]:
    """Find clock resets (rule R1) in decoding times, because presentation times step back at every B-picture."""
    watched = np.flatnonzero((dts != MISSING) & ((flags & DISCARD) == 0))
    steps = np.diff(dts[watched])
    step = whole_ticks(nominal_ticks(rate, time_base))
    shifts = []
    back, ahead = int(RESET_S / time_base), int(LONGEST_GAP_S / time_base)
    for place in np.flatnonzero((steps < -back) | (steps > ahead)):
        before, packet = int(watched[place]), int(watched[place + 1])
        shifts.append(TimeShift(packet, int(dts[before]) + step - int(dts[packet])))
    return tuple(shifts)
