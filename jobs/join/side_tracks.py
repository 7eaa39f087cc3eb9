"""Handles the tracks other than the encoded video: ``SideTracks`` carries out a ``CarryPlan`` in a second pass."""

import heapq
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from itertools import count
from math import floor
from typing import TYPE_CHECKING, Any, Self

import av.error
from av.stream import Discard, Disposition

from ...actors.media.av_stream import copy_parameters, set_audio_padding, set_audio_parameters, set_extradata
from ...actors.media.headers import make_room
from ...actors.media.opening import demux, open_source
from ...actors.tracks.audio import EncodedTrack
from ...actors.tracks.subtitles import TX3G_DESCRIPTION
from ...errors import WorkError
from ..carry.carry import CarryPlan
from ..carry.chapters import chapters_in_a_row, chapters_of_part
from ..carry.containers import Container
from ..carry.sound import held_layout
from ..carry.tags import kept_tags
from ..carry.track_plan import Action, SoundKey, TrackPlan
from ..report.report import Warning_
from ..source.tracks import AudioTrack, Chapter, TrackKind
from .counted_sound import CountedSound
from .side_packets import AudioPipe, CuePipe, Interval, Pipe, VideoPipe, matroska_ticks, new_packet, skip_samples_data
from .side_warnings import side_warnings

if TYPE_CHECKING:
    from av.container import InputContainer, OutputContainer
    from av.container.core import Chapter as OutputChapter
    from av.packet import Packet
    from av.stream import Stream


_WINDOW_S = 10  #: Packets of different tracks are sorted if the source stores them at most this far apart in time
_NANOSECOND = Fraction(1, 1_000_000_000)
_HALF = Fraction(1, 2)
_OPUS_PREROLL_SAMPLES = 3840
_AC3 = frozenset({"ac3", "eac3"})
_COVER_FILES = {"mjpeg": ("cover.jpg", "image/jpeg"), "png": ("cover.png", "image/png")}


