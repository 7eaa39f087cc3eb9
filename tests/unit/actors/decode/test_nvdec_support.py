"""The tracks that NVDEC may decode (those that it decodes exactly), and the reasons against all others."""

from dataclasses import replace
from pathlib import Path

import av
import pytest
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.nvdec_support import CODECS, CodedTrack, track_facts, unsupported_reason
from codecfleet.actors.media.av_stream import FieldOrder
from codecfleet.actors.surfaces.formats import surface_format
from codecfleet.testing.clips import Clip, constant_times, make_clip

SURFACES = (
    *("yuv420p", "yuvj420p", "yuv420p10le", "yuv420p12le", "yuv422p", "yuvj422p", "yuv422p10le", "yuv422p12le"),
    *("yuv444p", "yuvj444p", "yuv444p10le", "yuv444p12le"),
)
REFUSED = (
    *("gray", "gray10le", "rgb24", "gbrp", "gbrp10le", "yuva420p", "yuyv422", "nv12", "p010le", "pal8", "xyz12le"),
    *("yuv420p9le", "yuv420p14le", "yuv420p16le", "yuv420p10be", "yuv440p", "yuvj440p", "yuv411p", "yuvj411p"),
    *("yuv410p", "yuv444p10msble"),
)
TRACK = CodedTrack(
    codec="hevc",
    pix_fmt="yuv420p",
    width=64,
    height=48,
    field_order=FieldOrder.PROGRESSIVE,
    extradata=b"",
)


def test_every_format_of_ffmpeg_has_an_answer() -> None:
    """Of all pixel formats of this FFmpeg's codecs, only the listed ones have a surface."""
    names = {"nv16", "p016le", "yuv440p10le", *SURFACES, *REFUSED}
    for codec in sorted(av.codecs_available):
        for mode in ("r", "w"):
            try:
                formats = av.Codec(codec, mode).video_formats
            except (av.error.FFmpegError, ValueError):
                continue
            names |= {each.name for each in formats or ()}
    with_surface = {name for name in names if surface_format(name) is not None}
    assert with_surface == set(SURFACES)


@given(pix_fmt=st.sampled_from(sorted(SURFACES)), across=st.integers(1, 40), down=st.integers(1, 40))
def test_a_surface_has_the_size_of_its_planes(pix_fmt: str, across: int, down: int) -> None:
    """A surface takes exactly as many bytes as the samples of FFmpeg's planes."""
    found = surface_format(pix_fmt)
    assert found is not None
    width, height = across << found.halved_across, down << found.halved_down
    layout = PixelFormat(pix_fmt, width, height)
    samples = sum(component.width * component.height for component in layout.components)
    assert found.size_bytes(width, height) == samples * found.sample_bytes
    assert VideoFrame(width, height, pix_fmt).planes[1].width == width >> found.halved_across


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {"h264"}))
def test_what_all_is_known_of_may_be_decoded(codec: str) -> None:
    """Every codec of NVDEC may be decoded if there is no reason against it."""
    assert unsupported_reason(replace(TRACK, codec=codec)) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"codec": "prores"}, "NVDEC does not decode prores"),
        ({"codec": "mjpeg"}, "NVDEC does not decode mjpeg"),
        ({"pix_fmt": None}, "NVDEC has no surface for an unknown pixel format"),
        ({"pix_fmt": "gbrp"}, "NVDEC has no surface for gbrp"),
        ({"width": 63}, "NVDEC's surfaces have even sides, and the pictures are 63x48"),
        ({"height": 47}, "NVDEC's surfaces have even sides, and the pictures are 64x47"),
        ({"width": 63, "pix_fmt": "yuv422p"}, "NVDEC's surfaces have even sides, and the pictures are 63x48"),
        ({"height": 47, "pix_fmt": "yuv422p"}, ""),
        ({"width": 63, "height": 47, "pix_fmt": "yuv444p10le"}, ""),
    ],
)
def test_every_refusal_names_its_reason(changes: dict[str, object], reason: str) -> None:
    """A refusal names the codec, the pixel format or the odd sides; odd sides count only if chroma is halved."""
    assert unsupported_reason(replace(TRACK, **changes)) == reason  # type: ignore[arg-type]


@pytest.mark.parametrize("order", list(FieldOrder))
@pytest.mark.parametrize("codec", ["hevc", "vp9"])
def test_fields_stay_in_software(codec: str, order: FieldOrder) -> None:
    """Tracks with fields are refused; a track that states no field order counts as progressive."""
    may = order in (FieldOrder.PROGRESSIVE, FieldOrder.UNKNOWN)
    assert ("interlaced" in unsupported_reason(replace(TRACK, codec=codec, field_order=order))) is not may


def test_mpeg2_stays_in_software() -> None:
    """MPEG-2 does not define its transform exactly, so correct decoders may differ in their samples."""
    assert "MPEG-2" in unsupported_reason(replace(TRACK, codec="mpeg2video", field_order=FieldOrder.PROGRESSIVE))


@pytest.mark.parametrize(("params", "may"), [("", True), ("interlaced=1", False), ("fake-interlaced=1", False)])
def test_h264_is_asked_itself(tmp_path: Path, params: str, *, may: bool) -> None:
    """Whether H.264 may have fields is read from the stream's parameter set, not from the container."""
    clip = Clip(times=constant_times(3), options=(("x264-params", params),), width=64, height=64)
    with av.open(str(make_clip(tmp_path / "clip.mkv", clip))) as container:
        facts = track_facts(container.streams.video[0])
    assert (facts.codec, facts.pix_fmt, facts.width, facts.height) == ("h264", "yuv420p", 64, 64)
    for order in FieldOrder:
        assert (unsupported_reason(replace(facts, field_order=order)) == "") is may
    assert "interlaced" in unsupported_reason(replace(facts, extradata=b""))
