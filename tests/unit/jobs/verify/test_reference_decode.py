"""The rules of docs/timeline.md, over every kind of clock a decoder may report."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.verify.reference.reference_decode import (
    FrameStamp,
    Nominal,
    PacketStamp,
    ResetClock,
    divisor_of,
    repair,
)

MILLISECOND = Fraction(1, 1000)
FORTY_MS = Nominal(Fraction(40))

nominals = st.fractions(min_value=Fraction(1, 4), max_value=5000).map(Nominal)
stamps = st.lists(st.one_of(st.none(), st.integers(-(10**6), 10**6)), max_size=60)


def times_of(*pts: int | None, nominal: Nominal = FORTY_MS) -> list[int]:
    """Repair frames with these PTSs and return their times as presented."""
    return list(repair([FrameStamp(p) for p in pts], nominal).times)


@given(stamps, nominals)
def test_times_strictly_increase_and_no_frame_is_lost(pts: list[int | None], nominal: Nominal) -> None:
    """Whatever the decoder says, every frame gets a time of its own."""
    timeline = repair([FrameStamp(p) for p in pts], nominal)
    assert sorted(timeline.order) == list(range(len(pts)))
    assert all(earlier < later for earlier, later in pairwise(timeline.times))


@given(st.lists(st.integers(-(10**6), 10**6), unique=True, max_size=60), nominals)
def test_distinct_times_are_kept(pts: list[int], nominal: Nominal) -> None:
    """A track without oddities is only sorted, and only the disorder is counted."""
    timeline = repair([FrameStamp(p) for p in pts], nominal)
    assert list(timeline.times) == sorted(pts)
    assert [pts[place] for place in timeline.order] == sorted(pts)
    assert (timeline.missing, timeline.repeated) == (0, 0)


@given(stamps, nominals)
def test_repairing_twice_changes_nothing(pts: list[int | None], nominal: Nominal) -> None:
    """Repaired times need no repair."""
    once = repair([FrameStamp(p) for p in pts], nominal).times
    assert repair([FrameStamp(t) for t in once], nominal).times == once


@given(stamps, nominals, st.integers(-(10**9), 10**9))
def test_a_later_start_moves_every_time_alike(pts: list[int | None], nominal: Nominal, shift: int) -> None:
    """Times depend on differences only; a track without any PTS starts at 0 wherever it lies."""
    if all(p is None for p in pts):
        return
    there = repair([FrameStamp(p, offset=shift) for p in pts], nominal).times
    assert there == tuple(t + shift for t in repair([FrameStamp(p) for p in pts], nominal).times)


@given(stamps, nominals)
def test_frames_of_one_time_keep_the_decoders_order(pts: list[int | None], nominal: Nominal) -> None:
    """The sort is stable."""
    known = [FrameStamp(p) for p in pts if p is not None]
    order = repair(known, nominal).order
    assert all(a < b for a, b in pairwise(order) if known[a].pts == known[b].pts)


def test_a_missing_time_follows_the_frame_before_it() -> None:
    """R2: one nominal duration later, in the decoder's output order, and again for the next."""
    assert times_of(0, None, None, 200) == [0, 40, 80, 200]


def test_leading_frames_without_time_lead_up_to_the_first_known_one() -> None:
    """R2: a nominal duration each, counted backwards."""
    assert times_of(None, None, 200) == [120, 160, 200]


def test_a_track_without_any_time_runs_at_its_nominal_rate() -> None:
    """R2: exact multiples, rounded one by one, so that nothing drifts."""
    assert times_of(*[None] * 4, nominal=Nominal(Fraction(100, 3))) == [0, 33, 67, 100]


def test_repeated_times_share_the_time_until_the_next_one() -> None:
    """R4: spread evenly, rounded down."""
    assert times_of(0, 0, 0, 100) == [0, 33, 66, 100]


def test_repeated_times_without_room_push_what_follows() -> None:
    """R4: nominal steps where the next time is too close and the ticks are not divided, and the next stays behind."""
    assert times_of(0, 0, 0, 2, 90) == [0, 40, 80, 81, 90]


