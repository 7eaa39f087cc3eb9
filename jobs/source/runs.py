"""Decodes one picture of each run of a track (packets with the same mark) while the packets are read.

``actors/bitstream/picture_marks.py`` finds the marks.
"""

import os
from collections.abc import Hashable
from typing import TYPE_CHECKING, cast

import av.error
from av.codec.context import CodecContext
from av.video.codeccontext import VideoCodecContext

from ...actors.decode.describe import StreamExtras, describe_extras, describe_video, stated_picture
from ...actors.limits import InputLimits
from ...actors.media.av_abi import configure_decoder

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from ...actors.media.values import StatedPicture, VideoFormat

_MOST_PACKETS = 64  #: The most packets to decode for one picture; larger than the delay of any decoder


class RunReader:
    """Takes every packet of a track with the mark of the packet's run, and decodes one picture per run.

    Use an instance only once.
    """

    def __init__(self, stream: "VideoStream") -> None:
        self._stream = stream
        self._first = _Decoding(stream.codec_context)
        self._first_packets: list[Packet[VideoStream]] = []
        self._mark: Hashable = None
        self._sample: _Decoding | None = None
        self._sampled: Hashable = None
        self._tried: set[Hashable] = set()
        self.described: tuple[VideoFormat, StreamExtras] | None = None  #: The first picture that decodes
        self.pts: int | None = None  #: The PTS of the first picture that decodes
        #: a picture for each run's mark; empty if there is only one run, unless ``changes`` is set
        self.pictures: dict[Hashable, StatedPicture] = {}

    @property
    def failed(self) -> int:
        """How many packets failed to decode before the first picture."""
        return self._first.failed

    def see(self, packet: "Packet[VideoStream]", mark: Hashable, new_extradata: bytes = b"") -> None:
        """Take the next packet and the mark of its run; ``new_extradata`` is the configuration, if it has changed."""
        if mark is not self._mark:
            self._see_mark(mark, new_extradata)
        if self._sample is not None:
            self._feed(packet)
        if self.described is None:
            self._first_packets += [packet] if len(self._first_packets) < _MOST_PACKETS else []
            self._describe(packet)

    def finish(self, *, changes: bool) -> None:
        """Flush the decoders. With ``changes``, also decode a picture of the first run if it is the only run."""
        self._feed(None)
        if self.described is None:
            self._describe(None)
        if changes and not self._tried:
            self._decode_first()

    def _describe(self, packet: "Packet[VideoStream] | None") -> None:
        if (frame := self._first.picture(packet)) is not None:
            self.pts = frame.pts
            self.described = describe_video(self._stream, frame), describe_extras(self._stream, frame)

    def _see_mark(self, mark: Hashable, new_extradata: bytes) -> None:
        """Start to decode a picture of a new run. The first run is decoded only once there is a second run."""
        if self._mark is None:
            self._first_packets.clear()  # nothing before the first access point decodes
        elif not self._tried:
            self._decode_first()
        self._feed(None)
        if self._mark is not None and mark not in self._tried:
            self._begin(mark, new_extradata)
        self._mark = mark

    def _decode_first(self) -> None:
        self._begin(self._mark, b"")
        for packet in (*self._first_packets, None):
            self._feed(packet)
        self._first_packets.clear()

    def _begin(self, mark: Hashable, new_extradata: bytes) -> None:
        """Start a new decoder, without the container's colours, for one picture of a run."""
        context = cast("VideoCodecContext", CodecContext.create(self._stream.codec_context.codec, "r"))
        configure_decoder(context, self._stream)
        if new_extradata:
            context.extradata = new_extradata
        context.color_range, context.colorspace, context.color_primaries, context.color_trc = 0, 2, 2, 2
        context.options = {"max_pixels": str(InputLimits.of(os.environ).max_pixels)}
        self._sample, self._sampled = _Decoding(context), mark
        self._tried.add(mark)

    def _feed(self, packet: "Packet[VideoStream] | None") -> None:
        sample = self._sample
        if sample is None:
            return
        frame = sample.picture(packet)
        if frame is not None:
            self.pictures[self._sampled] = stated_picture(sample.context, frame)
        if frame is not None or packet is None or sample.packets == _MOST_PACKETS:
            self._sample = None


class _Decoding:
    """Decodes packets in one thread until there is a picture."""

    def __init__(self, context: VideoCodecContext) -> None:
        self.context = context
        self.context.thread_count = 1
        self.failed = 0
        self.packets = 0

    def picture(self, packet: "Packet[VideoStream] | None") -> "VideoFrame | None":
        self.packets += 1
        try:
            return next(iter(self.context.decode(packet)), None)
        except av.error.FFmpegError:
            self.failed += 1
            return None
