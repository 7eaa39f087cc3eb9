"""How long pictures last in the output: each sample, the last picture, the track and the file, as in the source."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream

from codecfleet.errors import InputDamaged
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip, picture

from ..boxes import VideoTrack
from .local_jobs import spec_of, transcode

MILLISECOND = Fraction(1, 1000)
SLIDES = (0, 500, 2000, 3000, 8000)
UNEVEN = (0, 30, 70, 100, 140, 180, 400, 440, 470, 510, 560, 600, 640, 3000)
B_FRAMES = {"x264-params": "bframes=3:b-adapt=0:b-pyramid=normal"}


def make_film(path: Path, times: Sequence[int], *, options: dict[str, str] | None = None, sound: bool = False) -> Path:
    """Write pictures shown at these milliseconds, with durations in their packets up to the last one."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", options={"bf": "0", **(options or {})})
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = MILLISECOND
        tone = container.add_stream("pcm_s16le", rate=8000) if sound else None
        packets = []
        for number, time in enumerate(times[:-1]):
            frame = picture(number, 64, 48)
            frame.pts, frame.time_base = time, MILLISECOND
            packets += stream.encode(frame)
        for packet in [*packets, *stream.encode(None)]:
            assert packet.pts is not None
            packet.duration = times[times.index(packet.pts) + 1] - packet.pts
            container.mux(packet)
        for start in range(0, times[-1] * 8 if tone else 0, 800):
            sound_frame = av.AudioFrame("s16", "mono", 800)
            sound_frame.pts, sound_frame.sample_rate = start, 8000
            assert tone is not None
            container.mux(tone.encode(sound_frame))
    return path


