"""Ladders with several groups of sound: other codecs, other channels, and what each group shares."""

import asyncio
import json
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame

from codecfleet import Fleet, LadderReport, LadderSpec
from codecfleet.cli.app import run
from codecfleet.jobs.package.names import MASTER
from codecfleet.jobs.package.values import PlayedKind
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import spec_of, transcode

RATE_HZ = 48_000
SOUNDS = """
codec = "h264"
preset = 1
keyframe_interval = 1

[[sound]]
name = "full"
audio = "aac"

[[sound]]
name = "stereo"
audio = "aac"
audio_channels = "stereo"

[[sound]]
name = "dolby"
audio = "copy"

[[sound]]
name = "opus"
audio = "opus"
audio_bitrate = "96k"

[[sound]]
name = "again"
audio = "aac"

[[rendition]]
name = "high"
scale = "48p"

[[rendition]]
name = "low"
scale = "32p"
"""


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of two seconds with English AC-3 in 5.1 and German AAC in mono."""
    folder = tmp_path_factory.mktemp("film")
    clip = make_clip(folder / "clip.mp4", Clip(times=constant_times(50)))
    path = folder / "film.mkv"
    with av.open(str(clip)) as source, av.open(str(path), "w") as sink:
        video = sink.add_stream_from_template(source.streams.video[0])
        tracks = []
        for codec, layout, language in (("ac3", "5.1(side)", "eng"), ("aac", "mono", "ger")):
            track = sink.add_stream(codec, rate=RATE_HZ, layout=layout)
            track.metadata["language"] = language
            tracks.append(track)
        for packet in source.demux(0):
            if packet.size:
                packet.stream = video
                sink.mux(packet)
        for track in tracks:
            count = track.layout.nb_channels
            for number in range(60):
                at = np.arange(number * 1536, (number + 1) * 1536) / RATE_HZ
                wave = np.stack([0.2 * np.sin(2 * np.pi * (200 + 100 * each) * at) for each in range(count)])
                frame = AudioFrame.from_ndarray(wave.astype(np.float32), format="fltp", layout=track.layout.name)
                frame.sample_rate, frame.pts, frame.time_base = RATE_HZ, number * 1536, Fraction(1, RATE_HZ)
                sink.mux(track.encode(frame))
            sink.mux(track.encode(None))
    return path


def ladder(film: Path, folder: Path, text: str = SOUNDS, **options: object) -> LadderReport:
    """Make a ladder in a folder."""
    preset = folder / "own.toml"
    preset.write_text(text)
    given = {"packaged_s": Fraction(1)} | options
    spec = LadderSpec(source=film, output=folder / "ladder", preset=preset, **given)

    async def run() -> LadderReport:
        async with Fleet(pool=LocalPool(2)) as fleet:
            return await fleet.ladder(spec)

    return asyncio.run(run())


def payloads(path: Path, number: int) -> list[bytes]:
    """Return the packets of a file's sound track."""
    with av.open(str(path)) as opened:
        return [bytes(each) for each in opened.demux(opened.streams.audio[number]) if each.size]


def test_each_group_has_the_sound_that_transcode_makes(film: Path, tmp_path: Path) -> None:
    """A group shares what an earlier one has in the same codec, and one that adds nothing is left out."""
    report = ladder(film, tmp_path)
    sounds = report.package.of(PlayedKind.AUDIO)
    assert [(each.given.language, each.codec, each.channels, each.given.groups) for each in sounds] == [
        ("en", "mp4a.40.2", 6, ("full",)),
        # German is mono: stereo would add nothing, and the copy is AAC too.
        ("de", "mp4a.40.2", 1, ("full", "stereo", "dolby")),
        ("en", "mp4a.40.2", 2, ("stereo",)),
        ("en", "ac-3", 6, ("dolby",)),
        ("en", "Opus", 6, ("opus",)),
        ("de", "Opus", 1, ("opus",)),
    ]
    assert [each.name for each in report.left_out] == ["again"]
    master = (tmp_path / "ladder" / MASTER).read_text()
    groups = [each for each in ("stereo", "full", "dolby", "opus") if f'GROUP-ID="{each}"' in master]
    assert [master.count(f'AUDIO="{each}"') for each in groups] == [2, 2, 2, 2]
    mixed = tmp_path / "stereo.mp4"
    transcode(spec_of(film, mixed, codec="h264", preset=1, audio="aac", audio_channels="stereo"))
    assert payloads(tmp_path / "ladder" / "sound-3.mp4", 0) == payloads(mixed, 0)
    assert payloads(tmp_path / "ladder" / "sound-4.mp4", 0) == payloads(film, 0)
    assert "audio-mixed" in {each.code for each in report.renditions[0][1].choices}


def test_a_dry_run_shows_what_would_be_made(film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its tracks, groups and what is left out are those of the ladder; nothing is written."""
    preset = tmp_path / "own.toml"
    preset.write_text(SOUNDS)
    line = ["ladder", str(film), str(tmp_path / "ladder"), "--preset", str(preset), "--packaged-seconds", "1"]
    assert run([*line, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "ladder").exists()
    report = ladder(film, tmp_path).to_json()
    assert list(planned["renditions"]) == list(report["renditions"])
    heights = {each["name"]: each["height"] for each in report["tracks"] if each["kind"] == "video"}
    assert {name: each["height"] for name, each in planned["renditions"].items()} == heights
    assert planned["left_out"] == report["left_out"]
    sounds = [each["name"] for each in report["tracks"] if each["kind"] == "audio"]
    assert [each["name"] for each in planned["tracks"]] == sounds
    assert planned["tracks"][1]["groups"] == ["full", "stereo", "dolby"]
    assert (planned["segments"], planned["apart"]) == (2, "")
    assert run([*line, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "rendition low: 42x32 yuv420p, h264, quality 23" in lines
    assert any(each.startswith("left out again: ") for each in lines)


def test_other_groups_are_made_anew(film: Path, tmp_path: Path) -> None:
    """The finished rendition of an earlier ladder with other groups is not taken for this one."""
    ladder(film, tmp_path)
    fewer = SOUNDS.replace('[[sound]]\nname = "stereo"\naudio = "aac"\naudio_channels = "stereo"\n', "")
    report = ladder(film, tmp_path, fewer, overwrite=True)
    found = [(each.codec, each.channels) for each in report.package.of(PlayedKind.AUDIO)]
    assert found == [("mp4a.40.2", 6), ("mp4a.40.2", 1), ("ac-3", 6), ("Opus", 6), ("Opus", 1)]


def test_a_film_without_sound_has_no_groups(tmp_path: Path) -> None:
    """Nothing is said about groups that no film without sound can have."""
    clip = make_clip(tmp_path / "clip.mp4", Clip(times=constant_times(24)))
    report = ladder(clip, tmp_path)
    assert report.package.of(PlayedKind.AUDIO) == ()
    assert report.left_out == ()
