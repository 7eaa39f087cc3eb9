"""Frames by number, slice and time equal those of an iteration."""

import asyncio
from collections.abc import Generator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codecfleet import Frame
from codecfleet.actors.surfaces.frames import frame_bytes
from codecfleet.errors import EngineFailed, FrameDamaged, InputUnreadable, NoSuchFrame, UsageError
from codecfleet.jobs.frames import chosen
from codecfleet.jobs.frames.chosen import FrameSelection
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from codecfleet.testing.nvidia.fake_device import device_with
from codecfleet.testing.nvidia.surface_decoder import SurfaceDecoder

from ..frame_streams import GOPS, OPEN_GOPS, WAYS, hashed, reference, source, stream, workers

__all__ = ["source"]

FILMS = {
    "closed": ("clip.mkv", Clip(times=uneven_times([40, 33, 47] * 15 + [40, 40]), options=GOPS)),
    "open": ("clip.mp4", Clip(times=constant_times(48), options=OPEN_GOPS)),
    "one group": ("clip.mkv", Clip(times=constant_times(30), options=(("x264-params", "keyint=99:bframes=3"),))),
    "hevc": (
        "clip.mkv",
        Clip(
            encoder="libx265", times=constant_times(40), options=(("x265-params", "keyint=8:min-keyint=8:log-level=0"),)
        ),
    ),
    "mpeg4": ("clip.avi", Clip(encoder="mpeg4", times=constant_times(30), options=(("g", "6"),))),
    "untimed": ("clip.h264", Clip(times=constant_times(24), options=GOPS)),
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[int, tuple[Any, ...]]]]:
    """Return each film, and the frames of an iteration over it by number."""
    found = {}
    for name, (file_name, clip) in FILMS.items():
        path = make_clip(tmp_path_factory.mktemp("films") / file_name, clip)
        found[name] = path, {frame.index: facts(frame) for frame in stream(path, decoder="software")}
    return found


def facts(frame: Frame) -> tuple[Any, ...]:
    """Return what identifies a frame, in any memory."""
    place = (frame.index, frame.source_index, frame.ticks, frame.duration_s, frame.is_keyframe)
    return *place, frame.format, hashed(frame.to_video_frame())


@pytest.mark.parametrize(("place", "decoder"), WAYS[:3])
@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_the_same_frame_comes_whichever_way_it_is_asked_for(
    films: dict[str, tuple[Path, dict[int, tuple[Any, ...]]]], place: str, decoder: str, data: st.DataObject
) -> None:
    """Lists, slices, times and single numbers give the same frames, on host and device, with any memory and threads."""
    names = [name for name in FILMS if decoder == "software" or name in ("closed", "open", "one group")]
    path, whole = films[data.draw(st.sampled_from(names))]
    count = len(whole)
    memory = data.draw(st.sampled_from([40_000 if decoder == "software" else 150_000, None]))
    every = data.draw(st.sampled_from([1, 1, 3]))
    numbers = list(range(0, count, every))
    options = {"place": place, "decoder": decoder, "memory_bytes": memory, "every": every}
    with stream(path, **options) as film:
        assert len(film) == len(numbers)
        indices = data.draw(st.lists(st.integers(-len(numbers), len(numbers) - 1), max_size=12))
        assert [facts(frame) for frame in film.at(indices)] == [whole[numbers[each]] for each in indices]
        cut = data.draw(st.slices(len(numbers)))
        assert [facts(frame) for frame in film[cut].read()] == [whole[each] for each in numbers[cut]]
        frame = film[data.draw(st.sampled_from(range(len(numbers))))]
        assert facts(frame) == whole[frame.index]
        (again,) = film.at_times([float(frame.time_s)])
        assert facts(again) == facts(frame)
        assert [facts(each) for each in film] == [whole[each] for each in numbers]
    assert not workers()


def test_in_an_event_loop_a_selection_is_awaited(source: Path) -> None:
    """In an event loop a selection is awaited or iterated over, any number of times; plain calls are refused."""

    async def choose() -> None:
        async with stream(source, decoder="software") as film:
            assert await film.count() == 48
            selection = film[40:4:-9]
            first = [frame.index for frame in await selection]
            assert first == [frame.index async for frame in selection] == [40, 31, 22, 13]
            for call in (lambda: film[3], lambda: len(film), lambda: list(film.at([3]))):
                with pytest.raises(UsageError, match=r"await|async"):
                    call()
        with pytest.raises(UsageError, match="closed"):
            await selection
        assert not workers()

    asyncio.run(choose())


def test_only_what_is_needed_is_decoded(source: Path) -> None:
    """Only groups with a chosen frame are read, and only pictures that a chosen frame needs are decoded."""
    with stream(source, decoder="software") as film:
        keyframes = film[::8]
        assert {frame.is_keyframe for frame in keyframes} == {True}
        assert keyframes.report.decoded == keyframes.report.frames == 6
        middle = film[::4]
        middle.read()
        assert middle.report.decoded < 30
        assert not list(film[5:5])
    skipping = stream(source, decoder="software", every=8)
    assert [frame.index for frame in skipping] == list(range(0, 48, 8))
    assert skipping.report.decoded == 6


