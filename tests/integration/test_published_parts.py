"""Parts of films: what a job publishes of them, ``verify`` calls exact."""

from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..fuzz.corpus import with_sound
from .published import published

pytestmark = pytest.mark.timeout(60)

CLUSTER = b"\x1f\x43\xb6\x75"
"""The name of Matroska's clusters."""


def remuxed(source: Path, target: Path, first_packet: int) -> Path:
    """Copy a file's packets from one on, as a recording that was begun in the middle."""
    with av.open(str(source)) as before, av.open(str(target), "w") as after:
        stream = after.add_stream_from_template(before.streams.video[0])
        for number, packet in enumerate(before.demux(video=0)):
            if number >= first_packet and packet.size:
                packet.stream = stream
                after.mux(packet)
    return target


@pytest.mark.parametrize(("start_s", "end_s", "frames"), [(None, Fraction(1, 2), 11), (Fraction(2, 5), None, 33)])
def test_a_part_counts_from_the_first_packet(
    start_s: Fraction | None, end_s: Fraction | None, frames: int, tmp_path: Path
) -> None:
    """Leading pictures that never decode still take their time, for the job and for verify alike."""
    clip = Clip(
        times=constant_times(50, step=1),
        time_base=Fraction(1, 25),
        encoder="mpeg2video",
        options=(("bf", "2"), ("b_strategy", "0")),
        keyframes=frozenset({0, 9, 18}),
    )
    whole = make_clip(tmp_path / "whole.ts", clip)
    source = remuxed(whole, tmp_path / "open.ts", first_packet=7)
    report, verdict = published(source, tmp_path / "out.mkv", start_s=start_s, end_s=end_s)
    assert (report.frames, verdict.failures) == (frames, ())


@pytest.mark.parametrize("extension", ["mkv", "mp4", "ts"])
def test_a_part_behind_the_end_of_the_sound(extension: str, tmp_path: Path) -> None:
    """Where the part has no sound, an output without sound is right, and one that lost some is not."""
    source = tmp_path / "short.mkv"
    film = with_sound(tmp_path / "film.mkv", {})
    with av.open(str(film)) as before, av.open(str(source), "w") as after:
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and (
                packet.stream.type == "video" or (packet.pts or 0) * packet.time_base < Fraction(3, 10)
            ):
                packet.stream = streams[packet.stream_index]
                after.mux(packet)
    output = tmp_path / f"out.{extension}"
    _, verdict = published(source, output, start_s=Fraction(1, 2))
    assert verdict.failures == ()
    if extension != "mp4":
        assert "audio.0.payload" in {each.name for each in verify(film, output, start_s=Fraction(1, 2)).failures}


def test_a_part_that_begins_among_repeated_pictures(tmp_path: Path) -> None:
    """A film whose first cluster is there four times: pictures of one time are spread, and the part has its own."""
    clip = make_clip(tmp_path / "clip.mkv", Clip(times=constant_times(25), options=(("bf", "0"),)))
    film, clusters = tmp_path / "film.mkv", {"cluster_time_limit": "300"}
    with av.open(str(clip)) as before, av.open(str(film), "w", container_options=clusters) as after:
        stream = after.add_stream_from_template(before.streams.video[0])
        for packet in before.demux():
            if packet.size:
                packet.stream = stream
                after.mux(packet)
    data = film.read_bytes()
    first = data.index(CLUSTER)
    second = data.index(CLUSTER, first + 1)
    film.write_bytes(data[:second] + 3 * data[first:second] + data[second:])
    assert published(film, tmp_path / "out.mp4", start_s=Fraction(3, 10))[1].failures == ()


def test_a_part_without_the_sound_that_is_encoded(tmp_path: Path) -> None:
    """mp4 keeps no empty track, of an encoded one neither: a warning says so."""
    source = tmp_path / "late.mkv"
    film = with_sound(tmp_path / "film.mkv", {}, "pcm_s16le")
    with av.open(str(film)) as before, av.open(str(source), "w") as after:
        streams = {each.index: after.add_stream_from_template(each) for each in before.streams}
        for packet in before.demux():
            if packet.size and (packet.stream.type == "video" or (packet.pts or 0) * packet.time_base > Fraction(1, 2)):
                packet.stream = streams[packet.stream_index]
                after.mux(packet)
    report, verdict = published(source, tmp_path / "out.mp4", end_s=Fraction(3, 10), audio="aac")
    assert "audio-dropped" in {warning.code for warning in report.warnings}
    assert verdict.failures == ()
