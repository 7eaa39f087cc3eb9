"""Ladders on threads of this process: their renditions, packages, failures and second attempts."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import av
import pytest

from codecfleet import Fleet, LadderReport, LadderSpec, TranscodeSpec
from codecfleet.actors.device.work import Work
from codecfleet.actors.media.stores import open_store
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model import Demand, PlacementPreview
from codecfleet.errors import (
    Cancelled,
    CodecfleetError,
    EncoderFailed,
    InputUnreadable,
    OutputExists,
    SegmentFailed,
    Unsupported,
    WouldLose,
)
from codecfleet.jobs.journal.found_work import WorkState, find_work, remove_work
from codecfleet.jobs.package.names import MANIFEST, MASTER, track_file
from codecfleet.jobs.package.values import Layout, PlayedKind
from codecfleet.jobs.report.events import Event, Progress, Warned
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import Clip, constant_times, make_clip
from codecfleet.testing.fleet.local_pool import Look
from tests.sweeps import swept

from .local_jobs import transcode
from .packages import film as film_with_sound

ResultT = TypeVar("ResultT")
RUNGS = {"high": (48, 30), "middle": (32, 24), "low": (16, 20)}
"""The height and the quality of each rendition, by name."""
FRAMES = 50


def _toml(extra: str = "") -> str:
    tables = [
        f'[[rendition]]\nname = "{name}"\nscale = "{lines}p"\nquality = {quality}\n'
        for name, (lines, quality) in RUNGS.items()
    ]
    return "\n".join(['codec = "h264"\npreset = 1\nkeyframe_interval = "0.5"\n', *tables, extra])


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A film of two seconds, with a keyframe every half second."""
    clip = Clip(times=constant_times(FRAMES), keyframes=frozenset(range(0, FRAMES, 12)))
    return make_clip(tmp_path_factory.mktemp("film") / "film.mp4", clip)


def ladder_spec(film: Path, folder: Path, extra: str = "", **options: object) -> LadderSpec:
    """Return the request for a ladder of three renditions, in segments of half a second."""
    preset = folder / "own.toml"
    preset.write_text(_toml(extra))
    given = {"segment_s": Fraction(1, 2), "packaged_s": Fraction(1), "layout": Layout.RANGES} | options
    return LadderSpec(source=film, output=folder / "ladder", preset=preset, **given)


class BadPool(LocalPool):
    """A pool in which the last segment of one rendition cannot be encoded."""

    def __init__(self, rendition: str, *, last: int = 3, after: int = 2) -> None:
        super().__init__(3)
        self._begin, self._rendition, self._after = f"segment {last} of", rendition, after
        self._encoded = 0
        self._some = asyncio.Event()

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Fail for that segment, even if it is encoded with others, after ``after`` other works have succeeded."""
        if self._begin in work.label and f"-{self._rendition}" in work.label:
            await self._some.wait()
            raise EncoderFailed("not today")
        result = await super().result_of(work, look)
        self._encoded += 1
        if self._encoded == self._after:
            self._some.set()
        return result


class SmallPool(LocalPool):
    """A pool in which no machine can run all renditions at once; it counts how many works run at a time."""

    def __init__(self) -> None:
        super().__init__(4)
        self._running = 0
        self.most = 0

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Refuse the whole ladder."""
        never = "it has not enough memory" if len(demand.renditions) > 1 else ""
        return replace(await super().preview(demand), never=never)

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Count the work while it runs."""
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            return await super().result_of(work, look)
        finally:
            self._running -= 1


class UnreadablePool(LocalPool):
    """A pool whose workers cannot read one segment of the source."""

    async def result_of(self, work: Work[ResultT], look: Look) -> ResultT:
        """Fail for that segment."""
        if "segment 2" in work.label:
            raise InputUnreadable("the source cannot be read any more", "Check it.")
        return await super().result_of(work, look)


def ladder(
    spec: LadderSpec,
    slots: int = 3,
    *,
    pool: Pool | None = None,
    tell: Callable[[Event], None] = lambda _: None,
    keeps_record: bool = False,
) -> LadderReport:
    """Make a ladder."""

    async def run() -> LadderReport:
        async with Fleet(pool=pool or LocalPool(slots)) as fleet:
            return await fleet.ladder(spec, tell=tell, keeps_record=keeps_record)

    return asyncio.run(run())


def two_videos(film: Path, path: Path) -> Path:
    """Write a film that has its video track twice."""
    with av.open(str(film)) as source, av.open(str(path), "w") as output:
        streams = [output.add_stream_from_template(source.streams.video[0]) for _ in range(2)]
        for packet in source.demux(0):
            for stream in streams if packet.size else []:
                packet.stream = stream
                output.mux(packet)
    return path


def done_frames(events: list[Event]) -> list[int]:
    """Return the frames done by each event of progress."""
    return [each.frames_done for each in events if isinstance(each, Progress)]


def packets(path: Path) -> list[tuple[str, int | None, bool]]:
    """Return the digest, the time and the key flag of each packet of a file's first track."""
    with av.open(str(path)) as opened:
        return [(sha256(bytes(each)).hexdigest(), each.pts, each.is_keyframe) for each in opened.demux(0) if each.size]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder, apart from the report, which differs in every run."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and each.name != "ladder.json"
    }


