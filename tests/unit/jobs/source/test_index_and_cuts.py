from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import RandomAccess
from codecfleet.actors.media.timeline import MOST_HELD_FRAMES, REORDER_FRAMES, TimeShift
from codecfleet.jobs.plan.cuts import CutReason, choose_cuts, usual_segment_s
from codecfleet.jobs.source.index import DISCARD, KEY, MISSING, TrackIndex, overtaken
from codecfleet.jobs.source.indexer import find_resets

TICK = Fraction(1, 1000)


def index_of(
    pts: list[int], keys: set[int], *, dts: list[int] | None = None, discard: set[int] = frozenset(), fps: int = 25
) -> TrackIndex:
    """Return an index of packets in demux order, with these presentation times in milliseconds."""
    flags = np.array([KEY * (n in keys) | DISCARD * (n in discard) for n in range(len(pts))], dtype=np.uint8)
    times = np.array(pts, dtype=np.int64)
    decoding = np.array(sorted(pts) if dts is None else dts, dtype=np.int64)
    shifts = find_resets(decoding, flags, TICK, Fraction(fps))
    for shift in shifts:
        times[shift.first_packet :] += shift.ticks
    return TrackIndex(
        source="clip",
        stream_index=0,
        codec="h264",
        time_base=TICK,
        frame_rate=Fraction(fps),
        pts=times,
        dts=decoding,
        pos_bytes=np.arange(len(pts), dtype=np.int64) * 100,
        sizes_bytes=np.full(len(pts), 100, dtype=np.int64),
        flags=flags,
        kinds=dict.fromkeys(keys, RandomAccess.IDR),
        shifts=shifts,
    )


def constant(seconds: int, keys_s: list[float], fps: int = 25) -> TrackIndex:
    """Return an index at a constant rate, without reordering, with keyframes at these seconds."""
    step = 1000 // fps
    return index_of([n * step for n in range(seconds * fps)], {round(s * fps) for s in keys_s}, fps=fps)


def cuts_s(index: TrackIndex, asked: int | None = None) -> list[float]:
    """Return the cuts in seconds."""
    return [float(cut.ticks * TICK) for cut in choose_cuts(index, None if asked is None else Fraction(asked))]


@pytest.mark.parametrize(
    ("seconds", "asked", "expected"),
    [
        (60, None, [10, 20, 30, 40, 45, 50, 55]),  # about 10 s, and 5 s in the last third
        (600, None, [*range(10, 480, 10), *range(480, 600, 5)]),  # but for two minutes at most
        (10, None, [4]),  # short sources are divided among workers, but into segments of at least 4 s
        (60, 10, [10, 20, 30, 40, 50]),
        (10, 2, [2, 4, 6, 8]),
    ],
)
def test_segments_have_the_usual_or_the_requested_length(seconds: int, asked: int | None, expected: list[int]) -> None:
    """With a keyframe every second, segments have the usual or requested length; with one keyframe there is no cut."""
    assert cuts_s(constant(seconds, list(range(seconds))), asked) == expected
    assert cuts_s(constant(seconds, [0]), asked) == []
    assert [usual_segment_s(Fraction(duration_s)) for duration_s in (10, 24, 600)] == [4, 6, 10]


def test_scene_changes_are_preferred_to_the_grid() -> None:
    """A keyframe off the regular grid near the target is preferred to one on the grid at the target."""
    keys: list[float] = [0, 2, 4, 6, 8, 10, 11.4, 13.4, 15.4, 17.4, 19.4, 21.4]
    (first, *_) = choose_cuts(constant(40, keys))
    assert float(first.ticks * TICK) == 11.4
    assert first.reason is CutReason.SCENE


def test_no_cut_near_a_repeated_time() -> None:
    """A cut never falls within reordering distance of a repeated timestamp."""
    fps, step = 25, 40
    pts = [n * step for n in range(40 * fps)]
    pts[10 * fps + 3] = pts[10 * fps + 2]
    index = index_of(pts, {n * fps for n in range(40)}, dts=[n * step for n in range(40 * fps)])
    cuts = choose_cuts(index)
    assert cuts
    assert all(abs(cut.entry.packet - (10 * fps + 3)) > REORDER_FRAMES for cut in cuts)


def test_flagged_packets_that_are_no_access_points_are_not_cut_at() -> None:
    """A keyframe flag alone is not enough for a cut: the bitstream decides."""
    index = constant(60, list(range(60)))
    index.kinds.update(dict.fromkeys(index.kinds, RandomAccess.NONE))
    assert choose_cuts(index) == ()


def test_a_clock_reset_is_undone() -> None:
    """Rule R1: after a step back of over a second, time continues; seeking uses the container's own clock."""
    pts = [n * 40 for n in range(100)] * 2
    index = index_of(pts, {0, 100}, dts=pts)
    assert index.shifts == (TimeShift(100, 4000),)
    assert list(index.times) == [n * 40 for n in range(200)]
    assert index.access_point(100).pts == 0


