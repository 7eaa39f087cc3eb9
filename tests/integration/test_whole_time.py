"""Times in whole jobs: gaps in sound, a part's timecode and chapters, and the duration in the header."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from numpy.typing import NDArray

from codecfleet.errors import WouldLose
from codecfleet.jobs.source.tracks import describe_tracks
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import lossless, planned, remuxed, verified

RATE, FRAME = 8_000, 160
SECONDS = 3
GAP = range(50, 75)
"""Packets of 20 ms, from 1.0 to 1.5 s."""
Span = tuple[int, int, str | None]


def wave(begin: int, count: int) -> NDArray[np.int16]:
    """Return samples that encode their position; none is silent."""
    return (np.arange(begin, begin + count) % 20_000 + 1).astype(np.int16)


def with_sound(folder: Path, name: str, codec: str, lost: range = GAP, clip: Clip | None = None) -> Path:
    """Return a film of three seconds; packets of sound (20 ms) that begin in ``lost`` are missing."""
    film = make_clip(folder / "film.mp4", clip or Clip(times=constant_times(25 * SECONDS)))
    with av.open(str(film)) as before, av.open(str(folder / name), "w") as after:
        assert isinstance(before, InputContainer)
        assert isinstance(after, OutputContainer)
        pictures = after.add_stream_from_template(before.streams.video[0])
        sound = after.add_stream(codec, rate=RATE, layout="mono")
        assert isinstance(sound, AudioStream)
        packets = [packet for packet in before.demux(before.streams.video[0]) if packet.size]
        for packet in packets:
            packet.stream = pictures
        packets += [packet for packet in _sound_packets(sound) if int(_time_s(packet) * 50) not in lost]
        for packet in sorted(packets, key=_time_s):
            after.mux(packet)
    return folder / name


def _sound_packets(stream: AudioStream) -> Iterator[Packet]:
    for number in range(50 * SECONDS):
        samples = wave(number * FRAME, FRAME)
        frame = AudioFrame.from_ndarray(samples[None, :], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, number * FRAME, Fraction(1, RATE)
        yield from stream.encode(frame)
    yield from stream.encode(None)


def _time_s(packet: Packet) -> Fraction:
    return (packet.dts or 0) * Fraction(packet.time_base or 1)


def samples_of(path: Path) -> NDArray[np.int16]:
    """Return a file's PCM samples in sequence, as a container that counts samples plays them."""
    with av.open(str(path)) as container:
        stream = container.streams.audio[0]
        return np.frombuffer(b"".join(bytes(packet) for packet in container.demux(stream)), np.int16)


@pytest.mark.parametrize(("name", "fragmented"), [("out.mov", False), ("out.mp4", False), ("out.mp4", True)])
def test_a_gap_in_pcm_is_silent_where_samples_are_counted(tmp_path: Path, name: str, *, fragmented: bool) -> None:
    """Sound after the gap keeps its time, and no other sample changes."""
    source, output = with_sound(tmp_path, "in.mkv", "pcm_s16le"), tmp_path / name

    report = lossless(source, output, fragmented=fragmented)

    expected = wave(0, RATE * SECONDS)
    expected[GAP[0] * FRAME : GAP[-1] * FRAME + FRAME] = 0
    assert samples_of(output).tolist() == expected.tolist()
    assert [warning.code for warning in report.warnings] == ["audio-gap-filled"]


