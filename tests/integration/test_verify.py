"""``verify`` on real files: correct encodings pass, and each kind of sabotage fails its own check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.stream import Disposition
from numpy.typing import NDArray

from codecfleet.errors import InputNotFound, UsageError
from codecfleet.jobs.verify.job import Verdict, verify

FRAMES, WIDTH, HEIGHT, RATE_HZ = 48, 192, 112, 48_000
TICK = Fraction(1, 24_000)
FRAME_TICKS = 1001


@dataclass(frozen=True, kw_only=True)
class Clip:
    """Contents of a test file: pictures, times, sound, and stated facts."""

    pictures: Sequence[int] = tuple(range(FRAMES))
    times: Sequence[int] = tuple(FRAME_TICKS * n for n in range(FRAMES))
    codec: str = "libx264"
    options: dict[str, str] = field(default_factory=lambda: {"crf": "23", "preset": "veryfast", "g": "12"})
    primaries: int = 1
    audio_codec: str = "aac"
    audio_late_s: Fraction = Fraction(0)
    audio_s: Fraction = Fraction(2)
    language: str = "spa"
    title: str | None = "Sound"
    chapters: bool = True
    size: tuple[int, int] = (WIDTH, HEIGHT)


def picture(number: int) -> NDArray[np.uint8]:
    """Return picture ``number``: a textured gradient with a box that moves across it."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    luma = 60 + columns // 2 + 10 * ((rows // 8 + columns // 8) % 2)
    left = (5 * number) % (WIDTH - 40)
    luma[30:80, left : left + 36] = 220 - 2 * (number % 20)
    return luma.astype(np.uint8)


def sound(codec: str, late_s: Fraction, length_s: Fraction) -> list[av.AudioFrame]:
    """Return a sweep with clicks, ``late_s`` after the pictures, in packets of 1024 samples."""
    moments = np.arange(int(length_s * RATE_HZ)) / RATE_HZ
    wave = 0.4 * np.sin(2 * np.pi * (300 + 200 * moments) * moments) * (0.6 + 0.4 * np.sign(np.sin(40 * moments)))
    frames = []
    for start in range(0, len(wave) - 1023, 1024):
        samples = wave[start : start + 1024].astype(np.float32)[np.newaxis]
        form = "fltp"
        if codec == "pcm_s16le":
            samples, form = (samples * 32767).astype(np.int16), "s16"
        frame = av.AudioFrame.from_ndarray(samples, format=form, layout="mono")
        frame.sample_rate, frame.time_base = RATE_HZ, Fraction(1, RATE_HZ)
        frame.pts = start + int(late_s * RATE_HZ)
        frames.append(frame)
    return frames


def write(path: Path, clip: Clip) -> str:
    """Encode ``clip`` into ``path``."""
    with av.open(str(path), "w", options={"movie_timescale": "24000"} if path.suffix == ".mp4" else {}) as container:
        video = container.add_stream(clip.codec, rate=Fraction(24_000, 1001), options=clip.options)
        video.width, video.height = clip.size
        video.pix_fmt = "yuv420p"
        video.codec_context.time_base = TICK
        video.codec_context.color_primaries = clip.primaries
        audio = container.add_stream(clip.audio_codec, rate=RATE_HZ, layout="mono")
        audio.disposition = int(Disposition.default)
        audio.metadata["language"] = clip.language
        if clip.title:
            audio.metadata["title"] = clip.title
        if clip.chapters:
            container.set_chapters([chapter(1, "First"), chapter(2, "Second")])
        for number, ticks in zip(clip.pictures, clip.times, strict=True):
            frame = av.VideoFrame.from_ndarray(picture(number), format="gray").reformat(*clip.size, format="yuv420p")
            frame.pts, frame.time_base = ticks, TICK
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        for frame in sound(clip.audio_codec, clip.audio_late_s, clip.audio_s):
            container.mux(audio.encode(frame))
        container.mux(audio.encode(None))
    return str(path)


def chapter(number: int, title: str) -> dict[str, object]:
    """Return a chapter of one second in PyAV's form."""
    times = {"start": number - 1, "end": number, "time_base": Fraction(1)}
    return {"id": number, **times, "metadata": {"title": title}}


def raw_copy(source: str, path: Path) -> str:
    """Copy a file's pictures into a raw bitstream."""
    with av.open(source) as left, av.open(str(path), "w", format="h264") as right:
        stream = right.add_stream_from_template(left.streams.video[0])
        for packet in left.demux(video=0):
            if packet.size:
                packet.stream = stream
                right.mux(packet)
    return str(path)


def failures(verdict: Verdict) -> set[str]:
    """Return the names of the failed checks."""
    return {one.name for one in verdict.failures}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the correct clip with which all others are compared."""
    return write(tmp_path_factory.mktemp("source") / "source.mp4", Clip(options={"crf": "12", "bf": "3"}))


def swapped() -> tuple[int, ...]:
    """Return the pictures with two neighbours exchanged."""
    order = list(range(FRAMES))
    order[20], order[21] = order[21], order[20]
    return tuple(order)


def without(n: int) -> dict[str, tuple[int, ...]]:
    """Return the clip's pictures and times without frame ``n``."""
    kept = tuple(m for m in range(FRAMES) if m != n)
    return {"pictures": kept, "times": tuple(FRAME_TICKS * m for m in kept)}


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.mov"])
def test_an_honest_encoding_is_exact(source: str, tmp_path: Path, name: str) -> None:
    """The same frames at the same times pass in every container, allowing milliseconds that are rounded."""
    verdict = verify(Path(source), Path(write(tmp_path / name, Clip())))
    assert failures(verdict) == set()
    assert (verdict.source_frames, verdict.output_frames) == (FRAMES, FRAMES)
    assert verdict.pictures is not None
    assert verdict.pictures.psnr_y_min_db > 30


