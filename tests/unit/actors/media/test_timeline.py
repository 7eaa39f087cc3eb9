from collections import Counter
from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.media.timeline import (
    MOST_HELD_FRAMES,
    REORDER_FRAMES,
    TimestampRepair,
    nominal_ticks,
    spread,
    tick_divisor,
    whole_ticks,
)
from codecfleet.jobs.verify.reference.reference_decode import divisor_of
from codecfleet.jobs.verify.reference.reference_decode import repair as repair_all

NOMINAL = Fraction(40)
MILLISECOND = Fraction(1, 1000)


def repair(stamps: list[int | None], **options: object) -> list[tuple[int, int]]:
    """Push stamps through a repair; return (time, index in the decoder's output order)."""
    repair: TimestampRepair[int] = TimestampRepair(nominal=NOMINAL, **options)  # type: ignore[arg-type]
    out = [pair for place, ticks in enumerate(stamps) for pair in repair.push(place, ticks)]
    return [*out, *repair.finish()]


def test_missing_times_at_the_start_precede_the_first_known() -> None:
    """Rule R2: without a previous frame, times are counted back from the first known time."""
    assert repair([None, None, 100]) == [(20, 0), (60, 1), (100, 2)]


def test_an_untimed_track_is_counted() -> None:
    """Rule R2: if no frame has a time, frame n is at n exact nominal durations."""
    repair: TimestampRepair[int] = TimestampRepair(nominal=Fraction(1001, 30), untimed=True)
    out = [pair for place in range(31) for pair in repair.push(place, None)]
    out += repair.finish()
    assert [t for t, _ in out] == [round(n * Fraction(1001, 30)) for n in range(31)]


def test_repeats_are_spread_up_to_the_next_time() -> None:
    """Rule R4: three frames at 0 before one at 90 are shown at 0, 30 and 60."""
    assert [t for t, _ in repair([0, 0, 0, 90])] == [0, 30, 60, 90]


def divisor(times: list[int], time_base: Fraction = MILLISECOND) -> int:
    """Return the number by which the index divides the ticks of a track with these times."""
    groups = sorted(Counter(times).items())
    return tick_divisor([(count, after - time) for (time, count), (after, _) in pairwise(groups)], time_base)


def test_repeats_that_find_no_room_are_given_finer_ticks() -> None:
    """Rule R4: two frames at 1 between 0 and 2 are shown at 1 and 1.5, in half ticks; other frames do not move."""
    assert divisor([0, 1, 1, 2]) == 2
    assert [t for t, _ in repair([0, 2, 2, 4])] == [0, 2, 3, 4]
    assert divisor([0, 1, 1, 2], Fraction(1, 10**9)) == 1


def test_a_divided_tick_is_one_that_ffmpeg_can_say() -> None:
    """Rule R4: however many frames share a time, the tick's denominator has at most 31 bits."""
    crowd = [0] * 80_000 + [1]
    for tick in (Fraction(1001, 30_000), Fraction(7, 90_000), MILLISECOND):
        by = divisor(crowd, tick)
        assert by == divisor_of(crowd, tick)
        assert (tick / by).denominator < 1 << 31


@given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.randoms())
def test_frames_whose_time_is_their_own_never_move(times: list[int], random: object) -> None:
    """Rule R4: a frame with a distinct time never moves, whatever repeats around it and in whatever order."""
    times.sort()
    by = divisor(times)
    assert by == divisor_of(times, MILLISECOND)
    shuffled = _shuffled(times[:REORDER_FRAMES], random) + times[REORDER_FRAMES:]
    ticks = [time * by for time in shuffled]
    out = repair(list(ticks), expected=sorted(ticks))
    own = {time * by for time, count in Counter(times).items() if count == 1}
    assert {ticks[place]: time for time, place in out if ticks[place] in own} == {time: time for time in own}
    assert all(a < b for a, b in pairwise(time for time, _ in out))
    reference = repair_all(shuffled, NOMINAL / by, divisor=by)
    assert [time for time, _ in out] == list(reference.times)
    assert [place for _, place in out] == list(reference.order)


@given(st.lists(st.integers(0, 60), min_size=2, max_size=60), st.data())
def test_frames_that_share_a_time_get_the_same_ones_in_any_segment(times: list[int], data: st.DataObject) -> None:
    """Rule R4: a repair that starts at a cut gives the same times, because cuts avoid repeated times."""
    ticks = sorted(time * divisor(times) for time in times)
    cut = data.draw(st.sampled_from(sorted(set(ticks))))
    whole = [time for time, _ in repair(list(ticks), expected=ticks)]
    behind = [time for time in ticks if time >= cut]
    assert [time for time, _ in repair(list(behind), expected=behind)] == whole[len(ticks) - len(behind) :]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True), st.randoms())
def test_disorder_within_a_picture_buffer_is_sorted(times: list[int], random: object) -> None:
    """Rule R3: frames out of order by at most a picture buffer are sorted, and keep their times."""
    times.sort()
    shuffled = [
        t
        for start in range(0, len(times), REORDER_FRAMES)
        for t in _shuffled(times[start : start + REORDER_FRAMES], random)
    ]
    out = repair(list(shuffled), expected=times)
    assert [t for t, _ in out] == times
    assert [shuffled[place] for _, place in out] == times