class SideTracks:
    """All tracks except the encoded one. Use it as a context manager, in one thread; call ``add_to``, then ``packets``.

    Args:
        source_url: the source.
        plan: the plan for the source's tracks.
        origin_s: the output's 0 on the source's clock; only inaudible sound may begin before it.
        start_s: drop everything that ends before this, on the source's clock.
        end_s: drop everything that begins at or after this, on the source's clock.
        encoded: the encoded tracks, by the keys of their plans.
    """

    def __init__(
        self,
        source_url: str,
        plan: CarryPlan,
        *,
        origin_s: Fraction,
        start_s: Fraction | None = None,
        end_s: Fraction | None = None,
        encoded: Mapping[SoundKey, EncodedTrack] | None = None,
    ) -> None:
        self._url = source_url
        self._plan = plan
        self._interval = Interval(origin_s, start_s, end_s)
        self._encoded = dict(encoded or {})
        self._stack = ExitStack()
        self._is_open = False
        self._source: InputContainer | None = None
        self._pipes: dict[int, Pipe] = {}
        self._encoded_streams: dict[SoundKey, Stream] = {}
        self._silent: set[SoundKey] = set()
        self._pictures: list[Packet[Stream]] = []
        self._damaged = False

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(self, *error: object) -> None:
        self._is_open, self._source = False, None
        self._stack.close()

    @property
    def warnings(self) -> tuple[Warning_, ...]:
        """Warnings about repairs, complete once ``packets`` is exhausted."""
        found = side_warnings(self._plan, self._pipes.values(), self._encoded, self._silent, self._interval)
        if self._damaged:
            message = "the source is cut off: the tracks other than the video end there"
            checks = ("audio", "subtitles", "metadata.cover", "stream.start")
            found.append(Warning_(code="source-truncated", message=message, checks=checks))
        return tuple(found)

    def add_to(self, output: "OutputContainer") -> None:
        """Create streams, attachments, chapters and tags. Call this before the header is written.

        Raises WorkError: the muxer refuses one of them.
        """
        output.metadata.update(self._plan.tags)
        if chapters := self._chapters():
            output.set_chapters(chapters)
        covers = self._read_covers()
        for track in self._plan.tracks:
            if track.kept:
                self._add(output, track, covers)

    @property
    def copied(self) -> tuple[str, ...]:
        """The names of the tracks whose packets are copied."""
        return tuple(pipe.track.name for pipe in self._pipes.values())

    def packets(self) -> "Iterator[tuple[Fraction, Packet[Stream]]]":
        """Yield (decoding time in the output, packet), in order if the source's tracks are at most 10 s apart."""
        streams = [self._encoded_packets(key) for key in self._encoded_streams]
        pictures = iter([(Fraction(0), picture) for picture in self._pictures])
        return heapq.merge(pictures, _in_order(self.copied_packets()), *streams, key=lambda timed: timed[0])

    def _input(self) -> "InputContainer":
        """Return the source, opened on first use, since a film without further tracks needs no second pass."""
        if not self._is_open:
            raise WorkError("SideTracks is not open", "Use SideTracks in a with statement.")
        if self._source is None:
            self._source = self._stack.enter_context(open_source(self._url))
        return self._source

    # Streams

    def _add(self, output: "OutputContainer", plan: TrackPlan, covers: Mapping[int, bytes]) -> None:
        kind = plan.track.kind
        if kind is TrackKind.ATTACHMENT:
            self._add_attachment(output, plan)
        elif kind is TrackKind.COVER:
            self._add_cover(output, plan, covers.get(plan.track.index, b""))
        elif plan.action is Action.ENCODE:
            self._encoded_streams[plan.key] = self._add_encoded(output, plan)
        else:
            stream = self._add_stream(output, plan)
            self._apply_tags(stream, plan)
            self._pipes[plan.track.index] = self._pipe(plan, stream)

    def _add_stream(self, output: "OutputContainer", plan: TrackPlan) -> "Stream":
        source = self._input().streams[plan.track.index]
        try:
            stream = output.add_mux_stream(plan.codec or "")
        except ValueError as error:
            message = f".{self._plan.container.name} refuses {plan.track.name} as {plan.codec}: {error}"
            raise WorkError(message, "Leave the track out, and please report this error.") from error
        if plan.action is Action.COPY:
            copy_parameters(stream, source)
        elif plan.codec == "mov_text":
            set_extradata(stream, TX3G_DESCRIPTION)
        stream.time_base = plan.track.time_base
        if plan.track.audio is not None:
            self._state_padding(stream, plan, plan.track.audio)
        return stream

    def _state_padding(self, stream: "Stream", plan: TrackPlan, audio: AudioTrack) -> None:
        stream.time_base = Fraction(1, audio.sample_rate)
        if (layout := held_layout(plan.track, self._plan.container)) is not None:
            set_audio_parameters(
                stream, sample_rate=audio.sample_rate, channel_layout=layout, frame_size=audio.frame_samples
            )
        set_audio_padding(
            stream, self._stated_priming(plan), seek_preroll=_OPUS_PREROLL_SAMPLES if plan.codec == "opus" else None
        )

    def _stated_priming(self, plan: TrackPlan) -> int:
        # A part of the source begins in the middle of the track, at a whole packet, so it has no priming.
        audio = plan.track.audio
        return audio.priming_samples if audio is not None and self._interval.start_s is None else 0

    def _add_encoded(self, output: "OutputContainer", plan: TrackPlan) -> "Stream":
        track = self._encoded.get(plan.key)
        if track is None:
            raise WorkError(f"{plan.track.name} should have been encoded, but was not", "Please report this error.")
        stream = output.add_mux_stream(track.codec, rate=track.sample_rate)
        set_audio_parameters(
            stream,
            sample_rate=track.sample_rate,
            channel_layout=track.layout,
            frame_size=track.frame_samples,
            sample_format=track.sample_format,
            bit_rate_bps=track.bit_rate_bps,
        )
        set_extradata(stream, track.extradata)
        set_audio_padding(
            stream,
            self._encoded_priming(track),
            trailing_padding=track.trailing_padding,
            seek_preroll=_OPUS_PREROLL_SAMPLES if track.codec == "opus" else None,
        )
        stream.time_base = track.time_base
        self._apply_tags(stream, plan)
        return stream

    def _encoded_priming(self, track: EncodedTrack) -> int:
        start_s = self._interval.start_s
        whole = start_s is None or (int(track.pts[0]) + track.initial_padding + 1) * track.time_base >= start_s
        return track.initial_padding if whole else 0

    def _apply_tags(self, stream: "Stream", plan: TrackPlan) -> None:
        container = self._plan.container
        if container.tags:
            stream.metadata.update(kept_tags(plan.track.tags, container, of_track=True))
            put_language(stream, plan.track.language_tag, container)
        elif plan.track.language:
            stream.metadata["language"] = container.language(plan.track.language) or "und"
        if container.dispositions:
            stream.disposition = Disposition(plan.track.disposition)

    def _add_attachment(self, output: "OutputContainer", plan: TrackPlan) -> None:
        stream: Any = self._input().streams[plan.track.index]
        attachment = plan.track.attachment
        if attachment is None:
            return
        added = output.add_attachment(attachment.name, attachment.mime, bytes(stream.data or b""))
        added.metadata.update(kept_tags(plan.track.tags, self._plan.container, of_track=True))

    def _add_cover(self, output: "OutputContainer", plan: TrackPlan, picture: bytes) -> None:
        if not picture:
            self._damaged = True
        elif self._plan.container.cover_as_attachment:
            name, mime = _COVER_FILES[plan.codec or ""]
            output.add_attachment(name, mime, picture)
        else:
            stream = self._add_stream(output, plan)
            stream.disposition = Disposition.attached_pic
            packet = new_packet(picture)
            packet.stream, packet.time_base = stream, Fraction(1, 90_000)
            packet.pts = packet.dts = packet.duration = 0
            self._pictures.append(packet)

    def _read_covers(self) -> dict[int, bytes]:
        wanted = {
            t.track.index for t in self._plan.tracks if t.track.kind is TrackKind.COVER and t.action is Action.COPY
        }
        covers: dict[int, bytes] = {}
        if not wanted:
            return covers
        with open_source(self._url) as container:
            for packet in self._packets_of(container, wanted):
                covers.setdefault(packet.stream_index, bytes(packet))
                if covers.keys() >= wanted:
                    break
        return covers

    def _chapters(self) -> "list[OutputChapter]":
        interval, plan = self._interval, self._plan
        # Matroska has no chapters before 0, where a chapter between --start and the first picture would begin.
        begin_s = interval.origin_s if interval.start_s is None else max(interval.start_s, interval.origin_s)
        chapters = chapters_of_part(plan.chapters, begin_s, interval.end_s)
        if plan.container.chapters_in_a_row:
            ends = [end_s for end_s in (interval.end_s, plan.end_s) if end_s is not None]
            chapters = chapters_in_a_row(chapters, interval.origin_s, min(ends, default=None))
        return [self._chapter(number, chapter) for number, chapter in enumerate(chapters, 1)]

    def _chapter(self, number: int, chapter: Chapter) -> "OutputChapter":
        begin, end = (floor(self._interval.output_s(t) / _NANOSECOND + _HALF) for t in (chapter.start_s, chapter.end_s))
        # FFmpeg's muxer leaves chapters without a title out of QuickTime's track.
        title = {"title": ""} if self._plan.container.chapters_in_a_row else {}
        return {
            "id": number,
            "start": begin,
            "end": end,
            "time_base": _NANOSECOND,
            "metadata": title | dict(chapter.tags),
        }

    # Packets

    def _pipe(self, plan: TrackPlan, stream: "Stream") -> Pipe:
        container = self._plan.container
        if plan.track.kind is TrackKind.AUDIO:
            return AudioPipe(
                plan.track,
                stream,
                self._interval,
                may_hide_start=container.edit_lists,
                trims_by_duration=container.edit_lists,
                needs_ac3_headers=container.describes_ac3 and plan.codec in _AC3,
                counted=self._counted(plan),
                padding_to_shift=self._stated_priming(plan) if container.codec_delay else None,
            )
        if plan.track.kind is TrackKind.VIDEO:
            return VideoPipe(plan.track, stream, self._interval)
        target = plan.codec if plan.action is Action.CONVERT else None
        return CuePipe(plan.track, stream, self._interval, target=target, one_at_a_time=container.one_cue_at_a_time)

    def _counted(self, plan: TrackPlan) -> CountedSound | None:
        audio, codec = plan.track.audio, plan.codec or ""
        if audio is None or codec not in self._plan.container.counted_audio:
            return None
        return CountedSound(codec, audio.channels, audio.sample_rate, plan.track.time_base)

    def copied_packets(self) -> "Iterator[Packet[Stream]]":
        """Yield the copied packets in the order in which the source stores them, without waiting for other tracks."""
        if not self._pipes:
            return
        for packet in self._packets_of(self._input(), set(self._pipes)):
            yield from self._pipes[packet.stream_index].feed(packet)
        for pipe in self._pipes.values():
            yield from pipe.finish()

    def _packets_of(self, container: "InputContainer", wanted: set[int]) -> "Iterator[Packet[Stream]]":
        for stream in container.streams:
            stream.discard = Discard.default if stream.index in wanted else Discard.all
        try:
            yield from (packet for packet in demux(container) if packet.stream_index in wanted)
        except av.error.FFmpegError:
            self._damaged = True  # these tracks end where the container breaks, as does the video's index

    def _encoded_packets(self, key: SoundKey) -> "Iterator[tuple[Fraction, Packet[Stream]]]":
        track, stream = self._encoded[key], self._encoded_streams[key]
        edit_lists = self._plan.container.edit_lists
        shift = floor(self._interval.origin_s / track.time_base + _HALF)
        last = len(track.pts) - 1
        self._silent.add(key)
        for number, (pts, duration, payload) in enumerate(track.packets()):
            begins = pts if edit_lists or number else pts + track.initial_padding + 1
            begin_s, end_s = begins * track.time_base, (pts + duration) * track.time_base
            if not self._interval.keeps_sound(begin_s, end_s, may_hide_start=edit_lists):
                continue
            packet = new_packet(payload)
            trailing = track.trailing_padding if number == last else 0
            if trailing and not edit_lists:
                packet.set_sidedata(skip_samples_data(trailing))
            packet.stream = stream
            position, length, tick = (
                pts - shift,
                max(1, duration - trailing) if edit_lists else duration,
                track.time_base,
            )
            if self._plan.container.codec_delay:
                position = matroska_ticks(position, self._encoded_priming(track), track.sample_rate)
                length, tick = floor(length * tick * 1000 + _HALF), Fraction(1, 1000)
            self._silent.discard(key)
            packet.pts = packet.dts = position
            packet.duration, packet.time_base = length, tick
            yield position * tick, packet


def put_language(stream: "Stream", tag: str | None, container: Container) -> None:
    """If the container can state a BCP 47 language tag, put it into the stream's name; closing the file moves it."""
    if tag is not None and container.language_tags is not None:
        make_room(stream, tag, container.language_tags)


def _in_order(packets: "Iterator[Packet[Stream]]") -> "Iterator[tuple[Fraction, Packet[Stream]]]":
    """Sort packets by decoding time within a window, because containers interleave tracks only roughly."""
    heap: list[tuple[Fraction, int, Packet[Stream]]] = []
    newest_s = Fraction(0)
    numbers = count()
    for packet in packets:
        at_s = (packet.dts or 0) * Fraction(packet.time_base)
        newest_s = max(newest_s, at_s)
        heapq.heappush(heap, (at_s, next(numbers), packet))
        while heap[0][0] < newest_s - _WINDOW_S:
            yield heapq.heappop(heap)[::2]
    while heap:
        yield heapq.heappop(heap)[::2]
