"""Frame rates: the source picture for each output picture; cuts change nothing."""

from bisect import bisect_right
from fractions import Fraction
from itertools import chain, pairwise
from math import ceil

from hypothesis import assume, given
from hypothesis import strategies as st

from codecfleet.actors.segment.frame_rate import CountedGrid, FrameRate, Pacer

NOMINALS = st.fractions(Fraction(1, 2), 200, max_denominator=1001)
RATES = st.sampled_from([Fraction(text) for text in ("1", "10", "24000/1001", "25", "30000/1001", "50", "240")])


@st.composite
def films(draw: st.DrawFn) -> tuple[FrameRate, list[int]]:
    """Draw the times of a film's pictures, with gaps, and a rate for it; a tick is a millisecond."""
    times = [draw(st.integers(-5000, 10**12))]
    for step in draw(st.lists(st.sampled_from([1, 17, 33, 34, 40, 41, 42, 700, 5000]), max_size=60)):
        times.append(times[-1] + step)
    nominal, fps = draw(NOMINALS), draw(RATES)
    step_ticks = 1000 / fps
    end_ticks = times[-1] + max(1, round(nominal))
    return FrameRate(fps, times[0], step_ticks, min(step_ticks, nominal) / 2, end_ticks), times


def paced(rate: FrameRate, times: list[int], wanted: range) -> list[tuple[int, int]]:
    """Return (number, shown source time) of output pictures; each source picture is represented by its time."""
    pacer: Pacer[int] = Pacer(rate, wanted)
    return [*chain.from_iterable(pacer.push(time, time) for time in times), *pacer.finish()]


@given(films())
def test_each_picture_shows_what_is_on_screen_shortly_after_it(film: tuple[FrameRate, list[int]]) -> None:
    """An output picture shows the last source picture at or before its time plus half the shorter picture duration."""
    rate, times = film
    found = paced(rate, times, range(rate.pictures))
    assert [number for number, _ in found] == list(range(rate.pictures))
    for number, shown in found:
        at = times[0] + number * rate.step_ticks + rate.lead_ticks
        assert shown == times[max(0, bisect_right(times, at) - 1)]
    assert times[0] + (rate.pictures - 1) * rate.step_ticks + rate.lead_ticks < rate.end_ticks or rate.pictures == 1
    assert times[0] + rate.pictures * rate.step_ticks + rate.lead_ticks >= rate.end_ticks


@given(films(), st.data())
def test_segments_that_begin_with_a_picture_need_none_from_before_it(
    film: tuple[FrameRate, list[int]], data: st.DataObject
) -> None:
    """However a film is cut at its pictures, its segments together give the output pictures of the whole."""
    rate, times = film
    cuts = sorted(data.draw(st.sets(st.sampled_from(times))) - {times[0]})
    numbers = [0, *(rate.following(cut) for cut in cuts), rate.pictures]
    made = [
        each
        for (begin, end), (first, stop) in zip(
            pairwise([times[0], *cuts, rate.end_ticks]), pairwise(numbers), strict=True
        )
        for each in paced(rate, [time for time in times if begin <= time < end], range(first, min(stop, rate.pictures)))
    ]
    assert made == paced(rate, times, range(rate.pictures))


@given(films(), st.data())
def test_a_segment_may_begin_anywhere_with_what_is_on_screen(
    film: tuple[FrameRate, list[int]], data: st.DataObject
) -> None:
    """A film cut between two output pictures gives the same output if both parts get the picture shown there."""
    rate, times = film
    cut = data.draw(st.integers(0, rate.pictures))
    assume(0 < cut < rate.pictures)
    start = rate.chosen_at(cut)
    lead = max(0, bisect_right(times, start) - 1)
    left = [time for time in times if time < start]
    whole = paced(rate, times, range(rate.pictures))
    assert paced(rate, left or times[:1], range(cut)) == whole[:cut]
    assert paced(rate, times[lead:], range(cut, rate.pictures)) == whole[cut:]


SOURCE_RATES = st.sampled_from([Fraction(24000, 1001), Fraction(25), Fraction(30000, 1001), Fraction(60)])


@given(SOURCE_RATES, st.integers(1, 4), st.sampled_from([1, -1]), st.lists(st.integers(-1, 1), min_size=1, max_size=99))
def test_rounded_times_neither_repeat_nor_drop(fps: Fraction, times: int, power: int, jitter: list[int]) -> None:
    """At a multiple of the source's rate all pictures repeat alike, at a fraction every N-th is shown.

    This holds although the source's times are rounded.
    """
    shown = [0, *(round(place * 1000 / fps) + off for place, off in enumerate(jitter, start=1))]
    wanted, more = fps * Fraction(times) ** power, power > 0
    step_ticks, nominal = 1000 / wanted, 1000 / fps
    rate = FrameRate(wanted, shown[0], step_ticks, min(step_ticks, nominal) / 2, shown[-1] + round(nominal))
    # the end is rounded, too
    found = [shown.index(time) for _, time in paced(rate, shown, range(rate.pictures))][:-times]
    due = [place // times if more else place * times for place in range(len(found))]
    assert found == due


def test_the_last_picture_is_there_if_the_film_goes_on_where_it_is_chosen() -> None:
    """Three pictures of 40 ms (120 ms) give four at 30 per second; the last is chosen at 116 2/3 ms."""
    rate = FrameRate(Fraction(30), 0, Fraction(100, 3), Fraction(50, 3), 120)
    assert rate.pictures == 4
    assert paced(rate, [0, 40, 80], range(4)) == [(0, 0), (1, 40), (2, 80), (3, 80)]


@given(st.fractions(1, 60, max_denominator=1001), st.integers(1, 100))
def test_a_keyframe_is_the_first_picture_at_or_after_a_multiple(interval: Fraction, count: int) -> None:
    """The only keyframes are picture 0, which begins a segment, and the first picture from each multiple on."""
    grid = CountedGrid(interval)
    found = {number for number in range(1, count) if grid.is_keyframe(number, number - 1)}
    due = {ceil(multiple * interval) for multiple in range(1, count)}
    assert found == {number for number in due if number < count}
    assert grid.is_keyframe(0, None)
    assert all(grid.following(number) == min(each for each in due | {0} if each >= number) for number in range(count))