def test_each_rendition_is_a_transcode_of_its_own(film: Path, tmp_path: Path) -> None:
    """Packets and times of each track are those of ``transcode``, although each part was decoded once for all."""
    spec = ladder_spec(film, tmp_path)
    events: list[Event] = []
    report = ladder(spec, tell=events.append)
    names = [track.given.name for track in report.package.of(PlayedKind.VIDEO)]
    assert names == list(RUNGS)
    segments = len(report.renditions[0][1].segments)
    assert (report.decoded, report.encoded) == (segments, segments * len(RUNGS))
    assert done_frames(events)[-1] == FRAMES * len(RUNGS)
    for track in report.package.tracks:
        lines, quality = RUNGS[track.given.name]
        scale = None if lines == 48 else (None, lines)
        alone = TranscodeSpec(
            source=film,
            output=tmp_path / f"{lines}.mp4",
            segment_s=Fraction(1, 2),
            keyframe_interval_s=Fraction(1, 2),
            scale=scale,
            quality=quality,
            preset=1,
        )
        transcode(alone)
        assert packets(Path(spec.output) / track_file(track.given)) == packets(Path(alone.output))
    assert (
        {MASTER, MANIFEST}
        <= set(report.files)
        == {str(each.relative_to(spec.output)) for each in Path(spec.output).rglob("*")}
    )
    assert json.loads((Path(spec.output) / "ladder.json").read_text())["decoded"] == segments
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("layout", Layout)
def test_bytes_do_not_depend_on_workers(layout: Layout, film: Path, tmp_path: Path) -> None:
    """One slot and five give the same files."""
    found = []
    for slots in (1, 5):
        folder = tmp_path / str(slots)
        folder.mkdir()
        spec = ladder_spec(film, folder, layout=layout)
        ladder(spec, slots)
        found.append(contents(Path(spec.output)))
    assert found[0] == found[1]


def test_a_cancelled_ladder_goes_on(film: Path, tmp_path: Path) -> None:
    """Its finished segments are not encoded again, and the bytes are those of a ladder that was not cancelled."""
    spec, whole = ladder_spec(film, tmp_path), tmp_path / "whole"
    whole.mkdir()
    expected = ladder_spec(film, whole)
    ladder(expected)

    async def interrupted() -> None:
        reached = asyncio.Event()

        def until_second(event: Event) -> None:
            if any(frames > FRAMES for frames in done_frames([event])):
                reached.set()

        async with Fleet(pool=LocalPool(1)) as fleet:
            task = asyncio.create_task(fleet.ladder(spec, tell=until_second))
            await reached.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(interrupted())
    assert not Path(spec.output).exists()
    report = ladder(spec)
    assert sum(each.resumed.restored for _, each in report.renditions if each.resumed is not None) > 0
    assert report.encoded < len(report.renditions[0][1].segments) * len(RUNGS)
    assert contents(Path(spec.output)) == contents(Path(expected.output))
    assert not list(tmp_path.glob(".*"))


