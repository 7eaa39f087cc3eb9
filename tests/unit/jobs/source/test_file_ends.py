"""Files that are shorter than they state."""

from collections.abc import Callable
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import pytest
from av.video.stream import VideoStream

from codecfleet.actors.media.headers import TrackEnd, track_end
from codecfleet.actors.media.structure import Read, boxes, reader_of
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import picture

FRAGMENTED = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
KINDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "front.mp4": ("libx264", "pcm_s16le", {"movflags": "faststart"}),
    "fragmented.mp4": ("libx264", "pcm_s16le", FRAGMENTED),
    "dash.mp4": ("libx264", "pcm_s16le", {"movflags": "frag_keyframe+empty_moov+dash+global_sidx"}),
    "film.mov": ("libx264", "pcm_s16le", {"movflags": "faststart"}),
    "film.mkv": ("libx264", "pcm_s16le", {}),
    "film.webm": ("libvpx", "libopus", {}),
    "film.ts": ("libx264", "aac", {}),
    "film.m2ts": ("libx264", "aac", {"mpegts_m2ts_mode": "1"}),
    "film.flv": ("libx264", "aac", {}),
    "film.avi": ("mpeg4", "pcm_s16le", {}),
    "film.ivf": ("libvpx", "", {}),
}


def is_whole(source: str) -> bool:
    """Return whether a source ends where it states."""
    return not read_source(source).is_cut_short


def bytes_of(film: Path) -> Read:
    """Return a function that reads a film's bytes."""
    return reader_of(BytesIO(film.read_bytes()))


def make_film(path: Path) -> Path:
    """Write two seconds of pictures and, if the container holds it, sound."""
    video, audio, options = KINDS[path.name]
    form = "mpegts" if path.suffix == ".m2ts" else None
    with av.open(str(path), "w", format=form, container_options=options) as container:
        stream = container.add_stream(video, rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt, stream.codec_context.gop_size = 64, 48, "yuv420p", 10
        sound = container.add_stream(audio, rate=48_000) if audio else None
        for number in range(50):
            container.mux(stream.encode(picture(number, 64, 48)))
            if sound is None:
                continue
            frame = av.AudioFrame("fltp" if audio == "aac" else "s16", "stereo", 1920)
            frame.pts, frame.sample_rate = number * 1920, 48_000
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
            container.mux(sound.encode(frame))
        container.mux(stream.encode(None))
        if sound is not None:
            container.mux(sound.encode(None))
    return path


@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_was_cut_short_is_told_from_a_whole_one(name: str, tmp_path: Path) -> None:
    """A file that was cut anywhere but between two of its parts is recognized by its structure."""
    film = make_film(tmp_path / name)
    assert is_whole(str(film))
    data = film.read_bytes()
    for share in (Fraction(1, 2), Fraction(62, 100), Fraction(9, 10)):
        # A prime instead of a multiple of packet lengths, so that the cut is inside a packet.
        film.write_bytes(data[: int(len(data) * share) // 188 * 188 + 37])
        assert not is_whole(str(film)), f"cut at {float(share)}"


def test_a_table_that_breaks_off_is_no_whole_film(tmp_path: Path) -> None:
    """If a sample table breaks off, FFmpeg reads no further sample, but the edit list states the full length."""
    film = make_film(tmp_path / "front.mp4")
    data = film.read_bytes()
    sizes = data.index(b"stsz") + 4 + 12
    film.write_bytes(data[: sizes + 20 * 4] + b"\xff\xff\xff\xff" + data[sizes + 21 * 4 :])
    reading = read_source(str(film))
    assert (reading.index.packets, reading.is_cut_short) == (20, True)


@pytest.mark.parametrize("into", ["head", "table", "data"])
def test_a_fragment_of_which_a_part_is_there(into: str, tmp_path: Path) -> None:
    """A fragmented file is recognized as cut inside a fragment's table, after it, and in its data."""
    film = make_film(tmp_path / "fragmented.mp4")
    data = film.read_bytes()
    with film.open("rb") as file:
        *_, (_, _, begin, end) = (box for box in boxes(reader_of(file), 0, None) if box.kind == b"moof")
    film.write_bytes(data[: {"head": begin + 20, "table": end, "data": end + 100}[into]])
    assert not is_whole(str(film))


GROWN: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda data: data + bytes(1000),
    "words": lambda data: data + b"downloaded by some program\r\n",
}


@pytest.mark.parametrize("junk", GROWN)
@pytest.mark.parametrize("name", ["front.mp4", "fragmented.mp4", "film.mkv", "film.avi"])
def test_more_than_a_file_is_whole(name: str, junk: str, tmp_path: Path) -> None:
    """Data appended by another program does not make a file truncated."""
    film = make_film(tmp_path / name)
    film.write_bytes(GROWN[junk](film.read_bytes()))
    assert is_whole(str(film))


def test_the_end_of_an_edit_list(tmp_path: Path) -> None:
    """A track of mp4 ends with its edits; in fragments, or for a missing track, the end is unknown."""
    film = make_film(tmp_path / "front.mp4")
    assert track_end(bytes_of(film), 1) == TrackEnd(Fraction(2), Fraction(1, 1000))
    assert track_end(bytes_of(film), 3) is None
    film = make_film(tmp_path / "fragmented.mp4")
    assert track_end(bytes_of(film), 1) is None
