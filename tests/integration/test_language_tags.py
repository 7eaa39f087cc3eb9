"""BCP 47 languages: read from the source's header, written if the container can hold them, otherwise reported."""

import zlib
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame

from codecfleet.actors.media.headers import iso_639_2
from codecfleet.errors import WouldLose
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.tracks import describe_tracks
from codecfleet.testing.clips import constant_times, picture

from .local_jobs import published

pytestmark = pytest.mark.timeout(120)

TAGS = (None, "pt-BR", "zh-Hans", "und")
TITLES = ("", "", "Dubbing of the city " * 8, "")


def film(path: Path, *, with_language: bool = True) -> Path:
    """Write a Matroska film with three sound tracks that state BCP 47 languages, with or without ISO 639-2 ones."""
    with av.open(str(path), "w", container_options={"write_crc32": "0"}) as output:
        stream: Any = output.add_stream("libx264", rate=25)
        stream.width, stream.height = 64, 48
        sounds: list[Any] = [output.add_stream("aac", rate=48_000, layout="mono") for _ in TAGS[1:]]
        for sound, tag, title, code in zip(sounds, TAGS[1:], TITLES[1:], ("por", "chi", "und"), strict=True):
            # The title is as long as the element that later replaces it, or a part of it.
            sound.metadata["title"] = ("~" * (len(str(tag)) + 1)) if not title else title + "~" * (len(str(tag)) + 4)
            if with_language:
                sound.metadata["language"] = code
        for number, pts in enumerate(constant_times(10, step=1)):
            frame = picture(number, 64, 48)
            frame.pts = pts
            output.mux(stream.encode(frame))
        for sound in sounds:
            for number in range(18):
                wave = AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                wave.sample_rate, wave.pts = 48_000, number * 1024
                output.mux(sound.encode(wave))
        for each in (stream, *sounds):
            output.mux(each.encode(None))
    path.write_bytes(_tagged(path.read_bytes()))
    return path


def _tagged(data: bytes) -> bytes:
    """Put LanguageBCP47 (22 B5 9D) into the space that the names (53 6E) leave."""
    for tag, title in zip(TAGS, TITLES, strict=True):
        if tag is None:
            continue
        stated = b"\x22\xb5\x9d" + bytes((0x80 | len(tag),)) + tag.encode()
        length = len(title) + len(tag) + (4 if title else 1)
        size = bytes((0x80 | length,)) if length < 127 else (0x4000 | length).to_bytes(2)
        name = b"\x53\x6e" + size + title.encode() + b"~" * (length - len(title))
        assert data.count(name) == 1
        kept = b"\x53\x6e" + (0x4000 | len(title)).to_bytes(2) + title.encode() if title else b""
        assert len(kept + stated) == len(name)
        data = data.replace(name, kept + stated)
    return data


def stated(path: Path) -> list[tuple[str | None, str | None]]:
    """Return language and tag of each sound track."""
    return [(t.language, t.language_tag) for t in describe_tracks(str(path)).tracks if t.audio is not None]


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4", "out.mov"])
def test_languages_are_written_again(tmp_path: Path, name: str) -> None:
    """Each track has its own tag, ISO 639-2 code and name; nothing else in the file moved."""
    source, output = film(tmp_path / "in.mkv"), tmp_path / name
    _, verdict = published(source, output)
    assert verdict.exact, verdict.lines()
    assert stated(output) == [("por", "pt-BR"), ("chi", "zh-Hans"), (None, None)]
    data = output.read_bytes()
    for tag in (b"pt-BR", b"zh-Hans"):
        element = b"\x22\xb5\x9d" + bytes((0x80 | len(tag),)) + tag
        assert data.count(element if name == "out.mkv" else b"elng\0\0\0\0" + tag + b"\0") == 1
        assert data.count(tag) == 1
    with av.open(str(output)) as container:
        titles = [track.metadata.get("title", track.metadata.get("name", "")) for track in container.streams.audio]
    assert titles == list(TITLES[1:]) if name == "out.mkv" else ["", TITLES[2], ""]