def test_poor_quality_and_another_size_are_still_the_same_frames(source: str, tmp_path: Path) -> None:
    """Low quality and scaling change how similar frames are, not which frames they are."""
    poor = write(tmp_path / "poor.mp4", Clip(options={"crf": "44", "preset": "ultrafast"}))
    small = write(tmp_path / "small.mp4", Clip(size=(WIDTH // 2, HEIGHT // 2)))
    assert verify(source, poor).exact
    assert verify(source, small).exact


CASES: dict[str, tuple[Clip, set[str]]] = {
    "dropped frame": (Clip(**without(20)), {"frames.count", "times.equal", "pictures.order"}),
    "doubled picture": (Clip(pictures=(*range(21), *range(20, FRAMES - 1))), {"pictures.order"}),
    "swapped pictures": (Clip(pictures=swapped()), {"pictures.order"}),
    "late frame": (
        Clip(times=[FRAME_TICKS * n + 300 * (n == 30) for n in range(FRAMES)]),
        {"times.equal"},
    ),
    "another film": (Clip(pictures=[n + 100 for n in range(FRAMES)]), {"pictures.alike"}),
    "wrong colour": (Clip(primaries=9), {"metadata.primaries"}),
    "late sound": (Clip(audio_late_s=Fraction(1, 20)), {"audio.0.times", "audio.0.offset"}),
    "short sound": (Clip(audio_s=Fraction(1)), {"audio.0.payload"}),
    "wrong language": (Clip(language="fra"), {"metadata.language.audio-0"}),
    "lost title": (Clip(title=None), {"metadata.title.audio-0"}),
    "lost chapters": (Clip(chapters=False), {"metadata.chapters"}),
}


@pytest.mark.parametrize("case", CASES)
def test_sabotage_fails_the_check_meant_for_it(source: str, tmp_path: Path, case: str) -> None:
    """Each kind of deliberate damage fails its own check."""
    clip, expected = CASES[case]
    found = failures(verify(source, write(tmp_path / "bad.mp4", clip)))
    assert expected <= found


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        (Clip(audio_codec="libopus"), set()),
        (Clip(audio_codec="libopus", audio_late_s=Fraction(1, 25)), {"audio.0.offset", "audio.0.sound"}),
        (Clip(audio_codec="libopus", audio_s=Fraction(3, 2)), {"audio.0.duration"}),
    ],
)
def test_encoded_sound_is_held_against_what_was_heard(
    source: str, tmp_path: Path, clip: Clip, expected: set[str]
) -> None:
    """An encoder may change the bytes, but neither start nor duration of audible sound."""
    found = failures(verify(source, write(tmp_path / "opus.mkv", clip)))
    assert expected <= found
    assert bool(found) == bool(expected)


def test_a_part_is_compared_with_that_part_of_the_source(source: str, tmp_path: Path) -> None:
    """With a start and an end, only the frames between them are expected, counted from the first one."""
    part = Clip(pictures=range(12, 36), times=[FRAME_TICKS * n for n in range(24)], audio_s=Fraction(1), chapters=False)
    output = write(tmp_path / "part.mp4", part)
    start_s, end_s = Fraction(12 * 1001, 24_000), Fraction(36 * 1001, 24_000)
    names = failures(verify(source, output, start_s=start_s, end_s=end_s, audio_tracks=()))
    assert not {name for name in names if name.startswith(("frames", "times", "pictures", "stream"))}
    assert "frames.count" in failures(verify(source, output, start_s=start_s))


def test_a_raw_bitstream_is_held_to_its_pictures(source: str, tmp_path: Path) -> None:
    """A raw bitstream has no times: its count, order, likeness, and decoding from each keyframe are checked."""
    verdict = verify(source, raw_copy(write(tmp_path / "a.mp4", Clip()), tmp_path / "raw.h264"))
    by_name = {one.name: one.passed for one in verdict.checks}
    assert failures(verdict) == set()
    assert by_name["times.equal"] is None
    assert by_name["access.keyframes"] is True


def test_progress_counts_every_frame(source: str, tmp_path: Path) -> None:
    """A caller can show the progress of ``verify``."""
    seen: list[int] = []
    report: Callable[[int], None] = seen.append
    verify(source, write(tmp_path / "a.mp4", Clip()), progress=report)
    assert seen == list(range(1, FRAMES + 1))


def test_what_cannot_be_read_is_said_by_name(source: str, tmp_path: Path) -> None:
    """Missing files and invalid reports give an error and no verdict."""
    with pytest.raises(InputNotFound):
        verify(source, str(tmp_path / "nothing.mp4"))
    text = tmp_path / "report.json"
    text.write_text("{}")
    with pytest.raises(UsageError, match=r"report\.json"):
        verify(source, source, report=str(text))
