from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from codecfleet.actors.device.work import WorkContext
from codecfleet.actors.tracks.audio import EncodeAudio, EncodedTrack
from codecfleet.errors import Cancelled, InputUnreadable, Unsupported
from codecfleet.jobs.carry.carry import plan_carry
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.join.side_tracks import SideTracks
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.tracks import describe_tracks

RATE = 48_000
CLICKS_S = (Fraction(1, 2), Fraction(3, 2), Fraction(5, 2))


def write_clicks(
    path: Path, *, start_s: Fraction = Fraction(0), gap: tuple[int, int] = (0, 0), jump_s: Fraction = Fraction(0)
) -> Path:
    """Write three seconds of PCM with a click at each of CLICKS_S, in blocks of 20 ms.

    The first sample is at ``start_s``, and the blocks in [gap) are left out. From block 100 on, the clock is ``jump_s``
    off.
    """
    samples = np.zeros((1, 3 * RATE * 2), dtype=np.int16)
    for click_s in CLICKS_S:
        at = int(click_s * RATE) * 2
        samples[0, at : at + 96] = 20_000
    with av.open(str(path), "w", format="matroska") as file:
        stream = file.add_stream("pcm_s16le", rate=RATE, layout="stereo")
        for block in range(150):
            if gap[0] <= block < gap[1]:
                continue
            frame = av.AudioFrame.from_ndarray(samples[:, block * 1920 : (block + 1) * 1920], "s16", "stereo")
            jump = jump_s if block >= 100 else 0
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = int((start_s + jump) * RATE) + block * 960
            file.mux(stream.encode(frame))
    return path


def encode(path: Path, codec: str, **options: Any) -> EncodedTrack:
    """Encode the first audio track of a file."""
    work = EncodeAudio(job="job", label="audio", source=str(path), stream_index=0, codec=codec, **options)
    return work.run(WorkContext())


def heard(path: Path) -> tuple[NDArray[np.float64], Fraction]:
    """Decode a file's sound; return the loudness of each sample, and when the first is heard."""
    parts: list[tuple[Fraction, NDArray[np.float64]]] = []
    with av.open(str(path)) as file:
        resampler = av.AudioResampler("fltp", "mono", RATE)
        for frame in file.decode(audio=0):
            at_s = (frame.pts or 0) * Fraction(frame.time_base or 1)
            loud = [np.abs(ready.to_ndarray()[0]).astype(np.float64) for ready in resampler.resample(frame)]
            parts += [(at_s, loudness) for loudness in loud]
    first_s = parts[0][0]
    line = np.zeros(int((parts[-1][0] - first_s) * RATE) + 4 * RATE)
    for at_s, loudness in parts:
        at = int((at_s - first_s) * RATE)
        line[at : at + len(loudness)] = loudness
    return line, first_s