def test_packets_that_look_alike_are_known_as_such() -> None:
    """A sample that an edit list reads twice at one time is not unique; missing times are not shared."""
    index = index_of([0, 80, 160, 80, 160], {0, 1, 3}, dts=[-40, 0, 40, 0, 80])
    index.pos_bytes[:] = [0, 100, 200, 100, 300]
    assert [point.is_unique for point in index.access_points] == [True, False, False]
    index = index_of([MISSING, MISSING, 80], {0, 1, 2}, dts=[0, 40, 80])
    index.pos_bytes[:] = -1
    assert all(point.is_unique for point in index.access_points)


def test_the_index_has_the_times_that_are_shown() -> None:
    """The index has the times that no edit list discards; without any PTS, frames are counted and nothing is cut."""
    assert list(index_of([0, 40, 80, 120], {0}, discard={0, 1}).times) == [80, 120]
    index = index_of([MISSING] * 50, {0, 25}, dts=[MISSING] * 50)
    assert index.untimed
    assert list(index.times[:3]) == [0, 40, 80]
    assert choose_cuts(index, Fraction(1)) == ()


@given(st.lists(st.integers(5, 400), min_size=1, max_size=30), st.integers(1, 30), st.sampled_from([24, 25, 30, 50]))
def test_cuts_partition_the_track(gops_frames: list[int], segment_s: int, fps: int) -> None:
    """Whatever the GOPs, the segments hold every frame exactly once, and none is tiny."""
    keys, frames = set(), 0
    for gop in gops_frames:
        keys.add(frames)
        frames += gop
    step = 1000 // fps
    index = index_of([n * step for n in range(frames)], keys, fps=fps)
    cuts = choose_cuts(index, Fraction(segment_s))
    edges = [None, *(cut.ticks for cut in cuts), None]
    counts = [index.frames_between(a, b) for a, b in pairwise(edges)]
    assert sum(counts) == frames
    times = [index.first_ticks, *(cut.ticks for cut in cuts), index.end_ticks]
    if cuts:
        assert all((b - a) * TICK >= Fraction(segment_s, 2) for a, b in pairwise(times))
    assert all(cut.entry.packet in keys for cut in cuts)
    assert choose_cuts(index, Fraction(segment_s)) == cuts
    usual = [index.first_ticks, *(cut.ticks for cut in choose_cuts(index)), index.end_ticks]
    assert len(usual) == 2 or all((b - a) * TICK >= 4 for a, b in pairwise(usual))


@given(st.integers(2, 200), st.integers(1, 199), st.integers(0, 4))
def test_the_last_packet_reaches_past_the_end(frames: int, cut: int, beyond: int) -> None:
    """Decoding to the last packet covers every picture before the end, and the requested ones after it."""
    cut = min(cut, frames - 1)
    order = _b_pyramid(frames)
    index = index_of([n * 40 for n in order], {0})
    last = index.last_packet_before(cut * 40, beyond)
    decoded = {order[n] for n in range(last + 1)}
    assert set(range(min(frames, cut + beyond))) <= decoded


def _b_pyramid(frames: int) -> list[int]:
    """Return presentation places in decoding order, where each P picture precedes the three B pictures before it."""
    order = [0]
    for anchor in range(4, frames, 4):
        order += [anchor, anchor - 2, anchor - 3, anchor - 1]
    return order + [n for n in range(frames) if n not in set(order)]


@given(st.lists(st.integers(0, 100), max_size=80), st.integers(1, 60))
def test_overtaken_packets_are_counted(times: list[int], most: int) -> None:
    """For each packet, the earlier packets that are shown after it are counted, up to a limit."""
    counted = overtaken(np.array(times, dtype=np.int64), most)
    assert counted.tolist() == [min(most, sum(t > time for t in times[:n])) for n, time in enumerate(times)]


def test_more_pictures_are_held_where_packets_are_out_of_order() -> None:
    """The number of held pictures grows with how many overtake one, up to a limit; beyond, a picture counts as late."""
    film = [n * 40 for n in range(100)]
    found = {late: index_of([*film[1 : late + 1], film[0], *film[late + 1 :]], {0}) for late in (0, 1, 20, 32, 33)}
    assert {late: index.held_frames - REORDER_FRAMES for late, index in found.items()} == {
        **{late: late for late in (0, 1, 20, 32)},
        33: MOST_HELD_FRAMES - REORDER_FRAMES,
    }
    assert {late: index.late_frames for late, index in found.items()} == {0: 0, 1: 0, 20: 0, 32: 0, 33: 1}


def test_as_many_pictures_are_held_as_can_be_where_times_repeat() -> None:
    """If times repeat, the maximum is held, because packets do not show how far times are wrong."""
    assert index_of([0, 40, 40, 80], {0}).held_frames == MOST_HELD_FRAMES
