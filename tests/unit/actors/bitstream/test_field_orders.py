"""Field orders that are read from packets of FFmpeg's encoders."""

from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.bitstream.field_orders import FieldOrders
from codecfleet.actors.bitstream.picture_sizes import PictureSizes
from codecfleet.actors.media.av_stream import FieldOrder
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.spliced import packets_of

X264 = "bframes=2:scenecut=0"
CLIPS = {
    "h264 whole frames": ("libx264", (("x264-params", X264),), FieldOrder.PROGRESSIVE),
    "h264 bottom": ("libx264", (("x264-params", f"{X264}:bff=1"),), FieldOrder.BOTTOM_FIRST),
    "h264 with buffer model": (
        "libx264",
        (("x264-params", f"{X264}:bff=1:nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500"),),
        FieldOrder.BOTTOM_FIRST,
    ),
    "h264 progressive among fields": (
        "libx264",
        (("x264-params", f"{X264}:fake-interlaced=1"),),
        FieldOrder.PROGRESSIVE,
    ),
    "mpeg2 whole frames": ("mpeg2video", (("bf", "2"),), FieldOrder.PROGRESSIVE),
    "mpeg2 bottom": ("mpeg2video", (("flags", "+ildct+ilme"), ("bf", "2")), FieldOrder.BOTTOM_FIRST),
}


def orders_of(codec: str, path: Path) -> list[FieldOrder | None]:
    """Return the field order that each packet of a transport stream states."""
    found, sizes = FieldOrders(codec, b""), PictureSizes(codec, b"")
    stated = []
    for packet in packets_of(path):
        if packet.is_keyframe:
            sizes.size(packet.data)
            found.begin(sizes.sequence_set)
        stated.append(found.order(memoryview(packet.data)))
    return stated


@pytest.mark.parametrize("name", CLIPS)
def test_every_packet_states_what_its_picture_shows(name: str, tmp_path: Path) -> None:
    """Each packet states the order that the encoder was given and that FFmpeg's decoder finds."""
    encoder, options, wanted = CLIPS[name]
    codec = {"libx264": "h264"}.get(encoder, encoder)
    clip = Clip(times=constant_times(20, 1), time_base=Fraction(1, 25), encoder=encoder, options=options)
    path = make_clip(tmp_path / "film.ts", clip)
    assert set(orders_of(codec, path)) == {wanted}
    with av.open(str(path)) as container:
        frames = [frame for frame in container.decode(video=0) if isinstance(frame, VideoFrame)]
    assert {frame.interlaced_frame for frame in frames} == {wanted is not FieldOrder.PROGRESSIVE}


def test_damaged_packets_state_nothing() -> None:
    """A packet that ends early does not raise."""
    assert FieldOrders("mpeg2video", b"").order(memoryview(b"\x00\x00\x01\xb5\x80")) is None
