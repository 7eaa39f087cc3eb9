"""The picture sizes that headers state, compared with decoders on the same tracks."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import pytest
from av.video.frame import VideoFrame

from codecfleet.actors.bitstream.picture_sizes import PictureSizes
from codecfleet.actors.media.av_stream import extradata
from codecfleet.actors.media.values import PictureSize
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.spliced import packets_of, splice

TIMES = constant_times(6)
X264 = (("x264-params", "bframes=0:scenecut=0"),)
X265 = (("x265-params", "bframes=0:scenecut=0:repeat-headers=1:log-level=none:pools=1:frame-threads=1"),)
REALTIME = (("deadline", "realtime"),)
TRACKS = {
    "h264": (".ts", Clip(times=TIMES, options=X264)),
    "h264-444": (".ts", Clip(times=TIMES, options=X264, pix_fmt="yuv444p")),
    "h264-422-fields": (".ts", Clip(times=TIMES, options=(("x264-params", "tff=1"),), pix_fmt="yuv422p")),
    "hevc": (".ts", Clip(times=TIMES, encoder="libx265", options=X265)),
    "hevc-422": (".ts", Clip(times=TIMES, encoder="libx265", options=X265, pix_fmt="yuv422p")),
    "vp8": (".webm", Clip(times=TIMES, encoder="libvpx", options=REALTIME)),
    "vp9": (".webm", Clip(times=TIMES, encoder="libvpx-vp9", options=REALTIME)),
    "av1": (".ivf", Clip(times=TIMES, encoder="libsvtav1", options=(("preset", "12"), ("svtav1-params", "lp=1")))),
}
SIZES = ((64, 64), (178, 98), (96, 66))


def decoded_sizes(path: Path) -> set[tuple[int, int]]:
    """Return the sizes of a file's decoded pictures."""
    with av.open(str(path)) as container:
        return {(f.width, f.height) for f in container.decode(video=0) if isinstance(f, VideoFrame)}


@pytest.mark.parametrize("name", TRACKS)
def test_headers_tell_the_size_of_every_change(name: str, tmp_path: Path) -> None:
    """At each keyframe of a track whose size changes, the headers state the size that the decoder gives."""
    suffix, clip = TRACKS[name]
    clips = [replace(clip, width=width, height=height) for width, height in SIZES]
    for number, (each, size) in enumerate(zip(clips, SIZES, strict=True)):
        assert decoded_sizes(make_clip(tmp_path / f"alone{number}{suffix}", each)) == {size}
    _, packets = splice(tmp_path, suffix, clips)
    sizes = PictureSizes(name.partition("-")[0], b"")
    found = [sizes.size(packet.data) for packet in packets if packet.is_keyframe]
    assert [(size.width, size.height) for size in found if size is not None] == list(SIZES)


@pytest.mark.parametrize(
    ("encoder", "options", "suffix"),
    [
        ("libx264", X264, ".mp4"),
        ("libx265", X265, ".mkv"),
        ("libsvtav1", (("preset", "12"), ("svtav1-params", "lp=1")), ".mp4"),
    ],
)
def test_the_configuration_tells_the_size_too(
    encoder: str, options: tuple[tuple[str, str], ...], suffix: str, tmp_path: Path
) -> None:
    """Parameter sets count in avcC, hvcC and av1C as well as in packets."""
    clip = Clip(times=TIMES, encoder=encoder, options=options, width=178, height=98)
    path = make_clip(tmp_path / f"clip{suffix}", clip)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        codec, configuration = stream.codec_context.codec.canonical_name, extradata(stream)
    assert PictureSizes(codec, configuration).size(packets_of(path)[0].data) == PictureSize(178, 98)


def test_the_shape_of_samples_is_part_of_the_size(tmp_path: Path) -> None:
    """H.264 states a sample aspect ratio, as a number or in full, which makes the displayed picture wider."""
    for shape in ("16/11", "19/7"):
        clip = Clip(times=TIMES, options=(("x264-params", f"bframes=0:sar={shape}"),))
        data = packets_of(make_clip(tmp_path / "clip.h264", clip))[0].data
        size = PictureSizes("h264", b"").size(data)
        assert size == PictureSize(64, 48, Fraction(shape))
        assert size.display_area == 64 * 48 * Fraction(shape)


def test_another_configuration_holds_from_its_packet_on(tmp_path: Path) -> None:
    """FFmpeg gives a packet a new avcC if an mp4 has several sample entries; the packet is read with the new avcC."""
    small, large = (
        make_clip(tmp_path / f"{width}.mp4", Clip(times=TIMES, options=X264, width=width)) for width in (64, 96)
    )
    configurations = []
    for path in (small, large):
        with av.open(str(path)) as container:
            configurations.append(extradata(container.streams.video[0]))
    sizes = PictureSizes("h264", configurations[0])
    assert sizes.size(packets_of(small)[0].data) == PictureSize(64, 48)
    assert sizes.size(packets_of(large)[0].data, configurations[1]) == PictureSize(96, 48)


@pytest.mark.parametrize("name", TRACKS)
def test_headers_that_are_cut_short_tell_nothing_or_the_same(name: str, tmp_path: Path) -> None:
    """A packet that is cut anywhere gives the right size or none, and never an error."""
    suffix, clip = TRACKS[name]
    data = packets_of(make_clip(tmp_path / f"clip{suffix}", replace(clip, width=178, height=98)))[0].data
    for length in range(min(len(data), 600)):
        size = PictureSizes(name.partition("-")[0], b"").size(data[:length])
        assert size is None or (size.width, size.height) == (178, 98)


def test_other_codecs_tell_nothing() -> None:
    """The size is unknown for codecs that are not parsed."""
    assert PictureSizes("mpeg2video", b"").size(b"\x00\x00\x01\xb3\x04\x00\x30\x13") is None
