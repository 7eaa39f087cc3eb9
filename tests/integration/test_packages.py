"""CMAF tracks of outputs that jobs made: what a demuxer, a decoder and FFmpeg's own manifests say about them."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet.actors.media.av_abi import structures
from codecfleet.actors.media.av_stream import copy_parameters
from codecfleet.errors import ProofFailed
from codecfleet.jobs.package.check import check_package
from codecfleet.jobs.package.names import track_files
from codecfleet.jobs.package.values import Layout, PackagedTrack, PlayedKind
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times

from ..boxes import boxes, numbers
from ..subtitle_tracks import Cue, with_subtitles
from .packages import film, packaged, proven, tracks_of

NTSC = Clip(times=constant_times(97, 1001), time_base=Fraction(1, 24000))
"""Two seconds, two seconds and a picture."""
UNEVEN = Clip(times=uneven_times([40, 20, 33, 70, 41] * 24))
PQ = (("color_trc", "smpte2084"), ("color_primaries", "bt2020"), ("colorspace", "bt2020nc"))
WIDE = Clip(
    times=constant_times(60), encoder="libx265", pix_fmt="yuv420p10le", options=(*PQ, ("x265-params", "log-level=0"))
)
AAC_SAMPLES = 1024


def read_back(folder: Path, track: PackagedTrack, layout: Layout) -> Path:
    """Return one file with the header and the segments, as a player appends them."""
    names = track_files(track.given, layout, len(track.segments))
    joined = folder / "joined.mp4"
    joined.write_bytes(b"".join((folder / name).read_bytes() for name in names))
    return joined


def decoded(path: Path, stream: int) -> list[tuple[int, bytes]]:
    """Return the time and content of each decoded picture or block of sound."""
    with av.open(str(path)) as container:
        frames: list[Any] = list(container.decode(container.streams[stream]))
        return [(frame.pts, frame.to_ndarray().tobytes()) for frame in frames]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("codec", ["h264", "hevc", "av1"])
def test_every_picture_comes_out_at_its_time(tmp_path: Path, codec: str, layout: Layout) -> None:
    """A decoder gets the same pictures at the same times from header and segments as from the proven file."""
    made = proven(make_clip(tmp_path / "film.mp4", NTSC), tmp_path / "proven.mp4", codec=codec)
    package = packaged(tmp_path / "out", tracks_of(made), layout)
    check_package(tmp_path / "out", package)
    (track,) = package.tracks
    assert decoded(read_back(tmp_path / "out", track, layout), 0) == decoded(made, 0)
    assert [each.start_ticks for each in track.segments] == [0, 48 * 1001, 96 * 1001]
    assert (track.frame_rate, track.width, track.height) == (Fraction(24000, 1001), 64, 48)
    assert track.video_range == "SDR"


@pytest.mark.parametrize(
    ("codec", "form", "clip"),
    [("av1", "whole", UNEVEN), ("vp9", "fragmented", NTSC), ("vp9", "whole", UNEVEN), ("vp9", "fragmented", UNEVEN)],
)
def test_renditions_of_different_codecs_have_the_same_segments(
    tmp_path: Path, codec: str, form: str, clip: Clip
) -> None:
    """Reordering and the form of the file change neither the segments nor the end of a rendition."""
    source = make_clip(tmp_path / "film.mkv", clip)
    made = [
        *tracks_of(proven(source, tmp_path / "a.mp4", codec="h264"), "a"),
        *tracks_of(proven(source, tmp_path / "b.mp4", codec=codec, preset=7, fragmented=form == "fragmented"), "b"),
    ]
    package = packaged(tmp_path / "out", made)
    check_package(tmp_path / "out", package)
    one, other = package.tracks
    times = [[(s.start_ticks, s.duration_ticks) for s in track.segments] for track in (one, other)]
    assert times[0] == times[1]
    assert len(times[0]) == 3


def test_sound_is_cut_after_each_picture_and_keeps_its_priming(tmp_path: Path) -> None:
    """The encoder's first samples are there and hidden, and each segment begins within a frame of the picture's."""
    source = film(tmp_path / "film.mkv")
    made = proven(source, tmp_path / "proven.mp4", audio="aac")
    package = packaged(tmp_path / "out", tracks_of(made))
    check_package(tmp_path / "out", package)
    (video,), (sound,) = package.of(PlayedKind.VIDEO), package.of(PlayedKind.AUDIO)
    assert (sound.codec, sound.channels, sound.sample_rate_hz, sound.frame_rate) == ("mp4a.40.2", 1, 48_000, None)
    assert decoded(tmp_path / "out/audio.mp4", 0)[:-1] == decoded(made, 1)[:-1]
    assert numbers(boxes((tmp_path / "out/audio.mp4").read_bytes(), "elst")[0], "Ii", 8) == (0, AAC_SAMPLES)
    for picture, heard in zip(video.segments, sound.segments, strict=True):
        late = heard.start_ticks * sound.time_base - picture.start_ticks * video.time_base
        assert 0 <= late < AAC_SAMPLES * sound.time_base


def test_copied_sound_with_uneven_times_keeps_them(tmp_path: Path) -> None:
    """The time between packets of AC-3 may differ from the duration that a demuxer reads in each of them."""
    with (
        av.open(str(film(tmp_path / "film.mkv", 3, codec="ac3"))) as before,
        av.open(str(tmp_path / "u.mp4"), "w") as after,
    ):
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and packet.pts is not None and packet.dts is not None:
                if packet.stream.type == "audio":
                    packet.pts = packet.dts = packet.pts + packet.pts // 32 % 2 * 3
                packet.stream = streams[packet.stream.index]
                after.mux(packet)
    made = proven(tmp_path / "u.mp4", tmp_path / "proven.mp4", audio="copy")
    package = packaged(tmp_path / "out", tracks_of(made))
    check_package(tmp_path / "out", package)
    with av.open(str(made)) as one, av.open(str(tmp_path / "out/audio.mp4")) as other:
        times = [[each.pts for each in file.demux(file.streams.audio[0]) if each.size] for file in (one, other)]
    assert times[0] == times[1]
    assert len({after - before for before, after in pairwise(times[0])}) > 1
    assert package.of(PlayedKind.AUDIO)[0].codec == "ac-3"


@pytest.mark.parametrize("late", ["video", "audio"])
def test_a_track_that_begins_late_stays_late(tmp_path: Path, late: str) -> None:
    """The first segment of a late track begins at the track's own time."""
    source = proven(film(tmp_path / "film.mkv", 3), tmp_path / "film.mp4")
    with av.open(str(source)) as before, av.open(str(tmp_path / "late.mp4"), "w") as after:
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and packet.pts is not None and packet.dts is not None:
                ticks = int(Fraction(1, 2) / packet.time_base) if packet.stream.type == late else 0
                packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
                packet.stream = streams[packet.stream.index]
                after.mux(packet)
    package = packaged(tmp_path / "out", tracks_of(proven(tmp_path / "late.mp4", tmp_path / "proven.mp4")))
    check_package(tmp_path / "out", package)
    starts = {track.given.kind.value: track.segments[0].start_ticks * track.time_base for track in package.tracks}
    other = {"video": "audio", "audio": "video"}[late]
    assert abs(starts[late] - starts[other] - Fraction(1, 2)) < 2 * Fraction(AAC_SAMPLES, 48_000)
    decoded_at = decoded(tmp_path / f"out/{late}.mp4", 0)[0][0]
    assert decoded_at * next(t.time_base for t in package.tracks if t.given.name == late) >= starts[late]