def test_ticks_are_divided_where_repeated_times_find_no_room() -> None:
    """R4: by as much as the most crowded time needs, but never into less than a nanosecond."""
    assert divisor_of([0, 0, 0, 100], MILLISECOND) == 1
    assert divisor_of([0, 1, 1, 1, 2, 2, 3, 3], MILLISECOND) == 3
    assert divisor_of([0, 1, 1, 1, 2], Fraction(1, 500_000_000)) == 2
    stamps = [FrameStamp(pts) for pts in (0, 1, 1, 1, 2)]
    assert repair(stamps, FORTY_MS, divisor=3).times == (0, 3, 4, 5, 6)


def test_repeated_times_at_the_end_step_by_the_nominal_duration() -> None:
    """R4: there is nothing to share, so they go on as the frame rate says, in whole ticks."""
    assert times_of(0, 100, 100, 100, nominal=Nominal(Fraction(100, 3))) == [0, 100, 133, 166]


def packets(*dts: int | None) -> list[PacketStamp]:
    """Return packets with these DTSs, each to be shown 80 ms later."""
    return [PacketStamp(pts=None if d is None else d + 80, dts=d) for d in dts]


def clock_offsets(stamps: list[PacketStamp], nominal: Nominal, time_base: Fraction) -> list[int]:
    """Return the offset of every packet's timestamps: rule R1 over a whole track in demux order."""
    clock = ResetClock(nominal, time_base)
    return [clock.advance(stamp) for stamp in stamps]


def test_a_clock_reset_goes_on_where_the_clock_stood() -> None:
    """R1: the packet after the reset follows the one before it by the nominal duration, twice if it happens twice."""
    assert clock_offsets(packets(5000, 5040, 0, 40, 8000, 10), FORTY_MS, MILLISECOND) == [0, 0, 5080, 5080, 5080, 13110]


def test_a_step_back_of_a_second_or_less_is_disorder_and_no_reset() -> None:
    """R1: only more than one second counts."""
    assert clock_offsets(packets(5000, 4000, 4500), FORTY_MS, MILLISECOND) == [0, 0, 0]
    assert clock_offsets(packets(5000, 3999), FORTY_MS, MILLISECOND) == [0, 1041]


def test_packets_without_a_dts_do_not_look_like_a_reset() -> None:
    """R1: Matroska leaves the first DTSs out, and at one frame a second their PTSs are seconds ahead of the clock."""
    at_1_fps = [PacketStamp(0, None), PacketStamp(4000, None), PacketStamp(2000, 0), PacketStamp(1000, 1000)]
    assert clock_offsets(at_1_fps, Nominal(Fraction(1000)), MILLISECOND) == [0, 0, 0, 0]


def test_packets_an_edit_list_leaves_out_are_not_looked_at() -> None:
    """R1: mov files read samples again for the next edit, with their old timestamps."""
    again = [PacketStamp(9000, 9000), PacketStamp(0, 0, discarded=True), PacketStamp(9040, 9040)]
    assert clock_offsets(again, FORTY_MS, MILLISECOND) == [0, 0, 0]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=60), nominals)
def test_a_repaired_clock_never_steps_back_by_more_than_a_second(dts: list[int], nominal: Nominal) -> None:
    """R1 leaves no reset behind."""
    offsets = clock_offsets(packets(*dts), nominal, MILLISECOND)
    repaired = [d + offset for d, offset in zip(dts, offsets, strict=True)]
    assert all(earlier - later <= 1000 for earlier, later in pairwise(repaired))


def test_counts_say_what_was_repaired() -> None:
    """Every application of a rule is counted."""
    timeline = repair(
        [FrameStamp(0), FrameStamp(80), FrameStamp(40), FrameStamp(None), FrameStamp(200)], FORTY_MS, resets=2
    )
    assert (timeline.resets, timeline.missing, timeline.disordered, timeline.repeated) == (2, 1, 1, 1)
