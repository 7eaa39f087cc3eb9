"""Stills jobs: the right pictures with any workers and ranges, and nothing left behind."""

import asyncio
import hashlib
import io
import json
from collections.abc import Iterator
from errno import EACCES
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from codecfleet import errors
from codecfleet.actors.device.work import Work
from codecfleet.actors.segment.steps import UPRIGHT
from codecfleet.actors.stills.look import StillLook
from codecfleet.actors.stills.taking import Painter
from codecfleet.jobs.fleet import Fleet
from codecfleet.jobs.join.publish import check_folder
from codecfleet.jobs.source.source import read_source
from codecfleet.jobs.stills.job import make_stills
from codecfleet.jobs.stills.plan import settled_colour
from codecfleet.jobs.stills.writer import listed_stills
from codecfleet.testing import FaultyPool, LocalPool
from codecfleet.testing.clips import Clip, make_clip
from codecfleet.testing.fleet.local_pool import Look

from ..gop_clips import FRAMES
from ..pools import WatchedPool, damage_packet
from .conftest import CLIPS, StillsBench, decoded, on_screen

ResultT = TypeVar("ResultT")


def _samples(content: bytes) -> NDArray[np.uint8]:
    with av.open(io.BytesIO(content), format="png_pipe") as file:
        return np.asarray(next(file.decode(video=0)).to_ndarray(format="rgb24"), dtype=np.uint8)


def _painted(source: Path, frame: VideoFrame) -> NDArray[np.uint8]:
    format_, _ = read_source(str(source)).described()
    return Painter(StillLook(frame.width, frame.height, UPRIGHT, settled_colour(format_), None, 90)).paint(frame)


@pytest.mark.parametrize("name", CLIPS)
async def test_each_still_is_the_picture_on_screen(bench: StillsBench, name: str) -> None:
    """Only some groups are decoded, and every still equals a sequential decode bit for bit."""
    source = bench.clip(name)
    pictures = decoded(source)
    every_s = Fraction(3, 5)
    report = await bench.stills(source, every_s=every_s)
    found = bench.files()
    index = json.loads(found["index.json"])
    assert report.frames_decoded < FRAMES + 4
    assert len(index["stills"]) == report.stills > 3
    for number, entry in enumerate(index["stills"]):
        expected = _painted(source, on_screen(pictures, every_s * number))
        np.testing.assert_array_equal(_samples(found[entry["file"]]), expected, err_msg=entry["file"])
        assert hashlib.sha256(found[entry["file"]]).hexdigest() == entry["sha256"]
    assert report.warnings == ()


async def test_the_same_bytes_for_any_workers(bench: StillsBench) -> None:
    """One worker or many, lost workers, any order: every file is the same, on sheets too."""
    for options in ({}, {"sheet": (2, 2), "format": "jpg"}, {"scene": True, "format": "webp"}):
        await bench.stills(pool=LocalPool(1), overwrite=True, **options)
        first = bench.files()
        pool = FaultyPool(
            LocalPool(4),
            kills=[("segment 1", 1), ("segment 0", 1), ("segment 0", 2)],
            finishing_order=["segment 2", "segment 1"],
        )
        await bench.stills(pool=pool, overwrite=True, **options)
        assert bench.files() == first
    assert bench.left_over() == {"stills"}


async def test_sheets_hold_the_stills(bench: StillsBench) -> None:
    """A tile, cut out at the place in the index, is the still that a separate file would hold."""
    await bench.stills(width=40)
    single = bench.files()
    report = await bench.stills(width=40, sheet=(2, 2), overwrite=True)
    found = bench.files()
    index = json.loads(found["index.json"])
    assert set(found) == {"index.json", "sprites.vtt", "sheet-00001.png", "sheet-00002.png"}
    assert (report.stills, report.sheets, report.width, report.height) == (5, 2, 40, 30)
    for entry in index["stills"]:
        sheet = _samples(found[entry["file"]])
        tile = sheet[entry["y"] : entry["y"] + entry["height"], entry["x"] : entry["x"] + entry["width"]]
        np.testing.assert_array_equal(tile, _samples(single[f"{entry['number']:05}.png"]))
    assert found["sprites.vtt"].decode().count("#xywh=") == 5


