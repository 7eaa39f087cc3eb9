# ruff: noqa: ASYNC240 - tests wait for files
"""A recording in progress, followed on threads of this process."""

import asyncio
import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import av
import fsspec
import pytest

from codecfleet import LadderReport, LadderSpec
from codecfleet.actors.media.location import local_path
from codecfleet.cli.app import run
from codecfleet.cli.services import Services
from codecfleet.errors import InputUnreadable, JournalRefused, OutputExists, UsageError
from codecfleet.jobs.follow.job import follow_ladder
from codecfleet.jobs.ladder.job import make_ladder
from codecfleet.testing import LocalPool

from .packages import film as film_with_sound

PRESET = """
codec = "h264"
preset = 2
keyframe_interval = "0.5"
audio = "aac"
[[rendition]]
name = "high"
scale = "48p"
quality = 30
maxrate = "200k"
bufsize = "200k"
[[rendition]]
name = "low"
scale = "32p"
quality = 34
maxrate = "100k"
bufsize = "100k"
"""
GROUPS = """
[[sound]]
name = "stereo"
[[sound]]
name = "opus"
audio = "opus"
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished recording of 12 seconds, with sound: opening it takes five."""
    folder = tmp_path_factory.mktemp("whole")
    film, path = film_with_sound(folder / "film.mkv", 12, codec="mp2"), folder / "whole.ts"
    with av.open(str(film)) as source, av.open(str(path), "w", format="mpegts") as output:
        copies = {each.index: output.add_stream_from_template(each) for each in source.streams}
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = copies[packet.stream_index]
                output.mux(packet)
    return path


def _spec(recording: Path, folder: Path, *, preset_text: str = PRESET, **options: object) -> LadderSpec:
    preset = folder / "own.toml"
    preset.write_text(preset_text)
    given = {"source": recording, "output": folder / "live", "preset": preset, "follow": True, "quiet_s": 5}
    return LadderSpec(**given | {"segment_s": 1, "packaged_s": 1} | options)


def _packets(folder: Path, track: str) -> list[tuple[int | None, bytes]]:
    files = [folder / track / "init.mp4", *sorted((folder / track).glob("*.m4s"))]
    joined = folder.parent / f"{folder.name}-{track}.mp4"
    joined.write_bytes(b"".join(each.read_bytes() for each in files))
    with av.open(str(joined)) as container:
        return [(each.pts, bytes(each)) for each in container.demux(container.streams[0]) if each.size]


