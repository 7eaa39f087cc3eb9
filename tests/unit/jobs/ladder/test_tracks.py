"""The tracks of finished renditions that a package takes."""

from fractions import Fraction
from pathlib import Path

import av
import pytest

from codecfleet.actors.media.headers import bcp_47, iso_639_2
from codecfleet.jobs.ladder.tracks import given_tracks
from codecfleet.jobs.package.values import PlayedKind
from codecfleet.testing.clips import Clip, constant_times, make_clip


def with_sound(picture: Path, path: Path, sounds: dict[str, str]) -> Path:
    """Add silent sound tracks to a clip; ``sounds`` has the title and the language of each."""
    with av.open(str(picture)) as source, av.open(str(path), "w") as sink:
        video = sink.add_stream_from_template(source.streams.video[0])
        tracks = []
        for title, language in sounds.items():
            track = sink.add_stream("aac", rate=48000)
            track.metadata.update({"title": title, "language": language} if language else {"title": title})
            tracks.append(track)
        for packet in source.demux(0):
            if packet.size:
                packet.stream = video
                sink.mux(packet)
        for track in tracks:
            frame = av.AudioFrame(format="fltp", layout="stereo", samples=1024)
            frame.rate, frame.pts, frame.time_base = 48000, 0, Fraction(1, 48000)
            for plane in frame.planes:
                plane.update(bytes(plane.buffer_size))
            sink.mux(track.encode(frame))
            sink.mux(track.encode(None))
    return path


def test_pictures_of_all_and_sound_of_the_first(tmp_path: Path) -> None:
    """Sound is taken from the first file only; languages are BCP 47."""
    clip = make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(5)))
    high = with_sound(clip, tmp_path / "high.mp4", {"Film": "ger", "": "eng", "Talk": ""})
    low = with_sound(clip, tmp_path / "low.mp4", {"Film": "ger"})
    tracks = given_tracks({"high": high, "low": low})
    assert [(each.name, each.path, each.stream, each.kind) for each in tracks] == [
        ("high", high, 0, PlayedKind.VIDEO),
        ("low", low, 0, PlayedKind.VIDEO),
        ("sound-1", high, 1, PlayedKind.AUDIO),
        ("sound-2", high, 2, PlayedKind.AUDIO),
        ("sound-3", high, 3, PlayedKind.AUDIO),
    ]
    assert [each.language for each in tracks[2:]] == ["de", "en", None]


@pytest.mark.parametrize(("code", "tag"), [("ger", "de"), ("deu", "de"), ("eng", "en"), ("gsw", "gsw"), ("und", "und")])
def test_a_language_tag_has_the_shortest_code(code: str, tag: str) -> None:
    """Codes from both sets of ISO 639-2 become the two-letter code, if the language has one."""
    assert bcp_47(code) == tag
    assert iso_639_2(tag) in {code, "ger"}