async def test_many_stills_of_one_group(bench: StillsBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with too many stills for one range is split, and the stills stay the same."""
    await bench.stills(every_s=Fraction(1, 25))
    together = bench.files()
    monkeypatch.setattr("codecfleet.jobs.stills.plan.TAKEN_BYTES_MOST", 64 * 48 * 3 * 5)
    report = await bench.stills(every_s=Fraction(1, 25), overwrite=True)
    assert report.stills == FRAMES
    assert sum(report.decoded_by.values()) >= FRAMES / 5
    assert bench.files() == together


async def test_where_a_picture_is_damaged_the_one_before_stays_on_screen(bench: StillsBench) -> None:
    """If a group does not decode, its stills show the last picture before it, as in a sequential decode."""
    vp9 = {"encoder": "libvpx-vp9", "options": (("lag-in-frames", "0"),)}
    clip = Clip(times=tuple(range(0, 480, 40)), keyframes=frozenset({0, 4, 8}), **vp9)  # type: ignore[arg-type]
    source = make_clip(bench.folder / "damaged.mkv", clip)
    damage_packet(source, 8)
    at_s = Fraction(8, 25)
    report = await bench.stills(source, every_s=at_s)
    expected = on_screen(decoded(source), at_s)
    np.testing.assert_array_equal(_samples(bench.files()["00002.png"]), _painted(source, expected))
    assert any("damage in" in warning for warning in report.warnings)


async def test_what_never_decodes_is_left_out_and_said(bench: StillsBench) -> None:
    """A still with no picture at the beginning is missing and reported, and WebVTT has no gap."""
    source = make_clip(bench.folder / "damaged.mkv", Clip(times=tuple(range(0, 480, 40)), keyframes=frozenset({0, 6})))
    damage_packet(source, 0)
    assert decoded(source)[0][0] == Fraction(6, 25)
    report = await bench.stills(source, every_s=Fraction(6, 25))
    assert (report.stills, report.missing) == (1, (1,))
    assert "1 still left out, the first is number 1" in report.warnings[-1]
    assert set(bench.files()) == {"00002.png", "index.json", "stills.vtt"}
    assert "00:00:00.000 --> 00:00:00.480\n00002.png" in bench.files()["stills.vtt"].decode()


async def test_scenes_are_found_wherever_segments_are_cut(bench: StillsBench) -> None:
    """Scenes and their pictures do not depend on the cuts of segments."""
    options: dict[str, Any] = {"scene": True, "scene_threshold": 3, "scene_shortest_s": Fraction(0)}
    await bench.stills(**options, segment_s=Fraction(100))
    first = bench.files()
    await bench.stills(**options, segment_s=Fraction(1, 4), overwrite=True)
    assert bench.files() == first
    assert len(json.loads(first["index.json"])["stills"]) > 1


def test_a_folder_that_may_not_be_looked_into_is_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be read is refused in one line, with or without ``overwrite``."""

    def closed(_path: Path) -> Iterator[Path]:
        raise PermissionError(EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", closed)  # the tests may run as a user who can read every folder
    for overwrite in (False, True):
        with pytest.raises(errors.OutputUnwritable, match="cannot be read: Permission denied"):
            check_folder(str(tmp_path), listed_stills, overwrite=overwrite)


async def test_what_cannot_be_is_refused_before_a_worker_starts(bench: StillsBench) -> None:
    """A taken name, foreign files, and a missing source or part have different errors, and nothing is touched."""
    taken = bench.folder / "taken"
    taken.mkdir()
    (taken / "letter.txt").touch()
    unused = LocalPool(1)
    await unused.aclose()  # starting the pool now would be a separate error
    wrong: list[tuple[type[errors.CodecfleetError], dict[str, Any]]] = [
        (errors.OutputExists, {"output": taken}),
        (errors.OutputExists, {"output": taken, "overwrite": True}),
        (errors.OutputExists, {"output": taken / "letter.txt", "overwrite": True}),
        (errors.OutputUnwritable, {"output": bench.folder / "no" / "where"}),
        (errors.OutputUnwritable, {"output": "s3://bucket/stills"}),
        (errors.InputNotFound, {"source": bench.folder / "nothing.mkv"}),
        (errors.UsageError, {"start_s": 100}),
        (errors.Unsupported, {"sheet": (1000, 1000), "width": 1000}),
    ]
    for error, changes in wrong:
        source = changes.pop("source", None)
        with pytest.raises(error):
            await make_stills(bench.spec(source, **changes), unused)
    assert bench.left_over() == {"taken"}
    assert [path.name for path in taken.iterdir()] == ["letter.txt"]


async def test_cancelling_leaves_nothing_new(bench: StillsBench) -> None:
    """A cancelled job removes its files, and keeps what an earlier job published."""
    await bench.stills()
    before = bench.files()
    pool = WatchedPool(1)
    job = asyncio.create_task(bench.stills(pool=pool, overwrite=True, width=16))
    await pool.begun.wait()
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert bench.left_over() == {"stills"}
    assert bench.files() == before


async def test_a_folder_that_took_the_name_meanwhile_stays(bench: StillsBench) -> None:
    """A folder that takes the name while a job runs is not replaced."""

    class Late(LocalPool):
        async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
            """Let another folder take the name, and run the work."""
            bench.output.mkdir(exist_ok=True)
            (bench.output / "letter.txt").touch()
            return await super().result_of(work, look)

    with pytest.raises(errors.OutputExists):
        await bench.stills(pool=Late(1))
    assert set(bench.files()) == {"letter.txt"}
    assert bench.left_over() == {"stills"}


async def test_a_fleet_takes_stills_and_its_end_cancels_them(bench: StillsBench) -> None:
    """``Fleet.stills`` returns the report; closing the fleet cancels the job."""
    async with Fleet(pool=LocalPool(2)) as fleet:
        report = await fleet.stills(bench.spec())
    assert report.stills == len(list(bench.output.glob("*.png"))) == 5
    pool = WatchedPool(1)
    async with Fleet(pool=pool) as fleet:
        job = asyncio.create_task(fleet.stills(bench.spec(overwrite=True)))
        await pool.begun.wait()
    with pytest.raises(errors.Cancelled):
        await job
    with pytest.raises(errors.UsageError, match="not open"):
        await fleet.stills(bench.spec())


async def test_the_report_tells_people_and_programs_the_same(bench: StillsBench) -> None:
    """Text and JSON state the number of stills, their place, and what was decoded."""
    report = await bench.stills()
    document = json.loads(json.dumps(report.to_json()))
    assert (document["schema"], document["stills"], document["frames"]) == (1, 5, FRAMES)
    assert [document[name] for name in ("index", "vtt")] == [
        str(bench.output / n) for n in ("index.json", "stills.vtt")
    ]
    assert f"{report.frames_decoded} of {FRAMES} frames" in report.lines()[2]