async def _record(data: bytes, path: Path, pieces: int) -> None:
    with path.open("ab") as file:
        for begin in range(0, len(data), len(data) // pieces + 1):
            file.write(data[begin : begin + len(data) // pieces + 1])
            file.flush()
            await asyncio.sleep(0.05)


async def _ladder(
    spec: LadderSpec, clock: Callable[[], float] = lambda: 0, *, keeps_record: bool = False
) -> LadderReport:
    """Make a ladder. While the clock stands, a recording is never quiet."""
    pool = LocalPool(2)
    make = partial(follow_ladder, now_s=clock) if spec.follow else make_ladder
    try:
        return await make(spec, pool, keeps_record=keeps_record)
    finally:
        await pool.aclose()


async def _killed(spec: LadderSpec, data: bytes, segments: int) -> list[str]:
    """Follow a recording that grows until a playlist names some segments; return the playlist's lines."""
    begun = asyncio.create_task(_ladder(spec))
    path, playlist = local_path(spec.source), local_path(spec.output) / "high.m3u8"
    with path.open("ab") as file:
        while not begun.done() and not (playlist.exists() and playlist.read_text().count("#EXTINF") >= segments):
            begin = path.stat().st_size
            file.write(data[begin : min(begin + len(data) // 60, len(data) * 19 // 20)])
            file.flush()
            await asyncio.sleep(0.05)
    begun.cancel()
    await asyncio.wait([begun])
    return playlist.read_text().splitlines()


async def _check_equal(report: LadderReport, source: Path, folder: Path, **options: object) -> None:
    """Check that a package has the packets of a ladder of the finished file."""
    folder.mkdir()
    await _ladder(_spec(source, folder, follow=False, layout="files", **options))
    tracks = [each.given.name for each in report.package.tracks]
    assert tracks[:3] == ["high", "low", "sound-1"]
    for track in tracks:
        assert _packets(local_path(report.output), track) == _packets(folder / "live", track)


async def test_the_finished_package_is_that_of_the_finished_file(whole: Path, tmp_path: Path) -> None:
    """Killed twice in between, it goes on; playlists only grow. With its record kept, it may end twice."""
    data, path, is_recorded = whole.read_bytes(), tmp_path / "grows.ts", asyncio.Event()
    path.touch()
    spec = _spec(path, tmp_path)
    first = await _killed(spec, data, 1)
    assert "#EXT-X-PLAYLIST-TYPE:EVENT" in first
    assert "#EXT-X-ENDLIST" not in first
    second = await _killed(spec, data, sum(line.startswith("#EXTINF") for line in first) + 1)
    assert second[: len(first)] == first

    async def record() -> None:
        await _record(data[path.stat().st_size :], path, 5)
        is_recorded.set()

    recorder = asyncio.create_task(record())
    later_s = itertools.count(1000, 100)
    await _ladder(spec, lambda: float(next(later_s)) if is_recorded.is_set() else 0.0, keeps_record=True)
    await recorder
    report = await _ladder(spec, lambda: float(next(later_s)))
    after = (tmp_path / "live" / "high.m3u8").read_text().splitlines()
    assert after[: len(second)] == second
    assert after[-1] == "#EXT-X-ENDLIST"
    assert not (tmp_path / ".live.codecfleet").exists()
    await _check_equal(report, path, tmp_path / "other")


async def test_what_is_appended_after_the_end_is_not_read(whole: Path, tmp_path: Path) -> None:
    """The pictures and the sound end where the file was when it was found quiet, even within a packet."""
    data, path, ended = whole.read_bytes(), tmp_path / "grows.ts", tmp_path / "ended.ts"
    ended.write_bytes(data[: len(data) * 3 // 5 + 77])
    path.write_bytes(ended.read_bytes())
    looks = itertools.count()

    def clock() -> float:
        if next(looks) == 2:  # the file has been looked at, and will now be found quiet
            path.write_bytes(data)
        return 1000.0 if path.stat().st_size == len(data) else 0.0

    report = await _ladder(_spec(path, tmp_path), clock)
    await _check_equal(report, ended, tmp_path / "other")


async def test_sound_that_goes_on_after_the_pictures(whole: Path, tmp_path: Path) -> None:
    """Its segments keep the target duration that the playlists have promised."""
    path, times = tmp_path / "long.ts", itertools.count()
    with av.open(str(whole)) as source, av.open(str(path), "w", format="mpegts") as output:
        copies = {each.index: output.add_stream_from_template(each) for each in source.streams}
        begin_s = float(source.start_time or 0) / 1_000_000
        for packet in source.demux():
            is_late = packet.stream.type == "video" and float((packet.pts or 0) * packet.time_base) - begin_s > 1.2
            if packet.dts is not None and not is_late:
                packet.stream = copies[packet.stream_index]
                output.mux(packet)
    report = await _ladder(_spec(path, tmp_path), lambda: 10.0 * next(times))
    sound = next(each for each in report.package.tracks if each.given.name == "sound-1")
    assert len(sound.segments) > 2
    await _check_equal(report, path, tmp_path / "other")


async def test_sound_that_stops_and_groups_of_sound(whole: Path, tmp_path: Path) -> None:
    """Pictures without sound beside them are published, and each form of the sound is its own track."""
    path, most_s = tmp_path / "short.ts", {"audio": 2.2, "video": 6.2}
    with av.open(str(whole)) as source, av.open(str(path), "w", format="mpegts") as output:
        copies = {each.index: output.add_stream_from_template(each) for each in source.streams}
        begin_s = float(source.start_time or 0) / 1_000_000
        for packet in source.demux():
            is_late = float((packet.pts or 0) * packet.time_base) - begin_s > most_s[packet.stream.type]
            if packet.dts is not None and not is_late:
                packet.stream = copies[packet.stream_index]
                output.mux(packet)
    times = itertools.count()
    report = await _ladder(_spec(path, tmp_path, preset_text=PRESET + GROUPS), lambda: 10.0 * next(times))
    groups = {each.given.name: each.given.groups for each in report.package.tracks}
    assert groups["sound-1"] == ("stereo",)
    assert groups["sound-2"] == ("opus",)
    await _check_equal(report, path, tmp_path / "other", preset_text=PRESET + GROUPS)


async def test_a_store_gets_what_a_folder_gets(whole: Path, tmp_path: Path) -> None:
    """Playlists come after what they name, and a store's other files are not touched."""
    store, times, path = fsspec.filesystem("memory"), itertools.count(), tmp_path / "half.ts"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    report = await _ladder(_spec(path, tmp_path, output="memory://live/film"), lambda: 10.0 * next(times))
    names = {each.removeprefix("/live/film/") for each in store.find("/live/film")}
    assert names == set(report.files)
    assert b"#EXT-X-ENDLIST" in store.cat("/live/film/high.m3u8")
    with pytest.raises(OutputExists):
        await _ladder(_spec(whole, tmp_path, output="memory://live"))


async def test_other_options_or_another_recording_do_not_go_on(whole: Path, tmp_path: Path) -> None:
    """They would give a package of two parts that do not fit."""
    path, data = tmp_path / "grows.ts", whole.read_bytes()
    path.touch()
    spec = _spec(path, tmp_path)
    await _killed(spec, data, 1)
    with pytest.raises(JournalRefused):
        await _ladder(spec.model_copy(update={"segment_s": 2 * (spec.segment_s or 1)}))
    path.write_bytes(data[:1880])
    with pytest.raises(InputUnreadable, match="shorter"):
        await _ladder(spec)
    path.rename(tmp_path / "old.ts")
    path.write_bytes(data)
    with pytest.raises(InputUnreadable, match="replaced"):
        await _ladder(spec)
    (tmp_path / "live" / "own.txt").write_text("mine")
    (tmp_path / "old.ts").write_bytes(data)
    (tmp_path / "old.ts").rename(path)
    with pytest.raises(OutputExists, match=r"own\.txt"):
        await _ladder(spec)


async def test_what_needs_the_whole_file_is_refused(whole: Path, tmp_path: Path) -> None:
    """An option or a folder that cannot grow is refused before any work, and nothing is left."""
    names = {"own.toml"}
    for options in (
        {"thumbnails_s": 1},
        {"layout": "ranges"},
        {"overwrite": True},
        {"start_s": 1},
        {"end_s": 2},
        {"ship": True},
        {"subtitles": "copy"},
        {"fps": 10},
        {"crop": "auto"},
        {"source": "s3://bucket/film.ts"},
    ):
        with pytest.raises(UsageError):
            await _ladder(_spec(whole, tmp_path, **options))
        assert {each.name for each in tmp_path.iterdir()} == names
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "own.txt").write_text("mine")
    with pytest.raises(OutputExists):
        await _ladder(_spec(whole, tmp_path))
    assert {each.name for each in tmp_path.iterdir()} == names | {"live"}
    assert [each.name for each in (tmp_path / "live").iterdir()] == ["own.txt"]


def test_a_plan_of_a_recording_is_refused(whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A plan would hold for the beginning only."""
    assert run(["ladder", str(whole), str(tmp_path / "live"), "--follow", "--dry-run"], Services()) == 2
    assert "--dry-run cannot be used with --follow" in capfd.readouterr().err


def _junk(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 1000)


@pytest.mark.parametrize(
    ("make", "says"), [(_junk, "is not a media file"), (Path.mkdir, "is a folder"), (os.mkfifo, "is a pipe")]
)
async def test_what_is_no_recording_is_named(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    """Its path is said, and nothing waits for a pipe's writer."""
    path, times = tmp_path / "grows.ts", itertools.count()
    make(path)
    with pytest.raises(InputUnreadable) as found:
        await _ladder(_spec(path, tmp_path), lambda: 10.0 * next(times))
    assert found.value.message.startswith(f"{path} {says}")


async def test_a_recording_that_is_removed_ends_the_job(whole: Path, tmp_path: Path) -> None:
    """The reason is said, and what was published stays."""
    path, data = tmp_path / "grows.ts", whole.read_bytes()
    written = len(data) // 2
    path.write_bytes(data[:written])
    playlist = tmp_path / "live" / "high.m3u8"
    begun = asyncio.create_task(_ladder(_spec(path, tmp_path)))
    while not begun.done() and not playlist.exists():
        await asyncio.sleep(0.05)
        with path.open("ab") as recorded:  # a segment is complete when the recorder has begun the next one
            recorded.write(data[written : (written := written + 2000)])
    path.unlink()
    with pytest.raises(InputUnreadable, match="was removed while it was followed"):
        await begun
    assert "#EXTINF" in playlist.read_text()