def seconds(path: Path) -> tuple[Fraction, Fraction, int]:
    """Return the video's duration and average rate as FFmpeg reads them, and the number of pictures."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.duration is not None
        assert stream.average_rate is not None
        packets = sum(packet.size > 0 for packet in container.demux(stream))
        return stream.duration * Fraction(stream.time_base or 1), Fraction(stream.average_rate), packets


def output(source: Path, name: str, **options: object) -> Path:
    """Transcode into a file with this name beside the source, verify it, and return it."""
    path = source.with_name(name)
    report = path.with_suffix(".json")
    made = transcode(spec_of(source, path, overwrite=True, preset=4, **options))
    report.write_text(made.model_dump_json())
    assert verify(source, path, report=report).failures == ()
    return path


def check_sums(path: Path, length_s: Fraction) -> VideoTrack:
    """Check that the boxes state one length, that of the presentation, and that no picture is hidden."""
    track = VideoTrack(path)
    timescale, duration = track.media
    assert sum(count * step for count, step in track.steps) == duration == length_s * timescale
    *_, (edit, start) = track.edits
    assert edit == length_s * track.movie_timescale
    assert start >= 0
    assert track.header_durations[0] == sum(each for each, _ in track.edits)
    return track


@pytest.mark.parametrize("name", ["o.mp4", "o.mov"])
def test_a_constant_rate_is_one_run(name: str, tmp_path: Path) -> None:
    """In a film of a constant rate, even with B-frames, every sample lasts one picture, across all cuts."""
    source = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(61), keyframes=frozenset({0, 20, 40})))
    path = output(source, name, segment_s=Fraction(1, 2))
    track = check_sums(path, Fraction(61, 25))
    assert track.steps == [(61, track.media[0] // 25)]
    assert track.edits[0][1] > 0, "pictures are reordered"
    assert seconds(path) == (Fraction(61, 25), 25, 61)


def test_a_part_of_a_constant_rate_is_one_run(tmp_path: Path) -> None:
    """A part that ends within a picture shows it for its nominal duration.

    A part that starts between two pictures begins with the later one.
    """
    source = make_clip(tmp_path / "in.mp4", Clip(times=constant_times(61)))
    path = output(source, "o.mp4", start_s=Fraction(1, 2), end_s=Fraction(157, 100))
    assert check_sums(path, Fraction(27, 25)).steps == [(27, VideoTrack(path).media[0] // 25)]


def test_another_rate_is_one_run(tmp_path: Path) -> None:
    """Pictures at another rate last 1 / rate each, up to the end of the source's last picture."""
    path = output(make_film(tmp_path / "in.mkv", SLIDES), "o.mp4", fps=Fraction(30000, 1001))
    track = check_sums(path, 240 * Fraction(1001, 30000))
    assert track.steps == [(240, 1001 * track.media[0] // 30000)]
    assert seconds(path)[1:] == (Fraction(30000, 1001), 240)


@pytest.mark.parametrize(("times", "bframes"), [(SLIDES, False), (SLIDES, True), (UNEVEN, False), (UNEVEN, True)])
def test_uneven_pictures_last_as_long_as_the_track(times: Sequence[int], bframes: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Each sample lasts as long as its picture, also if durations differ; their sum and average are the track's."""
    source = make_film(tmp_path / "in.mp4", times, options=B_FRAMES if bframes else None)
    path = output(source, "o.mp4")
    track = check_sums(path, times[-1] * MILLISECOND)
    lasting = [later - time for time, later in pairwise(times)]
    steps = [step * 1000 // track.media[0] for count, step in track.steps for _ in range(count)]
    assert len(steps) == len(lasting)
    assert min(lasting) <= min(steps) <= max(steps) <= max(lasting)
    assert seconds(path) == (times[-1] * MILLISECOND, Fraction(len(times) - 1, times[-1]) * 1000, len(times) - 1)


@pytest.mark.parametrize("times", [(*constant_times(61), 2440), UNEVEN])
def test_fragments_follow_each_other(times: Sequence[int], tmp_path: Path) -> None:
    """In a fragmented file each fragment begins when the previous one ends, and together they last as the track."""
    source = make_film(tmp_path / "in.mp4", times, options=B_FRAMES | {"g": "20"})
    path = output(source, "o.mp4", fragmented=True, keyframe_interval_s=Fraction(1, 2))
    at = 0
    for begin, durations in VideoTrack(path).fragments:
        assert begin == at
        at += sum(durations)
    assert at == times[-1] * MILLISECOND * VideoTrack(path).media[0]
    assert seconds(path)[0] == times[-1] * MILLISECOND


def test_sound_beside_pictures_changes_no_step(tmp_path: Path) -> None:
    """Sound that begins with the pictures leaves their steps and the edit list's start unchanged."""
    source = make_film(tmp_path / "in.mkv", (*constant_times(50), 2000), sound=True)
    path = output(source, "o.mp4")
    assert check_sums(path, Fraction(2)).steps == [(50, VideoTrack(path).media[0] // 25)]


@pytest.mark.parametrize("source", ["slides.mp4", "slides.mkv", "reordered.mp4", "reordered.mkv"])
def test_the_last_picture_lasts_as_in_the_source(source: str, tmp_path: Path) -> None:
    """The last slide is shown for the five seconds that its container states, in mp4, Matroska and at a rate."""
    film = make_film(tmp_path / source, SLIDES, options=B_FRAMES if source.startswith("re") else None)
    assert seconds(output(film, "o.mp4"))[0] == 8
    assert seconds(output(film, "at25.mp4", fps=Fraction(25)))[::2] == (8, 200)
    with av.open(str(output(film, "o.mkv"))) as container:
        assert container.duration == 8_000_000
        lasting = {packet.pts: packet.duration for packet in container.demux(video=0) if packet.size}
    assert lasting == {0: 500, 500: 1500, 2000: 1000, 3000: 5000}


def test_a_part_ends_in_the_last_picture(tmp_path: Path) -> None:
    """A part that ends while a picture is shown lasts until then, also at a rate."""
    film = make_film(tmp_path / "in.mp4", SLIDES)
    part = {"start_s": Fraction(1, 2), "end_s": Fraction(5)}
    assert seconds(output(film, "o.mp4", **part))[::2] == (Fraction(9, 2), 3)
    assert seconds(output(film, "at20.mp4", fps=Fraction(20), **part))[::2] == (Fraction(9, 2), 90)
    assert seconds(output(film, "middle.mp4", end_s=Fraction(1)))[::2] == (1, 2)


def test_a_last_picture_of_hours_is_named(tmp_path: Path) -> None:
    """If a container states hours for the last picture, it has its nominal duration and a warning, or is refused."""
    film = make_film(tmp_path / "in.mp4", (*constant_times(50), 20_000_000))
    path = tmp_path / "o.mp4"
    report = transcode(spec_of(film, path, preset=4))
    assert [warning.code for warning in report.warnings] == ["last-duration"]
    assert seconds(path)[0] == 2
    with pytest.raises(InputDamaged, match="5\\.6 hours"):
        transcode(spec_of(film, path, preset=4, overwrite=True, strict=True))
