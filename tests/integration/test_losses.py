"""Each difference from the source has a warning in the report."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.packet import Packet
from av.video.frame import VideoFrame

from .local_jobs import published, remuxed

pytestmark = pytest.mark.timeout(120)

WIDTH, HEIGHT, FPS, FRAMES = 160, 96, 24, 12
RATE, SAMPLES = 48_000, 1024


def picture(number: int) -> VideoFrame:
    """Return an RGB picture on which something moves."""
    pixels = np.full((HEIGHT, WIDTH, 3), (200, 60, 10 * number), np.uint8)
    pixels[10 : 40 + number, 5 * number : 5 * number + 40] = (20, 220, 90)
    frame = VideoFrame.from_ndarray(pixels, format="rgb24")
    frame.pts, frame.time_base = number, Fraction(1, FPS)
    return frame


def film(
    path: Path,
    *,
    codec: str = "ffv1",
    pix_fmt: str = "yuv420p",
    channels: str | None = None,
    cues_ms: tuple[tuple[int, int], ...] = (),
) -> None:
    """Write a film, with sound if ``channels`` names a layout, and with subtitles at ``cues_ms`` (begin, duration)."""
    noise = np.random.default_rng(7)
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream(codec, rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, pix_fmt
        sound: Any = None if channels is None else output.add_stream("aac", rate=RATE, layout=channels)
        text: Any = output.add_mux_stream("subrip") if cues_ms else None
        for number in range(FRAMES):
            output.mux(stream.encode(picture(number).reformat(format=pix_fmt)))
        output.mux(stream.encode(None))
        for number in range(24 if sound is not None else 0):
            shape = (1, SAMPLES * sound.layout.nb_channels)
            samples = np.repeat(noise.normal(0, 0.1, (1, SAMPLES)), sound.layout.nb_channels, axis=1)
            frame = AudioFrame.from_ndarray(samples.astype(np.float32).reshape(shape), format="flt", layout=channels)
            frame.sample_rate, frame.pts, frame.time_base = RATE, number * SAMPLES, Fraction(1, RATE)
            output.mux(sound.encode(frame))
        if sound is not None:
            output.mux(sound.encode(None))
        for number, (begin_ms, duration_ms) in enumerate(cues_ms):
            cue: Any = Packet(f"cue {number}".encode())
            cue.stream, cue.time_base = text, Fraction(1, 1000)
            cue.pts = cue.dts = begin_ms
            cue.duration = duration_ms
            output.mux(cue)


def test_rgb_becomes_yuv_by_the_matrix_that_the_output_states(tmp_path: Path) -> None:
    """Colours stay the same, and the change of format is reported."""
    film(tmp_path / "in.mkv", pix_fmt="bgr0")
    report, verdict = published(tmp_path / "in.mkv", tmp_path / "out.mp4")

    assert verdict.exact, verdict.lines()
    (warning,) = report.warnings
    assert warning.checks == ("metadata.pixel-format", "metadata.range", "metadata.matrix")


@pytest.mark.parametrize("pix_fmt", ["nv12", "gray", "yuv411p", "uyvy422"])
def test_a_format_that_holds_every_sample_is_no_loss(tmp_path: Path, pix_fmt: str) -> None:
    """Another layout or finer chroma needs no warning."""
    film(tmp_path / "in.nut", codec="rawvideo", pix_fmt=pix_fmt)
    report, verdict = published(tmp_path / "in.nut", tmp_path / "out.mkv")

    assert verdict.exact, verdict.lines()
    assert not report.warnings


@pytest.mark.parametrize("name", ["out.mp4", "out.mkv", "out.ts"])
def test_eight_channels_are_encoded(tmp_path: Path, name: str) -> None:
    """Encoding must not use PyAV's planes, which read past the end with eight channels."""
    film(tmp_path / "in.mkv", channels="7.1")
    report, verdict = published(tmp_path / "in.mkv", tmp_path / name, audio="opus")

    assert verdict.exact, verdict.lines()
    assert not report.warnings


def test_sound_that_was_not_asked_for_is_a_choice_and_no_warning(tmp_path: Path) -> None:
    """The report lists the choice, which explains why ``verify``'s check finds no sound."""
    film(tmp_path / "in.mkv", channels="stereo")
    report, verdict = published(tmp_path / "in.mkv", tmp_path / "out.mkv", audio="none", pix_fmt="yuv444p")

    assert verdict.exact, verdict.lines()
    assert not report.warnings
    assert [choice.code for choice in report.choices] == ["pixel-format", "audio-left-out"]
    assert [one.name for one in verdict.checks if one.declared] == ["tracks.audio"]


def test_a_track_without_packets_is_named_where_it_is_dropped(tmp_path: Path) -> None:
    """mp4 keeps no empty track; Matroska does."""
    film(tmp_path / "some.mkv", channels="stereo")
    remuxed(tmp_path / "some.mkv", tmp_path / "in.mkv", lambda packet: packet.stream.type == "video")
    for name, warned in (("out.mp4", ["audio-dropped"]), ("out.mkv", [])):
        report, verdict = published(tmp_path / "in.mkv", tmp_path / name)
        assert verdict.exact, verdict.lines()
        assert [warning.code for warning in report.warnings] == warned


def test_cues_that_overlap_are_named_where_one_is_shown_at_a_time(tmp_path: Path) -> None:
    """While two cues overlap, mp4 shows the lines of both in a third cue; Matroska keeps the two cues unchanged."""
    film(tmp_path / "in.mkv", cues_ms=((0, 200), (100, 200), (400, 50)))
    for name, warned in (("out.mp4", ["subtitle-converted", "subtitle-overlap"]), ("out.mkv", [])):
        report, verdict = published(tmp_path / "in.mkv", tmp_path / name)
        assert verdict.exact, verdict.lines()
        assert [warning.code for warning in report.warnings] == warned
    assert report.warnings == ()
    with av.open(str(tmp_path / "out.mp4")) as container:
        cues = [packet for packet in container.demux(container.streams.subtitles[0]) if packet.size > len(b"\0\0")]
    spans = [(round((each.pts or 0) * Fraction(each.time_base) * 1000), bytes(each).count(b"\n")) for each in cues]
    assert spans == [(0, 0), (100, 1), (200, 0), (400, 0)]


def test_subtitles_of_an_unknown_codec_are_named_and_verified(tmp_path: Path) -> None:
    """Because of a damaged sample entry, FFmpeg has no codec for the track."""
    film(tmp_path / "in.mkv", cues_ms=((0, 100), (200, 100)))
    published(tmp_path / "in.mkv", tmp_path / "whole.mp4")
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes((tmp_path / "whole.mp4").read_bytes().replace(b"tx3g", b"\0\0\0\0"))
    report, verdict = published(damaged, tmp_path / "out.mp4")

    assert verdict.exact, verdict.lines()
    assert report.warnings