def test_memory_bounds_what_is_held_in_any_order(source: Path) -> None:
    """A reader holds at most its memory plus one frame for each thread; a GOP that fits alone is not refused."""
    for decoder in ("software", "nvdec"):
        with stream(source, decoder=decoder, memory_bytes=40_000, threads=8) as film:
            selection = film.at([*range(47, -1, -1), *range(0, 48, 5)])
            assert len(selection.read()) == 58
            assert selection.report.held_bytes_max <= 120_000
            assert selection.report.held_bytes == 0
            assert selection.report.decoded_by.keys() == {decoder}


def test_few_groups_are_decoded_ahead_of_a_slow_user(source: Path) -> None:
    """At most one group more than there are threads is decoded ahead, however long the film is."""
    with stream(source, decoder="software", memory_bytes=200_000, threads=1) as film:
        selection = film[::4]
        sizes = []
        for frame in selection:
            sizes.append(frame_bytes(frame.to_video_frame()))
            assert len(film[:].read()) == 48  # this takes longer than decoding all groups
        assert selection.report.held_bytes_max <= sum(sizes[:4])


def test_frames_held_for_later_do_not_keep_out_the_next_one(
    films: dict[str, tuple[Path, dict[int, tuple[Any, ...]]]],
) -> None:
    """Frames held for later do not block the next one, even if their padding fills the memory."""
    path, whole = films["mpeg4"]
    numbers = [17, 2, 11, 19, 27, 19, 9, 2, 16, 29, 11, 12]
    with stream(path, decoder="software", memory_bytes=40_000) as film:
        assert [facts(frame) for frame in film.at(numbers)] == [whole[number] for number in numbers]


def test_an_open_group_is_proven_once(films: dict[str, tuple[Path, dict[int, tuple[Any, ...]]]]) -> None:
    """The first read of a group also decodes from further back; the verdict is kept as long as the film."""
    path, whole = films["open"]
    with stream(path, decoder="software") as film:
        assert [facts(film[number]) for number in (20, 20, 28)] == [whole[number] for number in (20, 20, 28)]


def damaged(source: Path, tmp_path: Path, packet: int) -> Path:
    """Return a source in which most bytes of a packet are overwritten."""
    index = read_source(str(source)).index
    data = bytearray(source.read_bytes())
    begin = int(index.pos_bytes[packet]) + 12
    data[begin : begin + int(index.sizes_bytes[packet]) - 16] = bytes(int(index.sizes_bytes[packet]) - 16)
    path = tmp_path / f"damaged{packet}.mkv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("packet", [17, 20, 22])
def test_damaged_frames_are_those_of_an_iteration_or_errors_with_their_number(
    source: Path, tmp_path: Path, packet: int
) -> None:
    """Frames that an iteration leaves out are errors, the others are equal; ``strict`` refuses both."""
    path = damaged(source, tmp_path, packet)
    whole = dict(reference(path))
    given = {frame.index: hashed(frame.to_video_frame()) for frame in stream(path, decoder="software")}
    with stream(path, decoder="software") as film:
        for number in range(48):
            if number in given:
                assert whole.pop(film[number].ticks) == given[number]
                continue
            with pytest.raises(FrameDamaged) as caught:
                film[number]
            assert caught.value.frame == number
    assert not whole
    with stream(path, decoder="software", strict=True) as film, pytest.raises(FrameDamaged) as caught:
        film[16:24].read()
    assert caught.value.frame in range(16, 24)
    with stream(path, decoder="software", strict=True) as film:
        assert len(film[24:].read()) == 24


def test_a_device_that_fails_leaves_the_rest_to_software(source: Path) -> None:
    """If a device fails, software decodes the rest; a required device's error comes in place of the frame."""
    with stream(source, device_with(SurfaceDecoder(EngineFailed("it gave up"), 3))) as film:
        selection = film[10:30]
        assert [frame.index for frame in selection] == list(range(10, 30))
        assert set(selection.report.fallbacks) == {"it gave up"}
    with (
        stream(source, device_with(SurfaceDecoder(EngineFailed("it gave up"), 3)), decoder="nvdec") as film,
        pytest.raises(EngineFailed, match="gave up"),
    ):
        film[24:32].read()


def test_what_is_not_there_is_an_error_that_names_it(source: Path) -> None:
    """A missing frame is an error with its number, and an IndexError too, so that code for sequences works."""
    with stream(source, decoder="software") as film:
        for number in (48, -49):
            with pytest.raises(IndexError) as caught:
                film[number]
            assert isinstance(caught.value, NoSuchFrame)
            assert caught.value.frame == number
        for time_s in (-1, 5, Fraction(100)):
            with pytest.raises(NoSuchFrame, match=f"{float(time_s):g} s"):
                film.at_times([time_s]).read()