def click_times(path: Path) -> list[float]:
    """Return when each click begins, in seconds."""
    line, first_s = heard(path)
    loud = np.flatnonzero(line > 0.25)
    starts = [int(n) for k, n in enumerate(loud) if k == 0 or n - loud[k - 1] > RATE // 10]
    return [start / RATE + float(first_s) for start in starts]


def wrap(
    source: Path, output: Path, codec: str, origin_s: Fraction = Fraction(0), *, channels: int | None = None
) -> None:
    """Write only the encoded sound of ``source`` into ``output``."""
    mixed = {None: "keep", 1: "mono", 2: "stereo"}[channels]
    spec = TranscodeSpec(source=str(source), output=str(output), audio=codec, audio_channels=mixed)  # type: ignore[arg-type]
    container = container_for(str(output))
    plan = plan_carry(describe_tracks(str(source)), spec, container)
    tracks = {index: work.run(WorkContext()) for index, work in plan.audio_works("job", str(source)).items()}
    options = plan.muxer_options(Fraction(1, RATE))
    with (
        av.open(str(output), "w", format=container.muxer, container_options=options) as file,
        SideTracks(str(source), plan, origin_s=origin_s, encoded=tracks) as sides,
    ):
        sides.add_to(file)
        for _, packet in sides.packets():
            file.mux(packet)


def assert_clicks(path: Path, expected_s: Sequence[Fraction]) -> None:
    """Check that every click is at its time, within 1 ms and a lossy codec's smear before an attack."""
    found = click_times(path)
    assert len(found) == len(expected_s)
    assert all(abs(a - float(b)) <= 0.0015 for a, b in zip(found, expected_s, strict=True)), found


@pytest.mark.parametrize(
    ("codec", "extension"), [("aac", "mp4"), ("aac", "mkv"), ("aac", "mov"), ("opus", "mp4"), ("opus", "webm")]
)
@pytest.mark.parametrize("start_s", [Fraction(0), Fraction(7, 10)])
def test_sound_is_heard_when_it_was(tmp_path: Path, codec: str, extension: str, start_s: Fraction) -> None:
    """Neither an encoder's priming nor a late start moves a click."""
    source = write_clicks(tmp_path / "in.mkv", start_s=start_s)
    wrap(source, tmp_path / f"out.{extension}", codec)

    # A late track's priming that cannot be hidden is silent, so clicks stay at their times.
    assert_clicks(tmp_path / f"out.{extension}", [start_s + click_s for click_s in CLICKS_S])


@pytest.mark.parametrize("codec", ["aac", "opus"])
def test_a_gap_is_filled_with_silence(tmp_path: Path, codec: str) -> None:
    """Sound after a gap stays at its time, and the track has no hole."""
    source = write_clicks(tmp_path / "in.mkv", gap=(40, 60))
    wrap(source, tmp_path / "out.mp4", codec)

    assert_clicks(tmp_path / "out.mp4", CLICKS_S)
    track = encode(source, codec)
    assert (np.diff(track.pts) == track.frame_samples).all()


def write_reset(folder: Path) -> Path:
    """Write a transport stream whose clock steps back from 93 s to 10 s after three of its six seconds."""
    parts = []
    for number, start_s in enumerate((Fraction(90), Fraction(10))):
        clicks = write_clicks(folder / f"{number}.mkv", start_s=start_s)
        wrap(clicks, folder / f"{number}.ts", "aac")
        parts.append((folder / f"{number}.ts").read_bytes())
    path = folder / "reset.ts"
    path.write_bytes(b"".join(parts))
    return path


def test_a_clock_that_steps_back_is_repaired(tmp_path: Path) -> None:
    """After a reset sound follows the sound before it, encoded or copied."""
    source = write_reset(tmp_path)
    track = encode(source, "opus")

    assert track.clock_resets == 1
    heard_s = Fraction(int(track.durations.sum()) - track.initial_padding - track.trailing_padding, RATE)
    assert abs(heard_s - 6) < Fraction(1, 10)

    wrap(source, tmp_path / "copied.mp4", "copy", origin_s=Fraction(90))
    assert len(click_times(tmp_path / "copied.mp4")) == 6
    assert click_times(tmp_path / "copied.mp4")[-1] == pytest.approx(5.5, abs=0.1)


def test_a_leap_of_a_day_is_a_reset(tmp_path: Path) -> None:
    """A leap by a day is a reset, not a day of silence."""
    source = write_clicks(tmp_path / "in.mkv", start_s=Fraction(100), jump_s=Fraction(86_400))
    track = encode(source, "aac")

    assert track.clock_resets == 1
    assert int(track.durations.sum()) - track.initial_padding - track.trailing_padding == 3 * RATE


def test_a_part_is_cut_to_the_sample(tmp_path: Path) -> None:
    """Start and end of a part are exact to the sample, not to a packet."""
    source = write_clicks(tmp_path / "in.mkv")
    track = encode(source, "opus", start_s=Fraction(12_345, 10_000), end_s=Fraction(27, 10))

    assert int(track.pts[0]) + track.initial_padding == 59_256
    end = int(track.pts[-1] + track.durations[-1]) - track.trailing_padding
    assert end == int(Fraction(27, 10) * RATE)


def test_cancelling_stops_an_encode(tmp_path: Path) -> None:
    """A cancelled encode ends at the next frame."""
    context = WorkContext()
    context.cancel()
    work = EncodeAudio(job="j", label="a", source=str(write_clicks(tmp_path / "in.mkv")), stream_index=0, codec="aac")

    with pytest.raises(Cancelled):
        work.run(context)


def test_what_cannot_be_encoded_is_said(tmp_path: Path, shared_media: Path) -> None:
    """An unknown target and an unreadable track have different errors."""
    with pytest.raises(Unsupported, match="no audio encoder for flac"):
        encode(write_clicks(tmp_path / "in.mkv"), "flac")
    broken = EncodeAudio(
        job="j", label="a", source=str(shared_media / "mp4_missing_audio_stsd.mp4"), stream_index=1, codec="aac"
    )
    with pytest.raises(InputUnreadable, match="audio track 1"):
        broken.run(WorkContext())
