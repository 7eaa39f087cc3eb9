"""The reads for chosen frames, in any order and with any groups, without decoding."""

from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import NoSuchFrame
from codecfleet.jobs.frames.selection import MERGED_FRAMES, MERGED_MOST, PartFrames, ReadPlan, merged_frames
from codecfleet.jobs.plan.track_ranges import TrackRanges
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip

from ..frame_streams import GOPS, OPEN_GOPS


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Return the group of each frame of a film, and the requested numbers."""
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=8))
    group_of = [group for group, length in enumerate(lengths) for _ in range(length)]
    return group_of, draw(st.lists(st.integers(0, len(group_of) - 1), max_size=60))


@given(asked(), st.integers(1, 40), st.sampled_from([(False, False), (False, True), (True, False), (True, True)]))
def test_every_frame_is_in_one_read_and_a_window_fits_into_memory(
    film: tuple[list[int], list[int]], most: int, ways: tuple[bool, bool]
) -> None:
    """Frames come in the requested order, each from a read of its window, and at most ``most`` wait."""
    group_of, numbers = film
    whole, merge = ways
    plan = ReadPlan.of(numbers, group_of, most=most, whole=whole, merged=MERGED_FRAMES if merge else 0)
    assert [number for _, number in plan.slots] == numbers
    assert all(number in plan.reads[read].numbers for read, number in plan.slots)
    assert set(plan.slots) == {(place, number) for place, read in enumerate(plan.reads) for number in read.numbers}
    firsts = [
        next(slot for slot, (read, _) in enumerate(plan.slots) if read == place) for place in range(len(plan.reads))
    ]
    assert firsts == sorted(firsts)
    for read in plan.reads:
        assert list(read.numbers) == sorted(set(read.numbers))
        assert group_of[read.numbers[0]] == read.group
        span = group_of[read.numbers[-1]] - read.group
        assert not span or (merge and read.numbers[-1] - read.numbers[0] < MERGED_FRAMES)
        assert len(read.numbers) <= most or (plan.ascends and not whole)


@given(asked(), st.integers(1, 40))
def test_no_read_waits_for_a_later_one_to_free_memory(film: tuple[list[int], list[int]], most: int) -> None:
    """If every read ends when it is first needed, at most ``most`` frames are held."""
    group_of, numbers = film
    plan = ReadPlan.of(numbers, group_of, most=most, whole=True, merged=MERGED_FRAMES)
    if plan.ascends:
        return
    uses, held, begun = Counter(plan.slots), set[tuple[int, int]](), set[int]()
    for slot in plan.slots:
        if slot[0] not in begun:
            begun.add(slot[0])
            held |= {(slot[0], number) for number in plan.reads[slot[0]].numbers}
        assert len(held) <= most
        uses[slot] -= 1
        held -= set() if uses[slot] else {slot}


@given(st.lists(st.integers(0, 99), unique=True).map(sorted))
def test_ascending_frames_read_each_group_once(numbers: list[int]) -> None:
    """Ascending frames read each group once, however little memory there is."""
    group_of = [number // 10 for number in range(100)]
    plan = ReadPlan.of(numbers, group_of, most=1, whole=False, merged=0)
    assert [read.group for read in plan.reads] == sorted({number // 10 for number in numbers})


@pytest.fixture(scope="module", params=[GOPS, OPEN_GOPS])
def part(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PartFrames:
    """Two seconds at 25 pictures a second in groups of 8, closed or open, from the twelfth picture on."""
    path = make_clip(
        tmp_path_factory.mktemp("part") / "clip.mkv", Clip(times=constant_times(50), options=request.param)
    )
    return part_of(path)


def part_of(path: Path, every: int = 1) -> PartFrames:
    """Return the frames of a film from 0.48 s on."""
    index = read_source(str(path)).index
    return PartFrames(TrackRanges.cut(index, start_s=Fraction(12, 25), end_s=None, segment_s=Fraction(1)), every)


def test_a_picture_s_group_begins_before_it_in_both_orders(part: PartFrames) -> None:
    """No picture is decoded from an access point that follows it in either order."""
    index = part.ranges.index
    assert (part.first, len(part)) == (12, 38)
    for number, ticks in enumerate(part.times.tolist()):
        group = part.groups[part.group_of[number]]
        assert group.cut_packet <= part.last_packet((ticks,))
        assert group.start_ticks is None or group.start_ticks <= ticks
        later = [p for p in index.access_points if group.cut_packet < p.packet <= part.last_packet((ticks,))]
        assert not [p for p in later if int(index.pts[p.packet]) <= ticks]
    assert len(part.groups) == 6


def test_times_name_the_frame_on_screen(part: PartFrames) -> None:
    """Times name the frame on screen exactly, also as a rounded float; there is none outside the part."""
    for number in range(len(part)):
        time_s = Fraction(12 + number, 25)
        assert part.number_at(time_s) == part.number_at(float(time_s)) == number
        assert part.number_at(time_s + Fraction(1, 26)) == number
    for time_s in (0, Fraction(11, 25), Fraction(2), float("1e9"), -1):
        with pytest.raises(NoSuchFrame):
            part.number_at(time_s)
    assert part.between(Fraction(1), Fraction(3, 2)) == range(13, 26)
    assert part.between(-1, 100) == range(38)
    assert not part.between(1, 0.5)


@pytest.mark.parametrize("index", [-39, 38, 10**9])
def test_numbers_beyond_the_film_are_errors_that_name_them(part: PartFrames, index: int) -> None:
    """Numbers beyond the film are an IndexError too, so that code for sequences works."""
    with pytest.raises(IndexError) as caught:
        part.position(index)
    assert isinstance(caught.value, NoSuchFrame)
    assert caught.value.frame == index
    assert part.position(-1) == 37


@pytest.mark.parametrize(
    ("frames", "threads", "merged"),
    [(50, 1, 50), (50, 14, MERGED_FRAMES), (5000, 1, MERGED_MOST), (5000, 14, MERGED_MOST)],
)
def test_a_read_of_short_groups_spans_a_thread_s_share(frames: int, threads: int, merged: int) -> None:
    """A clip of two seconds is one read for one thread, and two for many; a film's reads have the most frames."""
    assert merged_frames(frames, threads) == merged


def test_a_clip_across_short_groups_is_one_read_for_one_thread() -> None:
    """Its first group is entered in the middle."""
    group_of = [number // 48 for number in range(150)]
    plan = ReadPlan.of(range(40, 90), group_of, most=100, whole=True, merged=merged_frames(50, 1))
    assert [(read.group, read.numbers[0], len(read.numbers)) for read in plan.reads] == [(0, 40, 50)]
