"""The runs of a track, and the one format chosen for them."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from codecfleet.actors.media.av_stream import FieldOrder
from codecfleet.actors.media.values import Colour, HdrStatic, StatedPicture, VideoFormat
from codecfleet.jobs.source.index import TrackIndex
from codecfleet.jobs.source.life import PictureLife, picture_life
from codecfleet.jobs.source.one_format import one_format, part_format, with_colours, with_life
from tests.unit.jobs.source.test_index_and_cuts import index_of

PLAIN = StatedPicture(
    width=64, height=48, pix_fmt="yuv420p", sample_aspect_ratio=None, colour=Colour(), hdr=HdrStatic(), interlaced=False
)
FIRST = VideoFormat(64, 48, "yuv420p", Fraction(25))


def index() -> TrackIndex:
    """Return an index of 40 pictures, with access points every ten."""
    return index_of([40 * number for number in range(40)], {0, 10, 20, 30})


def life_of(*pictures: StatedPicture, orders: Sequence[tuple[int, FieldOrder]] = ()) -> PictureLife:
    """Return the life of a track whose pictures change every ten packets."""
    marks = [(10 * number, number) for number in range(len(pictures))]
    return picture_life(index(), marks, dict(enumerate(pictures)), orders)


def with_matrix(matrix: int) -> StatedPicture:
    """Return a picture that states this matrix, or none (2)."""
    return replace(PLAIN, colour=Colour(matrix=matrix))


def matrices(first: int, *stated: int) -> list[int]:
    """Return the matrices of runs for a container, or a first picture, that states ``first``."""
    given = replace(FIRST, colour=Colour(matrix=first))
    return [run.colour.matrix for run in with_colours(life_of(*map(with_matrix, stated)), given).runs]


def test_a_track_that_never_changes_has_no_runs() -> None:
    """One header, several equal ones, or a change hidden by an edit list give no runs."""
    assert life_of(PLAIN).runs == ()
    assert life_of(PLAIN, PLAIN, PLAIN).runs == ()
    hidden = index_of([40 * number for number in range(40)], {0, 10}, discard=set(range(10, 40)))
    assert picture_life(hidden, [(0, 0), (10, 1)], {0: PLAIN, 1: with_matrix(1)}, ()).runs == ()


def test_runs_begin_where_something_changes() -> None:
    """A change and its return are two changes, with the time of the first picture shown."""
    wide = replace(PLAIN, sample_aspect_ratio=Fraction(4, 3))
    changes = life_of(PLAIN, wide, PLAIN).changes
    assert [(change.ticks, change.what, change.before, change.after) for change in changes] == [
        (400, "sample aspect ratio", "unspecified", "4/3"),
        (800, "sample aspect ratio", "4/3", "unspecified"),
    ]


def test_fields_change_within_a_run() -> None:
    """A change of fields begins at the packet that states it, without new headers."""
    orders = [(0, FieldOrder.PROGRESSIVE), (15, FieldOrder.TOP_FIRST)]
    (change,) = life_of(PLAIN, orders=orders).changes
    assert (change.ticks, change.after) == (600, "interlaced, top field first")


@pytest.mark.parametrize(
    ("first", "stated", "meant"),
    [
        (6, (6, 1), [6, 1]),
        (6, (6, 2, 1, 2), [6, 6, 1, 1]),
        (2, (2, 1), []),
        (9, (6, 1), [9, 1]),
        (1, (6, 1), [6, 1]),
    ],
)
def test_what_pictures_leave_out_others_state(first: int, stated: tuple[int, ...], meant: list[int]) -> None:
    """The container's value replaces that of the pictures for which it was written, unless pictures state it."""
    found = matrices(first, *stated)
    assert found == (meant or [1] * len(stated))


def test_full_range_must_be_stated() -> None:
    """Pictures without a range beside pictures of full range are limited."""
    full = replace(PLAIN, colour=Colour(range=2))
    assert [run.colour.range for run in with_colours(life_of(PLAIN, full), FIRST).runs] == [1, 2]


def test_the_one_format_loses_least() -> None:
    """The format has the deepest samples, finest chroma, largest size and its colours; interlaced if any picture is."""
    large = replace(PLAIN, width=128, height=96, pix_fmt="yuv420p10le", colour=Colour(range=1, matrix=1))
    small = replace(PLAIN, pix_fmt="yuv422p", colour=Colour(range=1, matrix=6), interlaced=True)
    life = with_colours(life_of(small, large), replace(FIRST, colour=small.colour))
    found = one_format(FIRST, life, with_life(index(), life))
    assert (found.width, found.height, found.pix_fmt) == (128, 96, "yuv422p10le")
    assert (found.colour.matrix, found.interlaced) == (1, True)


def test_the_index_has_colours_only_where_they_change() -> None:
    """The index states from which packet on colours apply."""
    same = with_colours(life_of(PLAIN, replace(PLAIN, interlaced=True)), FIRST)
    assert with_life(index(), same).colours == ()
    life = with_colours(life_of(with_matrix(6), with_matrix(1)), FIRST)
    assert [(packet, colour.matrix) for packet, colour in with_life(index(), life).colours] == [(0, 6), (10, 1)]


@pytest.mark.parametrize(
    ("start", "end", "matrices", "pix_fmt", "interlaced"),
    [
        (None, None, [6, 1], "yuv420p10le", True),
        (400, None, [1], "yuv420p10le", True),
        (None, 400, [6], "yuv420p", False),
        (390, 410, [6, 1], "yuv420p10le", True),
    ],
)
def test_a_part_has_the_format_of_its_own_pictures(
    start: int | None, end: int | None, matrices: list[int], pix_fmt: str, *, interlaced: bool
) -> None:
    """Changes outside the part have no effect in it."""
    later = replace(with_matrix(1), pix_fmt="yuv420p10le", interlaced=True)
    life = with_colours(life_of(with_matrix(6), later), replace(FIRST, colour=Colour(matrix=6)))
    whole = one_format(replace(FIRST, colour=Colour(matrix=6)), life, with_life(index(), life))
    part = life.during(start, end)
    found = part_format(whole, life, part, index())
    assert [run.colour.matrix for run in part.runs] == matrices
    assert (found.colour.matrix, found.pix_fmt, found.interlaced) == (matrices[0], pix_fmt, interlaced)