def test_a_fleet_that_is_closed_ends_its_ladders(film: Path, tmp_path: Path) -> None:
    """The caller gets ``Cancelled``, and no folder appears."""
    spec = ladder_spec(film, tmp_path)

    async def closed() -> None:
        fleet = Fleet(pool=LocalPool(1))
        await fleet.__aenter__()
        reached = asyncio.Event()
        task = asyncio.create_task(
            fleet.ladder(spec, tell=lambda event: reached.set() if done_frames([event]) else None)
        )
        await reached.wait()
        await fleet.aclose()
        with pytest.raises(Cancelled):
            await task

    asyncio.run(closed())
    assert not Path(spec.output).exists()


def test_a_rendition_that_cannot_be_encoded_ends_the_ladder(film: Path, tmp_path: Path) -> None:
    """The error names it, and no folder appears. The next attempt encodes only missing segments."""
    spec = ladder_spec(film, tmp_path)
    with pytest.raises(SegmentFailed, match=r"rendition low: .*not today"):
        ladder(spec, pool=BadPool("low"))
    assert not Path(spec.output).exists()
    report = ladder(spec)
    assert report.encoded < len(report.renditions[0][1].segments) * len(RUNGS)
    assert not list(tmp_path.glob(".*"))


def test_a_rendition_that_nothing_encodes_is_refused_before_any_work(film: Path, tmp_path: Path) -> None:
    """The error names it, and nothing is left."""
    bad = '[[rendition]]\nname = "bad"\nscale = "16p"\nencoder_options = { profile = "nothing" }\n'
    with pytest.raises(Unsupported, match="rendition bad: libx264 does not open"):
        ladder(ladder_spec(film, tmp_path, bad))
    assert [each.name for each in tmp_path.iterdir()] == ["own.toml"]


def test_sound_that_players_do_not_know_is_refused_before_any_work(tmp_path: Path) -> None:
    """An mp4 could hold uncompressed sound, but no player of a package could play it."""
    spec = ladder_spec(film_with_sound(tmp_path / "film.mkv", 1), tmp_path)
    with pytest.raises(Unsupported, match="pcm_s16le"):
        ladder(spec)
    assert {each.name for each in tmp_path.iterdir()} == {"film.mkv", "own.toml"}


def test_a_further_video_track_is_named_as_lost(film: Path, tmp_path: Path) -> None:
    """A package has one video track in several renditions; ``strict`` refuses to leave out another."""
    two = two_videos(film, tmp_path / "two.mp4")
    with pytest.raises(WouldLose, match="video track 1"):
        ladder(ladder_spec(two, tmp_path, strict=True))
    report = ladder(ladder_spec(two, tmp_path))
    assert [(name, each.code, each.checks) for name, each in report.warnings] == [
        ("high", "video-track-dropped", ("tracks.video",))
    ]
    assert [track.action for track in report.renditions[0][1].tracks] == ["encoded", "dropped"]


def test_sound_before_the_pictures_moves_all_renditions_alike(tmp_path: Path) -> None:
    """Pictures begin equally late in each rendition; without sound they begin at 0, whatever an earlier attempt had."""
    source = film_with_sound(tmp_path / "film.mkv", 3, late_frames=10)
    spec = ladder_spec(source, tmp_path, audio="aac", segment_s=Fraction(1), packaged_s=Fraction(1), overwrite=True)
    with pytest.raises(SegmentFailed):
        ladder(spec, pool=BadPool("high", last=2, after=2))
    report = ladder(spec)
    assert _starts_s(report) == dict.fromkeys(RUNGS, Fraction(2, 5))
    assert [each.restored for each in report.renditions[1][1].segments][:2] == [True, True]
    with pytest.raises(SegmentFailed):
        ladder(spec, pool=BadPool("high", last=2, after=2))
    preset = Path(spec.preset)
    preset.write_text(preset.read_text().replace("high", "top"))
    assert set(_starts_s(ladder(spec.model_copy(update={"audio": "none"}))).values()) == {0}


