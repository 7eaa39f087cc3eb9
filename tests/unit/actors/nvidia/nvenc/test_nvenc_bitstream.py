"""Changes to NVENC's bitstream: parameter sets are moved out of band, colour and HDR values are added."""

from dataclasses import replace
from fractions import Fraction

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import nal_units
from codecfleet.actors.decode.describe import frame_side_data
from codecfleet.actors.encode.settings import Codec, EncoderSettings
from codecfleet.actors.encode.software import SoftwareEncoder
from codecfleet.actors.media.values import (
    Colour,
    ContentLight,
    HdrStatic,
    VideoFormat,
    content_light_from_bytes,
    mastering_display_from_bytes,
)
from codecfleet.actors.nvidia.nvenc.bitstream import BitstreamWriter, hdr_units, metadata_filter, obus
from codecfleet.actors.settle.request import settle
from codecfleet.actors.settle.software import software_request
from codecfleet.errors import EngineFailed
from codecfleet.testing.clips import picture
from tests.unit.actors.encode.test_encoders import DISPLAY as MASTERING

CODECS = (Codec.H264, Codec.HEVC, Codec.AV1)
PLAIN = VideoFormat(128, 96, "yuv420p", Fraction(25))
DISPLAY = replace(MASTERING, min_luminance=Fraction(1, 16))  # AV1 can state this ratio exactly, too
HDR = HdrStatic(mastering=DISPLAY, light=ContentLight(1000, 400))
COLOUR = Colour(range=2, primaries=9, transfer=16, matrix=9, chroma_location=3)


def plain_stream(codec: Codec) -> tuple[bytes, list[bytes]]:
    """Return parameter sets and packets that state no colours."""
    settings: EncoderSettings = settle(software_request(codec, preset=1), PLAIN, Fraction(1, 25))
    packets = []
    with SoftwareEncoder(settings) as encoder:
        for number in range(3):
            frame = picture(number, 128, 96)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            packets += encoder.encode(frame)
        packets += encoder.finish()
        return encoder.extradata, [packet.payload for packet in packets]


def decoded(codec: Codec, extradata: bytes, packets: list[bytes]) -> list[av.VideoFrame]:
    """Decode with FFmpeg."""
    context = av.CodecContext.create("libdav1d" if codec is Codec.AV1 else codec.value, "r")
    context.extradata = extradata
    frames = [frame for data in packets for frame in context.decode(av.Packet(data))]
    return [*frames, *context.decode(None)]  # type: ignore[list-item]


@pytest.mark.parametrize("codec", CODECS)
def test_colour_aspect_and_hdr_arrive_at_a_decoder(codec: Codec) -> None:
    """A decoder sees every picture, and every value for which the encoder has no setting."""
    wanted = VideoFormat(128, 96, "yuv420p", Fraction(25), sample_aspect_ratio=Fraction(4, 3), colour=COLOUR, hdr=HDR)
    sets, packets = plain_stream(codec)
    writer = BitstreamWriter(codec, wanted, sets)
    finished = [writer.packet(data, is_keyframe=number == 0) for number, data in enumerate(packets)]
    frames = decoded(codec, writer.extradata, finished)
    assert len(frames) == 3
    first = frames[0]
    assert (first.color_range, first.color_primaries, first.color_trc, first.colorspace) == (2, 9, 16, 9)
    if codec is not Codec.AV1:  # AV1's sequence header has no aspect ratio: the container states the ratio
        context = av.CodecContext.create("libdav1d" if codec is Codec.AV1 else codec.value, "r")
        context.extradata = writer.extradata
        context.decode(av.Packet(finished[0]))
        context.decode(None)
        assert context.sample_aspect_ratio == Fraction(4, 3)
    side_data = frame_side_data(first)
    mastering = mastering_display_from_bytes(side_data["MASTERING_DISPLAY_METADATA"])
    assert mastering is not None
    assert mastering.max_luminance == DISPLAY.max_luminance
    assert mastering.min_luminance == DISPLAY.min_luminance
    assert abs(mastering.red[0] - DISPLAY.red[0]) < Fraction(1, 50_000)
    assert abs(mastering.white[1] - DISPLAY.white[1]) < Fraction(1, 50_000)
    assert content_light_from_bytes(side_data["CONTENT_LIGHT_LEVEL"]) == HDR.light


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
def test_parameter_sets_leave_the_packets(codec: Codec) -> None:
    """In-band sets that repeat the out-of-band sets are removed; the slices do not change."""
    sets, packets = plain_stream(codec)
    writer = BitstreamWriter(codec, PLAIN, sets)
    assert writer.extradata == b"".join(b"\x00\x00\x00\x01" + unit for unit in nal_units(sets))
    slices = list(nal_units(packets[0]))
    assert list(nal_units(writer.packet(sets + packets[0], is_keyframe=True))) == slices