def test_the_checksum_of_matroskas_tracks_is_right(tmp_path: Path) -> None:
    """The Tracks element begins with a CRC-32 of its remaining bytes."""
    published(film(tmp_path / "in.mkv"), tmp_path / "out.mkv")
    data = (tmp_path / "out.mkv").read_bytes()
    at = data.index(b"\x16\x54\xae\x6b", data.index(b"\x16\x54\xae\x6b") + 1) + 4  # The seek head names it first.
    size_bytes = 9 - data[at].bit_length()
    length = int.from_bytes(data[at : at + size_bytes]) & (1 << 7 * size_bytes) - 1
    content = data[at + size_bytes :][:length]
    assert content[:2] == b"\xbf\x84"
    assert int.from_bytes(content[2:6], "little") == zlib.crc32(content[6:])


def test_languages_come_back_from_mp4_and_mov(tmp_path: Path) -> None:
    """An elng box is read too, even in a fragmented file."""
    source = film(tmp_path / "in.mkv")
    published(source, tmp_path / "a.mp4", fragmented=True)
    published(tmp_path / "a.mp4", tmp_path / "b.mov")
    published(tmp_path / "b.mov", tmp_path / "c.mkv")
    assert stated(tmp_path / "c.mkv")[:2] == [("por", "pt-BR"), ("chi", "zh-Hans")]


def test_a_language_without_three_letters_gets_them(tmp_path: Path) -> None:
    """If Matroska states only BCP 47, its default ISO 639-2 language, English, does not apply."""
    assert stated(film(tmp_path / "in.mkv", with_language=False)) == [
        ("por", "pt-BR"),
        ("chi", "zh-Hans"),
        (None, None),
    ]


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4", "out.mov"])
def test_a_tag_where_iso_639_2_belongs_is_one(tmp_path: Path, name: str) -> None:
    """FFmpeg writes a tag into Matroska's old element; the tag is moved to the right one."""
    source = tmp_path / "in.mkv"
    with av.open(str(source), "w") as output:
        sound: Any = output.add_stream("aac", rate=48_000, layout="mono")
        video: Any = output.add_stream("libx264", rate=25)
        video.width, video.height = 64, 48
        sound.metadata["language"] = "zh-Hant-TW"
        for number in range(5):
            output.mux(video.encode(picture(number, 64, 48)))
        wave = AudioFrame.from_ndarray(np.zeros((1, 9600), np.float32), format="fltp", layout="mono")
        wave.sample_rate = 48_000
        output.mux([*sound.encode(wave), *sound.encode(None), *video.encode(None)])
    assert b"\x22\xb5\x9c\x8azh-Hant-TW" in source.read_bytes()
    _, verdict = published(source, tmp_path / name)
    assert verdict.exact, verdict.lines()
    assert stated(tmp_path / name) == [("chi", "zh-Hant-TW")]


def test_an_undetermined_language_is_none(tmp_path: Path) -> None:
    """The BCP 47 tag "und", which mkvmerge writes if nothing is known, is no loss in any container."""
    source = film(tmp_path / "in.mkv", with_language=False)
    data = source.read_bytes().replace(b"\x22\xb5\x9d\x85pt-BR", b"\x22\xb5\x9d\x83und\xec\x80")
    source.write_bytes(data)
    assert stated(source)[0] == (None, None)


def test_what_a_transport_stream_cannot_state_is_named(tmp_path: Path) -> None:
    """A transport stream holds only three letters, so strict refuses the job."""
    spec = {"source": str(film(tmp_path / "in.mkv")), "output": "a.ts"}
    codes = [warning.code for warning in plan_transcode(TranscodeSpec.model_validate(spec)).warnings]
    assert codes.count("language-shortened") == 2
    with pytest.raises(WouldLose, match="pt-BR"):
        plan_transcode(TranscodeSpec.model_validate(spec | {"strict": True}))


def test_codes_of_three_letters_stay() -> None:
    """A language that only ISO 639-2 or 639-3 has keeps its code; anything else has no code."""
    assert [iso_639_2(tag) for tag in ("yue-Hant", "fr", "EN-us", "x-y", "cel-gaulish")] == [
        *("yue", "fre", "eng"),
        None,
        "cel",
    ]