def _starts_s(report: LadderReport) -> dict[str, Fraction]:
    """Return when each video track begins, by its packets."""
    starts_s = dict[str, Fraction]()
    for track in report.package.of(PlayedKind.VIDEO):
        with av.open(str(Path(report.output) / track_file(track.given))) as opened:
            times_s = [each.pts * Fraction(each.time_base) for each in opened.demux(0) if each.pts is not None]
        starts_s[track.given.name] = min(times_s)
    return starts_s


def test_an_error_of_the_source_names_no_rendition(film: Path, tmp_path: Path) -> None:
    """It would end any of them."""
    with pytest.raises(InputUnreadable) as caught:
        ladder(ladder_spec(film, tmp_path), pool=UnreadablePool(3))
    assert caught.value.message == "the source cannot be read any more"


@pytest.mark.parametrize("workers", [1, None])
def test_renditions_that_run_apart_keep_to_the_workers(workers: int | None, film: Path, tmp_path: Path) -> None:
    """Then each segment is decoded for each rendition, and the report says why."""
    pool = SmallPool()
    report = ladder(ladder_spec(film, tmp_path, workers=workers), pool=pool)
    assert (report.decoded, report.apart) == (report.encoded, "it has not enough memory")
    assert pool.most == 1 if workers else pool.most > 1


def test_finished_renditions_count_as_progress(film: Path, tmp_path: Path) -> None:
    """A ladder that goes on from finished renditions has all frames at its end."""
    spec = ladder_spec(film, tmp_path)
    with pytest.raises(SegmentFailed):
        ladder(spec, pool=BadPool("low"))
    events: list[Event] = []
    ladder(spec, tell=events.append)
    assert done_frames(events)[-1] == FRAMES * len(RUNGS)


def test_an_earlier_ladder_is_replaced_only_if_asked(film: Path, tmp_path: Path) -> None:
    """A folder that holds anything else is never replaced."""
    spec = ladder_spec(film, tmp_path)
    ladder(spec)
    before = contents(Path(spec.output))
    with pytest.raises(OutputExists):
        ladder(spec)
    again = spec.model_copy(update={"overwrite": True, "layout": Layout.FILES})
    ladder(again)
    after = contents(Path(spec.output))
    assert (before.keys() - after.keys(), after.keys() - before.keys()) == (
        {f"{name}.mp4" for name in RUNGS},
        {f"{name}/{each}" for name in RUNGS for each in ("init.mp4", "00001.m4s", "00002.m4s")},
    )
    (Path(spec.output) / "mine.txt").write_text("kept")
    with pytest.raises(OutputExists, match=r"mine\.txt"):
        ladder(again)


def test_thumbnails_are_part_of_the_folder(film: Path, tmp_path: Path) -> None:
    """They are taken from the smallest rendition, and a later ladder may replace them together with the other files."""
    spec = ladder_spec(film, tmp_path, thumbnails_s="0.5")
    report = ladder(spec)
    index = json.loads((Path(spec.output) / "thumbnails" / "index.json").read_text())
    assert len(index["stills"]) == 4
    assert {"thumbnails/sheet-00001.jpg", "thumbnails/sprites.vtt"} <= set(report.files)
    again = ladder(spec.model_copy(update={"overwrite": True, "thumbnails_s": None}))
    assert not any(name.startswith("thumbnails") for name in again.files)
    assert not (Path(spec.output) / "thumbnails").exists()


