"""Fields of FFmpeg's streams: what ``av_stream`` sets is read back from the written file."""

import io
import struct
from collections.abc import Callable
from fractions import Fraction

import av
import pytest

from codecfleet.actors.media import av_stream
from codecfleet.actors.media.av_stream import FieldOrder
from codecfleet.actors.media.values import Colour

TIME_BASE = Fraction(1, 30000)
DISPLAY_MATRIX = struct.pack("<9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)
CONTENT_LIGHT = struct.pack("<II", 1000, 400)
BT2020 = Colour(range=1, primaries=9, transfer=16, matrix=9, chroma_location=3)


def hevc_packets(count: int = 3) -> tuple[bytes, list[bytes]]:
    """Encode ``count`` grey 10-bit pictures; return the parameter sets and the packets."""
    context = av.CodecContext.create("libx265", "w")
    context.width, context.height, context.pix_fmt = 64, 64, "yuv420p10le"
    context.time_base, context.framerate = TIME_BASE, Fraction(30)
    context.flags |= int(av.codec.context.Flags.global_header)
    context.options = {
        "chroma_sample_location": "topleft",
        "preset": "ultrafast",
        "x265-params": "log-level=none:bframes=0:pools=none:info=0",
    }
    context.open()
    frames = [av.VideoFrame(64, 64, "yuv420p10le") for _ in range(count)]
    packets = []
    for index, frame in enumerate(frames):
        frame.pts = index * 1001
        packets += context.encode(frame)
    packets += context.encode(None)
    return bytes(context.extradata or b""), [bytes(packet) for packet in packets]


def written(container: str, describe: Callable[[av.stream.Stream, bytes], None]) -> io.BytesIO:
    """Write three HEVC packets to a container in memory; ``describe`` sets the stream's fields."""
    parameter_sets, packets = hevc_packets()
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container, options={"strict": "unofficial"}) as output:
        stream = output.add_mux_stream("hevc", width=64, height=64, time_base=TIME_BASE)
        describe(stream, parameter_sets)
        for index, payload in enumerate(packets):
            packet = av.Packet(payload)
            packet.stream = stream
            packet.pts = packet.dts = index * 1001
            packet.duration = 1001
            packet.is_keyframe = index == 0
            output.mux(packet)
    buffer.seek(0)
    return buffer


def describe_hdr(stream: av.stream.Stream, parameter_sets: bytes) -> None:
    """Set every field of a video stream."""
    av_stream.set_extradata(stream, b"replaced")
    av_stream.set_extradata(stream, parameter_sets)
    av_stream.set_video_parameters(
        stream,
        pix_fmt="yuv420p10le",
        colour=BT2020,
        sample_aspect_ratio=Fraction(64, 45),
        video_delay=0,
        frame_rate=Fraction(30000, 1001),
        field_order=FieldOrder.PROGRESSIVE,
    )
    av_stream.add_side_data(stream, "display_matrix", bytes(36))
    av_stream.add_side_data(stream, "display_matrix", DISPLAY_MATRIX)
    av_stream.add_side_data(stream, "content_light_level", CONTENT_LIGHT)


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_video_parameters_survive_the_container(container: str) -> None:
    """Colour, aspect ratio, rate, extradata and side data read back as they were set."""
    with av.open(written(container, describe_hdr)) as source:
        stream = source.streams.video[0]
        found = av_stream.video_parameters(stream)
        assert (found.width, found.height, found.pix_fmt) == (64, 64, "yuv420p10le")
        assert found.colour == BT2020
        assert found.sample_aspect_ratio == Fraction(64, 45)
        assert found.frame_rate == Fraction(30000, 1001)
        assert av_stream.extradata(stream)[0] == 1  # the version of hvcC, into which the muxer converts Annex B
        assert av_stream.side_data(stream)["display_matrix"] == DISPLAY_MATRIX
        assert av_stream.side_data(stream)["content_light_level"] == CONTENT_LIGHT
        assert sum(1 for _ in source.decode(stream)) == 3


def test_audio_padding_becomes_the_container_s_codec_delay() -> None:
    """Stated priming samples make Matroska's audio start earlier by their duration."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream = output.add_mux_stream("aac", time_base=Fraction(1, 48000))
        av_stream.set_extradata(stream, bytes.fromhex("1190"))
        av_stream.set_audio_parameters(stream, sample_rate=48000, channel_layout="stereo", frame_size=1024)
        av_stream.set_audio_padding(stream, 1024)
        packet = av.Packet(bytes.fromhex("21100460 8c1c".replace(" ", "")))
        packet.stream, packet.pts, packet.dts, packet.duration = stream, -1024, -1024, 1024
        output.mux(packet)
    buffer.seek(0)
    with av.open(buffer) as source:
        found = source.streams.audio[0].codec_context
        assert (found.sample_rate, found.layout.name) == (48000, "stereo")
        # The CodecDelay element, 1024 samples at 48 kHz in nanoseconds.
        assert bytes.fromhex("56aa") in buffer.getvalue()


def test_copied_parameters_equal_the_source_s() -> None:
    """A copy has the source's parameters and side data, but not the codec tag of the source's container."""
    with av.open(written("mp4", describe_hdr)) as source, av.open(io.BytesIO(), "w", format="matroska") as output:
        original = source.streams.video[0]
        copy = output.add_mux_stream("hevc", width=1, height=1, time_base=TIME_BASE)
        av_stream.copy_parameters(copy, original)
        wanted, found = av_stream.video_parameters(original), av_stream.video_parameters(copy)
        assert wanted.codec_tag != 0
        assert found.codec_tag == 0
        assert (found.width, found.colour, found.frame_rate) == (wanted.width, wanted.colour, wanted.frame_rate)
        assert av_stream.side_data(copy) == av_stream.side_data(original)
        assert av_stream.extradata(copy) == av_stream.extradata(original)


def test_unknown_names_are_refused() -> None:
    """An unknown pixel format, layout or kind of side data is a ``ValueError``."""
    with av.open(io.BytesIO(), "w", format="matroska") as output:
        video = output.add_mux_stream("hevc", width=64, height=64, time_base=TIME_BASE)
        audio = output.add_mux_stream("aac", time_base=Fraction(1, 48000))
        with pytest.raises(ValueError, match="pixel format"):
            av_stream.set_video_parameters(
                video,
                pix_fmt="yuv12345",
                colour=Colour(),
                sample_aspect_ratio=Fraction(1),
                video_delay=0,
                frame_rate=Fraction(25),
            )
        with pytest.raises(ValueError, match="channel layout"):
            av_stream.set_audio_parameters(audio, sample_rate=1, channel_layout="round", frame_size=0)
        with pytest.raises(ValueError, match="no_such_kind"):
            av_stream.add_side_data(video, "no_such_kind", b"")