@given(st.lists(st.integers(0, 60), min_size=1, max_size=60, unique=True), st.randoms(), st.data())
def test_a_missing_time_among_disorder_is_that_of_the_frame_before(
    numbers: list[int], random: object, data: st.DataObject
) -> None:
    """Rules R2 to R4: the index does not expect a frame without a PTS, and a frame that came too early still waits."""
    times = sorted(40 * number for number in numbers)
    stamps: list[int | None] = [*_shuffled(times[:REORDER_FRAMES], random), *times[REORDER_FRAMES:]]
    for _ in range(data.draw(st.integers(1, 3))):
        stamps.insert(data.draw(st.integers(1, len(stamps))), None)
    out = repair(list(stamps), expected=times, held_frames=MOST_HELD_FRAMES)
    reference = repair_all(stamps, NOMINAL)
    assert out == list(zip(reference.times, reference.order, strict=True))


def test_a_missing_time_takes_no_expected_frames_place() -> None:
    """Rule R2: a frame without a PTS gets the next expected time; the frame that states this time is kept, too."""
    out = repair([0, None, None, 40], expected=[0, 40], held_frames=MOST_HELD_FRAMES)
    assert out == [(0, 0), (40, 1), (60, 3), (80, 2)]


@given(st.integers(1, MOST_HELD_FRAMES))
def test_disorder_is_sorted_as_far_as_frames_are_held(late: int) -> None:
    """Rule R3: a frame is sorted if no more later frames came first than are held; after one more it is late."""
    times = list(range(0, 40 * (late + 2), 40))
    stamps = [*times[1:], times[0]]
    assert next(place for _, place in repair(list(stamps), expected=times, held_frames=late + 1)) == late + 1
    assert next(place for _, place in repair(list(stamps), expected=times, held_frames=late)) == 0


@given(st.lists(st.none() | st.integers(0, 500), max_size=50))
def test_every_frame_comes_out_once_at_increasing_times(stamps: list[int | None]) -> None:
    """For any timestamps, no frame is lost or repeated, and times strictly increase."""
    known = sorted(s for s in stamps if s is not None)
    out = repair(list(stamps), expected=known)
    assert sorted(place for _, place in out) == list(range(len(stamps)))
    times = [t for t, _ in out]
    assert all(a < b for a, b in pairwise(times))


class _ByEveryRule(TimestampRepair[int]):
    """A repair that applies every rule to every frame, even if no rule changes the frame."""

    def _is_regular(self, ticks: int) -> bool:  # noqa: ARG002 - ignored
        return False


@st.composite
def _mostly_sound(draw: st.DrawFn) -> list[int | None]:
    """Return times in small steps; now and then a time repeats, steps back, leaps ahead or is missing."""
    steps = draw(st.lists(st.sampled_from([40, 40, 40, 80, -40, 1, 0, -200, 900, None]), max_size=60))
    stamps: list[int | None] = []
    time = draw(st.integers(-50, 50))
    for step in steps:
        time += step or 0
        stamps.append(None if step is None else time)
    return stamps


@given(stamps=_mostly_sound(), untimed=st.booleans(), data=st.data())
def test_what_goes_on_is_what_every_rule_comes_to(
    stamps: list[int | None], data: st.DataObject, *, untimed: bool
) -> None:
    """Each push settles the same frames at the same times, with the same counts, as applying every rule does."""
    known = [ticks for ticks in stamps if ticks is not None]
    expected = data.draw(
        st.just(sorted(known)) | st.just([]) | st.lists(st.integers(-50, 2500), max_size=60).map(sorted)
    )
    quick = TimestampRepair[int](nominal=NOMINAL, expected=expected, untimed=untimed)
    thorough = _ByEveryRule(nominal=NOMINAL, expected=expected, untimed=untimed)
    for place, ticks in enumerate(stamps):
        assert quick.push(place, ticks) == thorough.push(place, ticks)
    assert list(quick.finish()) == list(thorough.finish())
    assert quick.counts == thorough.counts


def test_a_frame_that_goes_on_settles_the_one_before() -> None:
    """In a regular stream every push but the first returns one frame, with or without expected times."""
    stamps = list(range(0, 4000, 40))
    for expected in (stamps, []):
        repair = TimestampRepair[int](nominal=NOMINAL, expected=expected)
        assert [len(repair.push(place, ticks)) for place, ticks in enumerate(stamps)] == [0] + [1] * 99


@given(st.integers(0, 1000), st.integers(1, 20), st.none() | st.integers(1, 500))
def test_spread_stays_before_the_next_frame(time: int, count: int, gap: int | None) -> None:
    """Spread times begin at the shared time, are distinct, and precede the next frame if possible."""
    following = None if gap is None else time + gap
    times = spread(time, count, following, NOMINAL)
    assert times[0] == time
    assert len(set(times)) == count
    if gap is not None and gap >= count:
        assert times[-1] < time + gap


def test_nominal_durations_are_exact() -> None:
    """30000/1001 fps in ticks of 90 kHz is 3003 ticks; a duration never becomes 0."""
    assert nominal_ticks(Fraction(30000, 1001), Fraction(1, 90000)) == 3003
    assert whole_ticks(Fraction(1, 1000)) == 1


def _shuffled(items: list[int], random: object) -> list[int]:
    copy = list(items)
    random.shuffle(copy)  # type: ignore[attr-defined]
    return copy
