"""Which tracks are known to have one whole picture in every packet."""

from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.bitstream import BitStreamFilterContext
from av.packet import Packet

from codecfleet.actors.media.av_stream import extradata
from codecfleet.actors.media.opening import side_data
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.source.whole_pictures import WholePictures
from codecfleet.testing.clips import Clip, constant_times, make_clip

TIMES = constant_times(10)
X265 = "log-level=none:pools=1:frame-threads=1"
WHOLE = {
    "h264.mp4": Clip(times=TIMES),
    "h264.ts": Clip(times=tuple(range(10)), time_base=Fraction(1, 25)),
    "hevc.mp4": Clip(times=TIMES, encoder="libx265", options=(("x265-params", X265),)),
    "vp8.webm": Clip(times=TIMES, encoder="libvpx"),
    "vp9.webm": Clip(times=TIMES, encoder="libvpx-vp9", options=(("auto-alt-ref", "1"), ("lag-in-frames", "8"))),
    "ffv1.mkv": Clip(times=TIMES, encoder="ffv1"),
    "prores.mov": Clip(times=TIMES, encoder="prores_ks", pix_fmt="yuv422p10le"),
}
OPEN = {
    "fields.mp4": Clip(times=TIMES, options=(("x264-params", "interlaced=1"),)),
    "fields.ts": Clip(times=tuple(range(10)), time_base=Fraction(1, 25), options=(("x264-params", "interlaced=1"),)),
    "hevc-fields.mp4": Clip(times=TIMES, encoder="libx265", options=(("x265-params", f"{X265}:interlace=tff"),)),
    "mpeg2.ts": Clip(times=tuple(range(10)), time_base=Fraction(1, 25), encoder="mpeg2video"),
    "mpeg4.mp4": Clip(times=TIMES, encoder="mpeg4"),
}
VP8_HIDDEN, VP8_SHOWN = b"\x01" + bytes(9), b"\x11" + bytes(9)
VP9_HIDDEN, VP9_SHOWN, VP9_AGAIN = b"\x84" + bytes(9), b"\x86" + bytes(9), b"\x88"


@pytest.mark.parametrize("name", [*WHOLE, *OPEN])
def test_the_index_knows_which_tracks_have_whole_pictures(tmp_path: Path, name: str) -> None:
    """The index knows it for codecs without fields, and if parameter sets rule fields out."""
    path = make_clip(tmp_path / name, (WHOLE | OPEN)[name])
    assert read_source(str(path)).index.has_whole_pictures is (name in WHOLE)


@pytest.mark.parametrize(
    ("codec", "packets", "expected"),
    [
        ("vp8", [VP8_SHOWN, VP8_SHOWN], True),
        ("vp8", [VP8_SHOWN, VP8_HIDDEN, VP8_SHOWN], False),
        ("vp9", [VP9_SHOWN, VP9_AGAIN], True),
        ("vp9", [VP9_SHOWN, VP9_HIDDEN, VP9_AGAIN], False),
        ("h264", [], False),
        ("hevc", [], False),
    ],
)
def test_a_packet_that_shows_nothing_is_no_picture(codec: str, packets: list[bytes], *, expected: bool) -> None:
    """A packet with only a hidden frame disproves it; unread parameter sets prove nothing."""
    pictures = WholePictures(codec, b"")
    for packet in packets:
        pictures.see(Packet(packet))
    assert pictures.are_proven is expected


def test_a_keyframe_may_change_everything(tmp_path: Path) -> None:
    """A track that continues with fields has fields, whatever its beginning states."""
    whole, fields = (make_clip(tmp_path / name, (WHOLE | OPEN)[name]) for name in ("h264.ts", "fields.ts"))
    pictures, packets = seen(whole)
    for packet in packets:
        pictures.see(packet)
    assert pictures.are_proven
    for packet in seen(fields)[1]:
        pictures.see(packet)
    assert not pictures.are_proven


def test_a_damaged_set_at_a_keyframe_proves_nothing(tmp_path: Path) -> None:
    """A keyframe with a damaged parameter set leaves the pictures unproven: a decoder might still accept that set."""
    pictures, (first, *_) = seen(make_clip(tmp_path / "h264.mp4", WHOLE["h264.mp4"]))
    damaged = Packet(b"\x00\x00\x00\x02\x67\x64" + bytes(first))
    damaged.is_keyframe = True
    pictures.see(damaged)
    assert not pictures.are_proven


def test_a_new_configuration_beside_a_packet_proves_nothing(tmp_path: Path) -> None:
    """A new configuration in mid-track is not read, so nothing is known after it."""
    path = make_clip(tmp_path / "h264.ts", WHOLE["h264.ts"])
    pictures, (first, *_) = seen(path)
    with av.open(str(path)) as container:
        filter_ = BitStreamFilterContext("extract_extradata", in_stream=container.streams.video[0])
        (announced,) = filter_.filter(first)
    beside = side_data(announced)
    assert "new_extradata" in beside
    pictures.see(announced, beside)
    assert not pictures.are_proven


def seen(path: Path) -> tuple[WholePictures, list[Packet]]:
    """Return what is known of a clip before its packets, and after them."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        pictures = WholePictures(stream.codec_context.codec.canonical_name, extradata(stream))
        return pictures, [packet for packet in container.demux(stream) if packet.size]
