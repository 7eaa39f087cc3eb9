"""Which ranges are decoded for stills."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.bitstream.access_points import RandomAccess
from codecfleet.jobs.board.events import Run
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.stills.shots import ShotList, plan_shots

from ..source.test_index_and_cuts import constant

KEYS_S = [0, 2, 4, 6, 8]
STEP = 40


def _index(kind: RandomAccess = RandomAccess.IDR, first: RandomAccess = RandomAccess.IDR) -> TrackIndex:
    """Return ten seconds with a keyframe every two seconds, all of one kind except the first."""
    index = constant(10, [float(second) for second in KEYS_S])
    return replace(index, kinds=dict.fromkeys(index.kinds, kind) | {0: first})


def _plan(index: TrackIndex, moments: list[int], most_pictures: int = 100) -> ShotList:
    return plan_shots(index, moments, start_s=None, end_s=None, segment_s=None, most_pictures=most_pictures)


def _entry_ms(shots: ShotList, number: int) -> int:
    """Return the time of the picture from which a range is decoded."""
    entry = shots.decode(Run(number, number, 0, 1)).entry
    return 0 if entry is None else entry.packet * STEP


def test_an_idr_is_where_decoding_begins_and_it_ends_with_what_is_wanted() -> None:
    """Only groups of wanted pictures are read, from their IDR picture to a few packets past the picture."""
    shots = _plan(_index(), [2500, 8100])
    assert [shot.segment.start_ticks for shot in shots.shots] == [2000, 8000]
    assert [shot.segment.end_ticks for shot in shots.shots] == [2481, 8081]
    assert [_entry_ms(shots, number) for number in (0, 1)] == [2000, 8000]
    assert not shots.adjoin
    last = shots.decode(Run(0, 0, 0, 1)).last_packet
    assert last is not None
    assert 2480 <= last * STEP < 2800


def test_other_access_points_are_entered_one_before() -> None:
    """If a keyframe does not reset the decoder, decoding starts at the previous one; with damage, one further back."""
    shots = _plan(_index(RandomAccess.CRA), [6500])
    assert _entry_ms(shots, 0) == 4000
    assert shots.decode(Run(0, 0, 1, 2)).entry is None
    # An IDR picture before keyframes that guarantee nothing is the entry, if it is near.
    shots = _plan(_index(RandomAccess.INTRA_ONLY), [2500])
    assert (shots.adjoin, _entry_ms(shots, 0)) == (False, 0)


def test_without_any_promise_everything_is_decoded() -> None:
    """H.264 whose keyframes guarantee nothing is decoded as a whole, and seams are compared."""
    index = constant(20, [float(second) for second in range(20)])
    index = replace(index, kinds=dict.fromkeys(index.kinds, RandomAccess.INTRA_ONLY))
    shots = _plan(index, [500, 18_100])
    assert shots.adjoin
    assert (shots.shots[0].segment.start_ticks, shots.shots[-1].segment.end_ticks) == (None, None)
    assert all(left.segment.end_ticks == right.segment.start_ticks for left, right in pairwise(shots.shots))
    assert sum(shot.segment.frames for shot in shots.shots) == 500
    assert [moment for shot in shots.shots for moment in shot.moments] == [500, 18_100]


@pytest.mark.parametrize(
    ("moments", "most", "expected"),
    [
        ([100, 2100, 6100, 6500, 8100], 100, [(100, 2100), (6100, 6500, 8100)]),
        ([0, 40, 50, 60, 80, 120], 2, [(0, 40, 50, 60), (80, 120)]),
    ],
)
def test_neighbours_are_decoded_together(moments: list[int], most: int, expected: list[tuple[int, ...]]) -> None:
    """A gap or too many pictures end a range; a picture that stays on screen counts once."""
    shots = _plan(_index(), moments, most_pictures=most)
    assert [shot.moments for shot in shots.shots] == expected
    starts = [shot.segment.start_ticks for shot in shots.shots]
    assert starts == [None, 80 if most == 2 else 6000]


@given(
    st.lists(st.integers(0, 9_999), min_size=1, max_size=40),
    st.integers(1, 6),
    st.sampled_from([RandomAccess.IDR, RandomAccess.CRA, RandomAccess.INTRA_ONLY]),
)
def test_every_moment_is_in_the_range_that_shows_it(moments: list[int], most: int, kind: RandomAccess) -> None:
    """Each moment is in one range, in order, and the picture on screen then is in that range."""
    moments.sort()
    index = _index(kind, first=kind)
    shots = _plan(index, moments, most)
    assert [moment for shot in shots.shots for moment in shot.moments] == moments
    for number, shot in enumerate(shots.shots):
        assert len({index.shown_at(moment) for moment in shot.moments}) <= most
        assert shot.segment.segment == number
        for moment in shot.moments:
            shown = index.shown_at(moment)
            assert shown == max(ticks for ticks in range(0, 10_000, STEP) if ticks <= moment)
            start, end = shot.segment.start_ticks, shot.segment.end_ticks
            assert start is None or start <= shown
            assert end is None or shown < end
            assert _entry_ms(shots, number) <= shown


def test_a_part_begins_with_its_own_pictures() -> None:
    """With a start in the middle of a group, ranges begin there, decoded from an earlier safe entry."""
    index = _index()
    shots = plan_shots(index, [5000, 9000], start_s=Fraction(5), end_s=Fraction(10), segment_s=None, most_pictures=100)
    assert shots.shots[0].segment.start_ticks == 5000
    assert _entry_ms(shots, 0) <= 4000
