"""The one encoded video track of an output file: how its stream is described, and its packets."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from av.packet import Packet
from av.video.stream import VideoStream

from ...actors.encode.settings import Codec, EncoderSettings
from ...actors.media.av_stream import FieldOrder, set_extradata, set_video_parameters
from ...errors import StorageFailed, WorkError
from ..carry.containers import Container
from .output_times import PacketTimes
from .spool import storage_error

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.stream import Stream

__all__ = ["add_video_track", "repeats_parameter_sets", "video_packet", "write_error"]

_HVC1: Final = int.from_bytes(b"hvc1", "little")
"""HEVC with its parameter sets in the header alone; Apple's players take no other tag."""


def repeats_parameter_sets(container: Container, codec: Codec) -> bool:
    """Tell whether every access point must bring its own parameter sets: only two containers keep them in their header.

    AV1 and VP9 encoders repeat theirs by themselves.
    """
    headed = container.is_isobmff or container.is_matroska
    return codec in (Codec.H264, Codec.HEVC) and not headed


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
    """Add the stream that the packets of ``settings``'s encoder go into.

    ``states_shape`` False leaves the samples' shape to a display matrix that stretches.

    Raises:
        WorkError: PyAV makes none.
    """
    picture, codec = settings.format, settings.codec
    stream = output.add_mux_stream(codec.value, width=picture.width, height=picture.height, time_base=tick)
    if not isinstance(stream, VideoStream):
        message = f"PyAV made no video stream for {codec}"
        raise WorkError(message, "Check the installed version of PyAV.")
    set_video_parameters(
        stream,
        pix_fmt=picture.pix_fmt,
        colour=picture.colour,
        sample_aspect_ratio=picture.sample_aspect_ratio if states_shape else Fraction(0),
        video_delay=reorder_frames,
        frame_rate=picture.frame_rate,
        field_order=field_order,
        codec_tag=_HVC1 if codec is Codec.HEVC and container.is_isobmff else 0,
    )
    if extradata:
        set_extradata(stream, extradata)
    return stream


def video_packet(
    stream: VideoStream, data: bytes, moment: PacketTimes, tick: Fraction, *, is_keyframe: bool
) -> "Packet[Stream]":
    """Return a packet of the track, with its times in ``tick``."""
    packet: Packet[Stream] = Packet(len(data))
    packet.stream = stream
    packet.update(data)
    packet.pts, packet.dts, packet.duration = moment.pts, moment.dts, moment.duration
    packet.time_base = tick
    packet.is_keyframe = is_keyframe
    return packet


def write_error(error: Exception, container: Container, path: Path) -> WorkError:
    """Return what a muxer's error means: the storage's fault where it says so, else the container's."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return storage_error(error, path)
    message = f"{container.name} could not be written: {error}"
    return StorageFailed(message, "Try another container, and please report it with the input.")