def test_hdr_is_stated_as_the_proven_file_states_it(tmp_path: Path) -> None:
    """The range, the codec string and the sample entry are those of the proven file."""
    made = proven(make_clip(tmp_path / "film.mkv", WIDE), tmp_path / "proven.mp4", codec="hevc")
    (track,) = packaged(tmp_path / "out", tracks_of(made)).tracks
    assert (track.video_range, track.codec) == ("PQ", "hvc1.2.4.L30.90")
    both = [boxes(path.read_bytes(), "stsd") for path in (made, tmp_path / "out/video.mp4")]
    assert both[0] == both[1]


@pytest.mark.parametrize("codec", ["h264", "av1"])
@pytest.mark.parametrize("clip", [NTSC, WIDE], ids=["8 bits", "10 bits"])
def test_codec_strings_are_those_of_ffmpegs_manifest(tmp_path: Path, codec: str, clip: Clip) -> None:
    """FFmpeg's DASH muxer describes the proven file with the same strings."""
    made = proven(make_clip(tmp_path / "film.mkv", clip), tmp_path / "proven.mp4", codec=codec)
    (track,) = packaged(tmp_path / "out", tracks_of(made)).tracks
    with av.open(str(made)) as before, av.open(str(tmp_path / "oracle.mpd"), "w", format="dash") as after:
        stream = after.add_mux_stream(codec, width=64, height=48, time_base=before.streams[0].time_base)
        copy_parameters(stream, before.streams[0])
        structures(stream)[1].codec_tag = structures(before.streams[0])[1].codec_tag
        for packet in before.demux(before.streams[0]):
            if packet.size:
                packet.stream = stream
                after.mux(packet)
    (stated,) = re.findall('codecs="(.*?)"', (tmp_path / "oracle.mpd").read_text())
    assert stated.lower() == track.codec.lower()


