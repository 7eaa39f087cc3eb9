"""Where tracks are cut, and the times that their fragments state."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.package.samples import SampleCut, Samples, cut_at, cut_on_grid, sound_cuts_s

TICK = Fraction(1, 24_000)


def samples(pts: list[int], keys: set[int] | None = None, *, end: int | None = None) -> Samples:
    """Return samples of one byte each; ``keys`` are numbers in decoding order."""
    is_key = np.array([keys is None or number in keys for number in range(len(pts))])
    times = np.array(pts, dtype=np.int64)
    return Samples(TICK, times, np.ones_like(times), is_key, max(pts) + 1 if end is None else end)


@st.composite
def films(draw: st.DrawFn) -> Samples:
    """Draw pictures at uneven times, in closed GOPs whose pictures are decoded in any order after their keyframe."""
    steps = draw(st.lists(st.integers(1, 3000), min_size=1, max_size=60))
    times = np.cumsum([draw(st.integers(0, 99)), *steps]).tolist()
    keys = sorted({0, *draw(st.sets(st.integers(0, len(times) - 1), max_size=12))})
    order: list[int] = []
    for begin, end in zip(keys, [*keys[1:], len(times)], strict=True):
        order += [times[begin], *draw(st.permutations(times[begin + 1 : end]))]
    return samples(order, set(keys), end=times[-1] + draw(st.integers(1, 3000)))


@given(films(), st.fractions(Fraction(1, 100), Fraction(3)))
def test_segments_begin_at_the_first_keyframe_at_or_after_each_multiple(film: Samples, segment_s: Fraction) -> None:
    """Each segment has such a keyframe, each such keyframe begins a segment, and no sample is left out."""
    cuts = cut_on_grid(film, segment_s)
    keys = [int(each) for each in film.pts[film.is_key]]
    multiples = [keys[0] + n * segment_s / TICK for n in range(int((keys[-1] - keys[0]) * TICK / segment_s) + 1)]
    due = sorted({next(key for key in keys if key >= multiple) for multiple in multiples})
    assert [int(film.pts[cut.fragments[0]]) for cut in cuts] == due
    spans = [span for cut in cuts for span in cut.spans]
    assert [begin for begin, _ in spans] == np.flatnonzero(film.is_key).tolist()
    assert [end for _, end in spans] == [*(begin for begin, _ in spans[1:]), len(film.pts)]


@given(films())
def test_fragments_adjoin_at_the_times_of_their_first_pictures(film: Samples) -> None:
    """Decoding times and durations cover the track, and no picture is shown before it is decoded."""
    offsets = film.pts - film.decode + film.delay
    assert offsets.min() == 0
    assert (film.decode[film.is_key] == film.pts[film.is_key]).all()
    assert (film.decode[:-1] + film.durations[:-1] == film.decode[1:]).all()
    assert film.decode[-1] + film.durations[-1] == film.end


def test_sound_is_cut_at_the_first_frame_at_or_after_each_boundary() -> None:
    """A frame at the boundary begins the segment; boundaries outside the sound begin none."""
    sound = samples([0, 1024, 2048, 3072, 4096])
    boundaries_s = [each * TICK for each in (-5, 1024, 1025, 2000, 4097)]
    assert cut_at(sound, boundaries_s) == [SampleCut((0,), 1), SampleCut((1,), 2), SampleCut((2,), 5)]


@pytest.mark.parametrize(
    ("end", "cuts"),
    [
        ("4.5", ["2", "4"]),  # it ends before the video
        ("6.24", ["2", "4"]),  # the last frame of most encoders ends after the video
        ("6.26", ["2", "4", "6"]),
        ("11", ["2", "4", "6", "8", "10"]),
    ],
)
def test_sound_that_goes_on_after_the_video_is_cut_too(end: str, cuts: list[str]) -> None:
    """No segment of sound is much longer than a segment of video, whatever the length of the sound."""
    video_s = [Fraction(each) for each in ("0", "2", "4", "5.5")]
    assert sound_cuts_s(video_s, Fraction(end), Fraction(2)) == [Fraction(each) for each in cuts]


def test_sound_is_not_cut_within_a_long_segment_of_video() -> None:
    """Segments of sound and video begin together, even if a keyframe is late."""
    video_s = [Fraction(each) for each in (0, 2, 7)]
    assert sound_cuts_s(video_s, Fraction(9), Fraction(2)) == [2, 8]


@pytest.mark.parametrize(("first", "hidden"), [(-1024, 1024), (0, 0), (30, 0)])
def test_what_is_before_time_0_is_hidden(first: int, hidden: int) -> None:
    """Priming is hidden; sound that begins late has nothing to hide."""
    assert samples([first, first + 1024]).hidden == hidden


def test_a_keyframe_with_leading_pictures_is_no_start() -> None:
    """Decoding can begin at a sample only if all earlier ones are shown before it, and all later ones after it."""
    assert samples([0, 3, 2, 1, 6, 4, 5, 7]).is_start.tolist() == [True, False, False, False, False, False, False, True]