@pytest.mark.parametrize("codec", [Codec.H264, Codec.HEVC])
def test_other_parameter_sets_are_an_error_until_a_change_was_asked_for(codec: Codec) -> None:
    """Other parameter sets would keep segments from being joined; after a reconfiguration they stay in band."""
    sets, packets = plain_stream(codec)
    other = BitstreamWriter(codec, VideoFormat(128, 96, "yuv420p", Fraction(25), colour=COLOUR), sets).extradata
    writer = BitstreamWriter(codec, PLAIN, sets)
    with pytest.raises(EngineFailed, match="other"):
        writer.packet(other + packets[0], is_keyframe=True)
    writer.parameters_may_change()
    assert len(list(nal_units(writer.packet(other + packets[0], is_keyframe=True)))) > len(list(nal_units(packets[0])))


@pytest.mark.parametrize("codec", CODECS)
def test_a_packet_without_a_picture_is_an_error(codec: Codec) -> None:
    """An empty or header-only bitstream is detected at once."""
    sets, _ = plain_stream(codec)
    writer = BitstreamWriter(codec, PLAIN, sets)
    for data in (b"", sets):
        with pytest.raises(EngineFailed, match="without a picture"):
            writer.packet(data, is_keyframe=True)


def test_an_av1_packet_that_is_cut_short_is_an_error() -> None:
    """AV1 states sizes, so a missing end is noticed."""
    sets, packets = plain_stream(Codec.AV1)
    writer = BitstreamWriter(Codec.AV1, PLAIN, sets)
    with pytest.raises(EngineFailed, match="truncated"):
        writer.packet(packets[0][:-1], is_keyframe=True)


@pytest.mark.parametrize("codec", CODECS)
def test_an_encoder_without_parameter_sets_is_an_error(codec: Codec) -> None:
    """A session without parameter sets is refused."""
    with pytest.raises(EngineFailed, match="parameter sets"):
        BitstreamWriter(codec, PLAIN, b"")


def test_nothing_to_say_is_no_filter() -> None:
    """Unspecified values are not written."""
    assert {metadata_filter(codec, PLAIN) for codec in CODECS} == {""}
    assert hdr_units(Codec.HEVC, HdrStatic()) == ()


@given(st.integers(0, 65535), st.integers(0, 65535), st.sampled_from([Codec.H264, Codec.HEVC]))
def test_hdr_messages_never_hold_a_start_code(most: int, average: int, codec: Codec) -> None:
    """For any values, the message is one NAL unit, and is read back unchanged."""
    (unit,) = hdr_units(codec, HdrStatic(light=ContentLight(most, average)))
    assert all(code not in unit for code in (b"\x00\x00\x00", b"\x00\x00\x01", b"\x00\x00\x02"))
    body = unit[1 if codec is Codec.H264 else 2 :].replace(b"\x00\x00\x03", b"\x00\x00")
    assert body == bytes([144, 4, *most.to_bytes(2, "big"), *average.to_bytes(2, "big"), 0x80])


@given(st.binary(max_size=40))
def test_any_bytes_are_obus_or_an_error(data: bytes) -> None:
    """Reading OBUs from any bytes ends, and returns all the bytes or raises an error."""
    try:
        units = list(obus(data))
    except EngineFailed:
        return
    assert b"".join(unit for _, unit in units) == data