def test_a_part_that_begins_in_a_gap_begins_silent(tmp_path: Path) -> None:
    """Sound that resumes after a part's start keeps its time; nothing fills the gap before it."""
    source, output = with_sound(tmp_path, "in.mkv", "pcm_s16le"), tmp_path / "out.mov"

    report = lossless(source, output, start_s=Fraction(6, 5), end_s=Fraction(2))

    start_s = describe_tracks(str(output)).tracks[1].start_s
    assert start_s is not None
    assert abs(start_s - Fraction(3, 10)) <= Fraction(1, 1000)
    assert samples_of(output).tolist() == wave(RATE * 3 // 2, RATE // 2).tolist()
    assert not report.warnings


@pytest.mark.parametrize("name", ["out.mp4", "out.mov", "out.mkv", "out.ts"])
def test_a_gap_in_copied_sound_stays_one(tmp_path: Path, name: str) -> None:
    """Packets after a gap keep their times in every container that has times."""
    source, output = with_sound(tmp_path, "in.mkv", "aac"), tmp_path / name

    assert verified(source, output, lossless(source, output)).exact


def test_hidden_sound_does_not_lengthen_the_header(tmp_path: Path) -> None:
    """An encoder's priming and the padding at the end do not count in Matroska's header, nor in its tags."""
    source = with_sound(tmp_path, "in.mp4", "aac", range(0))
    output = tmp_path / "out.mkv"

    lossless(source, output, audio="opus")

    with av.open(str(output)) as container:
        assert isinstance(container, InputContainer)
        assert container.duration is not None
        stated_s = container.duration / 1_000_000
        of_track = container.streams.audio[0].metadata["DURATION"]
    # The audible length of AAC's last packet is the encoder's choice; Opus would add 26 ms.
    assert SECONDS <= stated_s <= SECONDS + 1024 / RATE
    assert of_track == f"00:00:{stated_s:012.9f}"


def with_chapters(folder: Path, *spans: Span) -> Path:
    """Return a film of three seconds with chapters in milliseconds; None as title is a chapter without one."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(25 * SECONDS)))
    named = [{} if title is None else {"title": title} for _, _, title in spans]
    chapters = [
        {"id": number, "start": start, "end": end, "time_base": Fraction(1, 1000), "metadata": tags}
        for number, ((start, end, _), tags) in enumerate(zip(spans, named, strict=True), 1)
    ]
    return remuxed(film, folder / "in.mkv", prepare=lambda after: after.set_chapters(chapters))


def chapters_of(path: Path) -> list[Span]:
    """Return a file's chapters in milliseconds, with their titles."""
    return [
        (round(each.start_s * 1000), round(each.end_s * 1000), dict(each.tags).get("title", ""))
        for each in describe_tracks(str(path)).chapters
    ]


@pytest.mark.parametrize("name", ["out.mp4", "out.mov", "out.mkv", "out.webm"])
def test_chapters_keep_their_times_and_titles_wherever_they_lie(tmp_path: Path, name: str) -> None:
    """The first chapter need not begin at 0, and chapters need no title; those that mp4 and mov add have none."""
    source = with_chapters(tmp_path, (1000, 1500, "First"), (1500, 2000, None), (2200, 3000, "Third"))
    output = tmp_path / name

    lossless(source, output, strict=True, **({"codec": "vp9"} if name.endswith("webm") else {}))

    found = chapters_of(output)
    assert [each for each in found if each[0] not in (0, 2000)] == [
        (1000, 1500, "First"),
        (1500, 2000, ""),
        (2200, 3000, "Third"),
    ]
    fillers = [(0, 1000, ""), (2000, 2200, "")]
    assert [each for each in found if each[0] in (0, 2000)] == (fillers if name[4:] in ("mp4", "mov") else [])
    assert verify(source, output).exact


def test_chapters_that_cannot_lie_end_to_end_are_named_before_the_work(tmp_path: Path) -> None:
    """``--strict`` refuses mp4, where each chapter ends at the next one's start; Matroska keeps them."""
    source = with_chapters(tmp_path, (0, 2000, "A"), (1000, 1500, "B"))

    with pytest.raises(WouldLose, match="with no length or overlapping the next"):
        planned(source, "out.mp4", strict=True)
    planned(source, "out.mkv", strict=True)


def test_a_part_loses_no_chapter_that_lies_outside_of_it(tmp_path: Path) -> None:
    """An empty chapter before the part does not matter, so that strict jobs continue."""
    source, output = with_chapters(tmp_path, (0, 1000, "A"), (1000, 1000, "B"), (2000, 3000, "C")), tmp_path / "out.mp4"

    report = lossless(source, output, start_s=Fraction(3, 2), strict=True)

    assert not report.warnings
    assert chapters_of(output)[-1] == (480, 1480, "C")