def test_a_keyframes_bytes_suffice_for_its_picture(tmp_path: Path) -> None:
    """The stated first bytes of a segment, after the header, decode to the segment's first picture."""
    made = proven(make_clip(tmp_path / "film.mp4", NTSC), tmp_path / "proven.mp4")
    (track,) = packaged(tmp_path / "out", tracks_of(made)).tracks
    data = (tmp_path / "out/video.mp4").read_bytes()
    whole = dict(decoded(made, 0))
    for segment in track.segments:
        part = data[segment.offset_bytes : segment.offset_bytes + segment.keyframe_bytes]
        (tmp_path / "key.mp4").write_bytes(data[: track.header_bytes] + part)
        with av.open(str(tmp_path / "key.mp4")) as container:
            (frame, *_) = container.decode(video=0)
        assert frame.to_ndarray().tobytes() == whole[segment.start_ticks]


def test_text_becomes_webvtt(tmp_path: Path) -> None:
    """Cues keep times and words, and no word can be taken for markup."""
    cues = [Cue(Fraction(1, 2), b"a < b & c --> d", Fraction(1)), Cue(Fraction(2), b"zwei\nZeilen", Fraction(3, 4))]
    source = with_subtitles(make_clip(tmp_path / "film.mp4", NTSC), tmp_path / "text.mkv", [("subrip", "eng", cues)])
    package = packaged(tmp_path / "out", tracks_of(proven(source, tmp_path / "proven.mp4")))
    check_package(tmp_path / "out", package)
    (text,) = package.of(PlayedKind.TEXT)
    assert (tmp_path / "out/text.vtt").read_text() == (
        "WEBVTT\n\n00:00:00.500 --> 00:00:01.500\na &lt; b &amp; c --&gt; d\n"
        "\n00:00:02.000 --> 00:00:02.750\nzwei\nZeilen\n"
    )
    assert [(each.start_ticks, each.size_bytes) for each in text.segments] == [
        (0, (tmp_path / "out/text.vtt").stat().st_size)
    ]


def test_renditions_with_other_keyframes_are_refused(tmp_path: Path) -> None:
    """The error names both tracks."""
    source = make_clip(tmp_path / "film.mp4", NTSC)
    one = tracks_of(proven(source, tmp_path / "a.mp4"), "a")
    other = tracks_of(proven(source, tmp_path / "b.mp4", keyframe_interval_s=Fraction(3, 2)), "b")
    with pytest.raises(ProofFailed, match="avideo and bvideo: segment 2"):
        packaged(tmp_path / "out", [*one, *other])


def test_open_gops_are_refused(tmp_path: Path) -> None:
    """A keyframe with earlier pictures after it cannot begin a segment."""
    clip = replace(
        NTSC, encoder="libx265", keyframes=frozenset(), options=(("x265-params", "log-level=0:keyint=24:open-gop=1"),)
    )
    with pytest.raises(ProofFailed, match="the keyframe at tick 24024 lies between"):
        packaged(tmp_path / "out", tracks_of(make_clip(tmp_path / "film.mp4", clip)))