def test_thumbnails_have_the_times_of_the_package(tmp_path: Path) -> None:
    """Pictures that begin after the sound have their thumbnails at the times at which a player shows them."""
    source = film_with_sound(tmp_path / "film.mkv", 2, late_frames=10)
    spec = ladder_spec(source, tmp_path, audio="aac", thumbnails_s=1)
    ladder(spec)
    cues = (Path(spec.output) / "thumbnails" / "sprites.vtt").read_text().splitlines()
    assert [each for each in cues if "-->" in each] == [
        "00:00:00.400 --> 00:00:01.400",
        "00:00:01.400 --> 00:00:02.400",
    ]


def test_a_store_gets_the_manifests_last(film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store fails before that, no player finds a ladder; the next attempt only uploads."""
    url = f"memory://{tmp_path.name}/ladder"
    spec = ladder_spec(film, tmp_path).model_copy(update={"output": url})
    store, path = open_store(f"{url}/{MASTER}")
    put, names, fails_at = store.put_file, list[str](), 5

    def failing(local: str, remote: str) -> None:
        names.append(remote.rpartition("/")[2])
        if len(names) == fails_at:
            raise PermissionError("not here")
        put(local, remote)

    monkeypatch.setattr(type(store), "put_file", lambda _, *each: failing(*each))
    with pytest.raises(CodecfleetError, match="not here"):
        ladder(spec)
    assert not store.exists(path)
    names.clear()
    monkeypatch.setattr(
        type(store), "put_file", lambda _, *each: (names.append(each[1].rpartition("/")[2]), put(*each))
    )
    report = ladder(spec)
    assert report.encoded == 0
    assert names[-2:] == [MANIFEST, MASTER]
    assert store.cat_file(path).startswith(b"#EXTM3U")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A folder in a store."""
    return f"memory://{tmp_path.name}/ladder"


def test_a_run_killed_while_publishing_to_a_store_goes_on(
    url: str, film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run replaces the files that the killed run had written, including its manifest."""
    spec = ladder_spec(film, tmp_path).model_copy(update={"output": url})
    store, path = open_store(f"{url}/{MASTER}")
    put = store.put_file

    def failing(local: str, remote: str) -> None:
        if remote == path:
            raise PermissionError("not here")
        put(local, remote)

    monkeypatch.setattr(type(store), "put_file", lambda _, *each: failing(*each))
    with pytest.raises(CodecfleetError, match="not here"):
        ladder(spec)
    assert store.exists(path.replace(MASTER, MANIFEST))
    monkeypatch.undo()
    assert ladder(spec).encoded == 0
    assert store.exists(path)


def test_a_store_keeps_what_no_ladder_has_written(url: str, film: Path, tmp_path: Path) -> None:
    """Other files are never replaced; with --overwrite an earlier ladder is, and none of its files stays."""
    spec = ladder_spec(film, tmp_path).model_copy(update={"output": url})
    store, root = open_store(url)
    store.pipe_file(f"{root}/high.mp4", b"mine")
    with pytest.raises(OutputExists, match=r"already holds high\.mp4"):
        ladder(spec)
    with pytest.raises(OutputExists, match=r"holds high\.mp4, which is not from an earlier run"):
        ladder(spec.model_copy(update={"overwrite": True}))
    assert store.cat_file(f"{root}/high.mp4") == b"mine"
    store.rm_file(f"{root}/high.mp4")
    first = ladder(spec)
    second = ladder(spec.model_copy(update={"overwrite": True, "layout": Layout.FILES}))
    found = {each.removeprefix(f"{root}/") for each in store.find(root)}
    assert found == set(second.files) != set(first.files)


def test_a_run_killed_after_publishing_goes_on(film: Path, tmp_path: Path) -> None:
    """The same ladder, and no other, may replace the folder that it left, without --overwrite."""
    spec = ladder_spec(film, tmp_path)
    ladder(spec, keeps_record=True)
    whole = contents(Path(spec.output))
    with pytest.raises(OutputExists):
        ladder(ladder_spec(film, tmp_path, layout=Layout.FILES))
    assert ladder(spec).encoded == 0
    assert contents(Path(spec.output)) == whole
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", swept(["ladder", ""]))
def test_the_record_of_a_ladder_is_removed_whole(place: str, film: Path, tmp_path: Path) -> None:
    """With its finished renditions, by the name of the output and with all work of the folder."""
    spec = ladder_spec(film, tmp_path)
    ladder(spec, keeps_record=True)
    assert remove_work(str(tmp_path / place)) == ([str(tmp_path / ".ladder.codecfleet")], [])
    assert {each.name for each in tmp_path.iterdir()} == {"ladder", "own.toml"}


def test_files_of_others_in_a_tracks_folder_are_kept(film: Path, tmp_path: Path) -> None:
    """A folder is not replaced if it holds, at any depth, a file that no ladder has written."""
    spec = ladder_spec(film, tmp_path, layout=Layout.FILES)
    ladder(spec)
    mine = Path(spec.output) / "high" / "mine.txt"
    mine.write_text("kept")
    with pytest.raises(OutputExists, match=r"holds high/mine\.txt"):
        ladder(spec.model_copy(update={"overwrite": True}))
    assert mine.read_text() == "kept"


def test_no_secret_is_published(film: Path, tmp_path: Path) -> None:
    """The report is served to players, so its addresses have no secrets."""
    report = ladder(ladder_spec(film, tmp_path))
    shown = replace(report, source="https://store/film.mp4?X-Amz-Signature=hidden", output="s3://key:hidden@store/out")
    assert "hidden" not in json.dumps(shown.to_json()) + "".join(shown.lines())
    assert not any("output" in each for each in shown.to_json()["renditions"].values())


def test_a_source_replaced_after_planning_is_noticed(film: Path, tmp_path: Path) -> None:
    """The ladder fails, as a transcode does, instead of encoding one film by the index of another."""
    source = tmp_path / "film.mp4"
    source.write_bytes(film.read_bytes())

    def swap() -> None:
        source.unlink(missing_ok=True)
        source.write_bytes(film.read_bytes() + b"changed")

    class Swapping(LocalPool):
        async def preview(self, demand: Demand) -> PlacementPreview:
            """Replace the film, after planning and before any work."""
            swap()
            return await super().preview(demand)

    with pytest.raises(InputUnreadable, match="changed"):
        ladder(ladder_spec(source, tmp_path), pool=Swapping(2))
    assert not (tmp_path / "ladder").exists()


def test_unfinished_renditions_of_a_ladder_are_listed(film: Path, tmp_path: Path) -> None:
    """The work of a ladder is the unfinished work of its renditions, so clean-up keeps it."""
    spec = ladder_spec(film, tmp_path)
    with pytest.raises(SegmentFailed):
        ladder(spec, pool=BadPool("low"))
    found = find_work(str(tmp_path))
    assert {Path(each.work).name for each in found} <= {f".{name}.mp4.codecfleet" for name in RUNGS}
    assert any(each.state is WorkState.UNFINISHED for each in found)


def test_losses_are_said_while_the_ladder_runs(film: Path, tmp_path: Path) -> None:
    """Each once, with the name of a rendition, before any frame is done; the report has them too."""
    two = two_videos(film, tmp_path / "two.mp4")
    events: list[Event] = []
    report = ladder(ladder_spec(two, tmp_path), tell=events.append)
    said = [number for number, each in enumerate(events) if isinstance(each, Warned)]
    progress = [number for number, each in enumerate(events) if isinstance(each, Progress)]
    messages = [each.message for each in events if isinstance(each, Warned)]
    assert messages == [f"{name}: {each.message}" for name, each in report.warnings]
    assert any("is dropped" in each for each in messages)
    assert max(said) < max(progress)
    assert {each.job for each in events} == {events[0].job}


def test_sound_options_apply_to_the_rendition_that_carries_sound(film: Path, tmp_path: Path) -> None:
    """They neither need the codec on the command line nor disturb the renditions without sound."""
    spec = ladder_spec(film, tmp_path, audio_bitrate_bps="64k")
    preset = Path(spec.preset)
    preset.write_text('audio = "aac"\n' + preset.read_text())
    assert len(ladder(spec).renditions) == len(RUNGS)
