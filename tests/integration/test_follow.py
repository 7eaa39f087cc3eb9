# ruff: noqa: ASYNC110, ASYNC240 - tests wait for files
"""A recording in progress, followed on threads of this process."""

import asyncio
from pathlib import Path

import av
import pytest

from codecfleet import Fleet, LadderReport, LadderSpec
from codecfleet.errors import InputUnreadable, JournalRefused, OutputExists, UsageError
from codecfleet.testing import LocalPool

from .packages import film as film_with_sound

PRESET = """
codec = "h264"
preset = 1
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished recording of five seconds, with sound."""
    folder = tmp_path_factory.mktemp("whole")
    film, path = film_with_sound(folder / "film.mkv", codec="mp2"), folder / "whole.ts"
    with av.open(str(film)) as source, av.open(str(path), "w", format="mpegts") as output:
        copies = {each.index: output.add_stream_from_template(each) for each in source.streams}
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = copies[packet.stream_index]
                output.mux(packet)
    return path


def _spec(source: Path, folder: Path, **options: object) -> LadderSpec:
    preset = folder / "own.toml"
    preset.write_text(PRESET)
    given = {"follow": True, "quiet_s": 5, "segment_s": 1, "packaged_s": 1} | options
    return LadderSpec(source=source, output=folder / "live", preset=preset, **given)


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


async def _ladder(spec: LadderSpec) -> LadderReport:
    async with Fleet(pool=LocalPool(2)) as fleet:
        return await fleet.ladder(spec)


async def test_the_finished_package_is_that_of_the_finished_file(whole: Path, tmp_path: Path) -> None:
    """Killed in between, it goes on; playlists only grow."""
    data, path = whole.read_bytes(), tmp_path / "grows.ts"
    path.write_bytes(data[: len(data) * 2 // 3])
    spec = _spec(path, tmp_path, quiet_s=60)
    begun = asyncio.create_task(_ladder(spec))
    playlist = tmp_path / "live" / "high.m3u8"
    while not playlist.exists() and not begun.done():
        await asyncio.sleep(0.05)
    begun.cancel()
    await asyncio.wait([begun])
    before = playlist.read_text().splitlines()
    assert "#EXT-X-PLAYLIST-TYPE:EVENT" in before
    assert "#EXT-X-ENDLIST" not in before

    recorder = asyncio.create_task(_record(data[len(data) * 2 // 3 :], path, 5))
    report = await _ladder(spec.model_copy(update={"quiet_s": _spec(path, tmp_path).quiet_s}))
    await recorder
    after = playlist.read_text().splitlines()
    assert after[: len(before)] == before
    assert after[-1] == "#EXT-X-ENDLIST"
    assert not (tmp_path / ".live.codecfleet").exists()

    other = tmp_path / "other"
    other.mkdir()
    await _ladder(_spec(path, other, follow=False, layout="files"))
    tracks = [each.given.name for each in report.package.tracks]
    assert tracks[:2] == ["high", "low"]
    assert any(each.startswith("sound") for each in tracks)
    for track in tracks:
        assert _packets(tmp_path / "live", track) == _packets(other / "live", track)


async def test_other_options_or_another_recording_do_not_go_on(whole: Path, tmp_path: Path) -> None:
    """They would give a package of two parts that do not fit."""
    path = tmp_path / "grows.ts"
    path.write_bytes(whole.read_bytes())
    spec = _spec(path, tmp_path, quiet_s=60)
    begun = asyncio.create_task(_ladder(spec))
    while not (tmp_path / "live" / "high.m3u8").exists() and not begun.done():
        await asyncio.sleep(0.05)
    begun.cancel()
    await asyncio.wait([begun])
    with pytest.raises(JournalRefused):
        await _ladder(spec.model_copy(update={"segment_s": 2 * (spec.segment_s or 1)}))
    path.rename(tmp_path / "old.ts")
    path.write_bytes(whole.read_bytes())
    with pytest.raises(InputUnreadable):
        await _ladder(spec)


async def test_what_needs_the_whole_file_is_refused(whole: Path, tmp_path: Path) -> None:
    """An option or a folder that cannot grow is refused before any work."""
    for options in ({"thumbnails_s": 1}, {"layout": "ranges"}, {"overwrite": True}, {"start_s": 1}):
        with pytest.raises(UsageError):
            await _ladder(_spec(whole, tmp_path, **options))
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "own.txt").write_text("mine")
    with pytest.raises(OutputExists):
        await _ladder(_spec(whole, tmp_path))