def test_times_stay_the_source_s_in_a_part(source: Path) -> None:
    """In a part, numbers count within the part; ``source_index`` and times refer to the whole track."""
    with stream(source, decoder="software") as film, stream(source, decoder="software", start_s=1) as part:
        first = part[0]
        assert (first.index, first.source_index, first.time_s) == (0, 25, film[25].time_s)
        (shown,) = part.at_times([first.time_s])
        assert facts(shown) == facts(first)
        assert len(part) == 48 - 25
        assert [frame.source_index for frame in part.between(1, Fraction(11, 10))] == [25, 26, 27]


def test_a_source_that_changes_is_noticed(source: Path, tmp_path: Path) -> None:
    """A source that changes is noticed, because the kept index describes the opened file."""
    path = tmp_path / "film.mkv"
    path.write_bytes(source.read_bytes())
    with stream(path, decoder="software") as film:
        assert film[3].index == 3
        path.write_bytes(source.read_bytes() + b"more")
        with pytest.raises(InputUnreadable, match="changed"):
            film[3]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each read of a selection adds its number of frames."""
    found: list[int] = []

    class Counted(FrameSelection):
        """A selection that is counted when it is read."""

        def __iter__(self) -> Generator[Frame]:
            found.append(len(self))
            return super().__iter__()

    monkeypatch.setattr(chosen, "FrameSelection", Counted)
    return found


@pytest.mark.parametrize(("place", "counts"), [("host", [1, 2, 4, 8, 16, 1, 1, 2, 4, 8, 16, 1]), ("device", [1] * 48)])
def test_a_walk_by_number_reads_a_few_frames_at_once(
    source: Path, reads: list[int], place: str, counts: list[int]
) -> None:
    """Frames are read ahead on the host once two numbers follow each other, more as the walk goes on."""
    walked = [*range(24), 40, 12, *range(13, 34), 47]
    whole = {frame.index: facts(frame) for frame in stream(source, decoder="software")}
    with stream(source, place=place, decoder="software") as film:
        assert [facts(film[number]) for number in walked] == [whole[number] for number in walked]
    assert reads == counts


@pytest.mark.parametrize(
    ("memory_frames", "ahead_frames", "counts"),
    [
        (100, 100, [1, 2, 4, 8, 16]),
        (100, 3, [1, 2, 4, 4, 4, 4, 4]),
        (100, 0, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]),
        (10, 100, [1, 2, 4, 6, 6, 6]),
        (1, 100, [1] * 20),
    ],
)
def test_frames_read_ahead_are_few_enough_for_the_memory(
    source: Path,
    reads: list[int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    memory_frames: int,
    ahead_frames: int,
    counts: list[int],
) -> None:
    """Kept frames take at most half of the memory and a fixed number of bytes, where one frame may take more."""
    with stream(source, decoder="software") as film:
        size_bytes = film[0].nbytes
    reads.clear()
    monkeypatch.setattr(chosen, "AHEAD_BYTES", ahead_frames * size_bytes)
    with stream(source, decoder="software", memory_bytes=memory_frames * size_bytes) as film:
        assert [film[number].index for number in range(20)] == list(range(20))
    assert reads == counts


@pytest.mark.parametrize("name", FILMS)
def test_a_walk_by_number_gives_every_frame(
    films: dict[str, tuple[Path, dict[int, tuple[Any, ...]]]], name: str
) -> None:
    """With much memory or with little, and for every kind of index."""
    path, whole = films[name]
    for memory in (None, 40_000):
        with stream(path, decoder="software", memory_bytes=memory) as film:
            assert [facts(film[number]) for number in range(len(film))] == list(whole.values())


def test_frames_that_were_read_ahead_are_checked_too(source: Path, tmp_path: Path) -> None:
    """A source that changes during a walk is noticed, and a closed film gives no frame."""
    path = tmp_path / "film.mkv"
    path.write_bytes(source.read_bytes())
    with stream(path, decoder="software") as film:
        assert [film[number].index for number in range(3)] == [0, 1, 2]
    with pytest.raises(UsageError):
        film[3]
    with stream(path, decoder="software") as film:
        assert [film[number].index for number in range(3)] == [0, 1, 2]
        path.write_bytes(source.read_bytes() + b"more")
        with pytest.raises(InputUnreadable, match="changed"):
            film[3]


def test_leaving_a_selection_early_ends_its_threads(source: Path) -> None:
    """Leaving a selection early ends its threads, and the film can be used further."""
    film = stream(source, decoder="software")
    for frame in film[10:]:
        assert frame.index == 10
        break
    assert film[11].index == 11
    asyncio.run(film.aclose())
    assert not workers()
