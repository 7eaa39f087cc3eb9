"""The encoded video track of an output file: describes the stream, times its packets, and muxes them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import av
import av.error
from av.video.stream import VideoStream

from ...actors.encode.settings import Codec, EncoderSettings
from ...actors.media.av_abi import structures
from ...actors.media.av_stream import FieldOrder, set_extradata, set_video_parameters
from ...actors.media.headers import film_durations, language_changes, media_duration
from ...actors.media.structure import Change, Read, change_finished
from ...errors import CodecfleetError, InputUnreadable, StorageFailed, WorkError
from ..carry.containers import Container
from ..source.tracks import skipped_samples
from .output_times import OutputTimes, PacketTimes
from .side_packets import new_packet
from .spool import storage_error

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet
    from av.stream import Stream


@dataclass(slots=True)
class JoinedTrack:
    """The written track: the presentation time of every picture, in output ticks, in decoding order."""

    tick: Fraction = Fraction(1)
    pts: list[int] = field(default_factory=list)


class TrackFile:
    """An output file with one encoded video track. Call ``write`` for packets, then ``close`` or ``abandon``.

    ``options`` returns the muxer's options for a tick. ``add_streams`` adds all streams. ``lead_ticks`` and
    ``last_shown_ticks`` are as in ``OutputTimes``. With ``states_language_tags``, ``close`` writes language tags into
    the file. Raises StorageFailed.
    """

    def __init__(
        self,
        path: Path,
        container: Container,
        settings: EncoderSettings,
        *,
        time_base: Fraction,
        options: Callable[[Fraction], dict[str, str]],
        extradata: bytes,
        reorder_frames: int,
        lead_ticks: Fraction,
        last_shown_ticks: Callable[[int], Fraction],
        add_streams: "Callable[[OutputContainer, Fraction], VideoStream]",
        states_language_tags: bool = False,
    ) -> None:
        self._path = path
        self._container = container
        # Without a header, every access point must carry its parameter sets; AV1 and VP9 encoders always do that.
        is_bare = settings.codec in (Codec.H264, Codec.HEVC) and not container.has_header
        self._prefix = extradata if is_bare else b""
        self._times: OutputTimes | None = None
        self._media: tuple[int, int] | None = None
        self._output: OutputContainer | None = None
        self._copied = ""
        self._states_language_tags = states_language_tags
        self._ends_s: dict[int, Fraction] = {}
        tick = container.video_tick(time_base)
        try:
            self._output = av.open(str(path), "w", format=container.muxer, container_options=options(tick))
            self._stream = add_streams(self._output, tick)
            self._output.start_encoding()
        except (av.error.FFmpegError, OSError, ValueError) as error:
            self.abandon()
            raise self._failed(error) from error
        # The muxer may have chosen another tick than the requested one.
        self.joined = JoinedTrack(tick=Fraction(self._stream.time_base or tick))
        self._times_from = partial(
            OutputTimes,
            time_base,
            self.joined.tick,
            reorder_frames=reorder_frames,
            lead_ticks=lead_ticks,
            last_shown_ticks=last_shown_ticks,
            counts_decoding=container.counts_decoding,
        )

    def begin(self, origin_s: Fraction, copied: str = "") -> None:
        """Set which time of the source becomes 0 in the file: ``origin_s``, in seconds from the source's tick 0.

        Call this before the first packet; ``copied`` names the tracks copied from a source.
        """
        self._copied = copied
        self._times = self._times_from(origin_s=origin_s)

    def write(
        self,
        pts_ticks: Iterable[int],
        packets: Iterable[tuple[bytes, bool]],
        following_ticks: int | None,
        *,
        before: Callable[[Fraction], None] = lambda _: None,
    ) -> None:
        """Write packets in decoding order, each as (data, whether it is a keyframe).

        All of them must be shown before any later packet. ``following_ticks`` is the time of the next picture, None at
        the end. ``before`` is called with each decoding time, in seconds of the file. Raises ProofFailed: the times do
        not fit; StorageFailed.
        """
        if self._times is None:
            raise WorkError("time 0 of the output is not set", "Please report this error.")
        times = self._times.segment(list(pts_ticks), following_ticks)
        for (data, is_keyframe), moment in zip(packets, times, strict=True):
            before(moment.dts * self.joined.tick)
            self.mux(self._packet(self._prefix + data if is_keyframe else data, moment, is_keyframe=is_keyframe))
            self._media = moment.dts if self._media is None else self._media[0], moment.dts + moment.duration
            self.joined.pts.append(moment.pts)

    def mux(self, packet: "Packet[Stream]") -> None:
        """Write a packet of any stream. Raises StorageFailed; InputUnreadable: the muxer refuses a copied packet."""
        if self._output is None:
            raise WorkError("the output is not open", "Please report this error.")
        if self._container.stated_ends:
            self._see_end(packet)
        try:
            self._output.mux(packet)
        except (av.error.FFmpegError, OSError) as error:
            # Never mux after a failure: FFmpeg would write the header again each time, and finally crash.
            self.abandon()
            at_s = (packet.dts or 0) * Fraction(packet.time_base or 1)
            raise self._refused(error, f"at about {float(at_s):.1f} s") from error

    def close(self) -> JoinedTrack:
        """Close the file. Raises StorageFailed; InputUnreadable: the muxer refuses a copied packet."""
        output, self._output = self._output, None
        try:
            if output is not None:
                output.close()
                change_finished(self._path, self._changes())
        except (av.error.FFmpegError, OSError) as error:
            raise self._refused(error, "at its end") from error
        return self.joined

    def _changes(self) -> Iterator[Callable[[Read], Iterable[Change]]]:
        if self._container.counts_decoding and not self._container.fragmented and self._media is not None:
            yield partial(media_duration, ticks=self._media[1] - self._media[0])
        if self._ends_s:
            yield partial(film_durations, ends_s=self._ends_s)
        if self._states_language_tags and (form := self._container.language_tags) is not None:
            yield partial(language_changes, form=form)

    def _see_end(self, packet: "Packet[Stream]") -> None:
        """Record where a track now ends: at the end of its last packet, without inaudible samples."""
        end_s = ((packet.pts or 0) + (packet.duration or 0)) * Fraction(packet.time_base or 1)
        if packet.has_sidedata("skip_samples"):
            end_s -= Fraction(skipped_samples(packet)[1], structures(packet.stream)[1].sample_rate or 1)
        number = packet.stream.index + 1
        self._ends_s[number] = max(end_s, self._ends_s.get(number, end_s))

    def abandon(self) -> None:
        """Close the file without finishing it; the caller deletes it."""
        output, self._output = self._output, None
        if output is not None:
            with suppress(av.error.FFmpegError, OSError, ValueError):  # after a half-written header, closing fails
                output.close()

    def _packet(self, data: bytes, moment: PacketTimes, *, is_keyframe: bool) -> "Packet[Stream]":
        packet = new_packet(data)
        packet.stream = self._stream
        packet.pts, packet.dts, packet.duration = moment.pts, moment.dts, moment.duration
        packet.time_base = self.joined.tick
        packet.is_keyframe = is_keyframe
        return packet

    def _refused(self, error: Exception, place: str) -> CodecfleetError:
        """Return the error of a packet that was not written; the input is at fault if FFmpeg refuses a copy."""
        if not self._copied or not isinstance(error, av.error.InvalidDataError | av.error.PatchWelcomeError):
            return self._failed(error)
        message = f"{self._container.name} cannot hold {self._copied} {place} of the output: {error.strerror}"
        other = f"write {more}, or " if (more := self._container.holds_more) else ""
        return InputUnreadable(message, f"The input may be damaged there: {other}encode sound with --audio aac.")

    def _failed(self, error: Exception) -> WorkError:
        """Return the error for a failure of the muxer; if the failure has an errno, the storage caused it."""
        if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
            return storage_error(error, self._path)
        message = f"{self._container.name} could not be written: {error}"
        return StorageFailed(message, "Try another container, and please report this error together with the input.")


def add_video_track(
    output: "OutputContainer",
    container: Container,
    settings: EncoderSettings,
    tick: Fraction,
    *,
    extradata: bytes,
    reorder_frames: int,
    field_order: FieldOrder = FieldOrder.PROGRESSIVE,
    states_shape: bool = True,
) -> VideoStream:
    """Add the encoder's stream. Without ``states_shape``, only a display matrix states the shape. Raises WorkError."""
    picture, codec = settings.format, settings.codec
    stream = output.add_mux_stream(codec.value, width=picture.width, height=picture.height, time_base=tick)
    if not isinstance(stream, VideoStream):
        raise WorkError(f"PyAV made no video stream for {codec}", "Check the installed version of PyAV.")
    set_video_parameters(
        stream,
        pix_fmt=picture.pix_fmt,
        colour=picture.colour,
        sample_aspect_ratio=picture.sample_aspect_ratio if states_shape else Fraction(0),
        video_delay=reorder_frames,
        frame_rate=picture.frame_rate,
        field_order=field_order,
        codec_tag=int.from_bytes(container.hevc_tag.encode(), "little") if codec is Codec.HEVC else 0,
    )
    if extradata:
        set_extradata(stream, extradata)
    return stream
