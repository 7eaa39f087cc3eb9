from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.carry.chapters import chapters_in_a_row, chapters_of_part, row_losses
from codecfleet.jobs.carry.containers import container_for
from codecfleet.jobs.source.tracks import Chapter

Span = tuple[float, float, str]


def chapter(start: float, end: float, title: str = "") -> Chapter:
    """Return a chapter, in seconds; without a title it has no tags."""
    return Chapter(Fraction(start), Fraction(end), (("title", title),) if title else ())


def row(*spans: Span, end: float | None) -> list[Span]:
    """Return chapters without gaps in a film that ends at ``end``."""
    chapters = [chapter(*span) for span in spans]
    found = chapters_in_a_row(chapters, Fraction(0), None if end is None else Fraction(end))
    return [(float(each.start_s), float(each.end_s), dict(each.tags).get("title", "")) for each in found]


@pytest.mark.parametrize(
    ("chapters", "end", "written"),
    [
        ([(0, 5, "A"), (5, 10, "B")], 10, [(0, 5, "A"), (5, 10, "B")]),
        ([(1, 5, "A"), (6, 9, "B")], 10, [(0, 1, ""), (1, 5, "A"), (5, 6, ""), (6, 9, "B")]),
        ([(1, 5, ""), (5, 9, "B")], 10, [(0, 1, ""), (1, 5, ""), (5, 9, "B")]),
        ([(0, 9, "A"), (2, 4, "B")], 10, [(0, 2, "A"), (2, 4, "B")]),
        ([(5, 9, "B"), (0, 5, "A")], 10, [(0, 5, "A"), (5, 9, "B")]),
        ([(0, 0, "A"), (3, 3, "B")], 10, [(0, 3, "A"), (3, 10, "B")]),
        ([(0, 20, "A"), (10, 30, "late")], 10, [(0, 10, "A")]),
        ([(0, 20, "A"), (30, 40, "B")], None, [(0, 20, "A"), (20, 30, ""), (30, 40, "B")]),
    ],
)
def test_chapters_of_a_row_lie_end_to_end(chapters: list[Span], end: float | None, written: list[Span]) -> None:
    """Each chapter keeps its beginning; gaps get no title; no chapter lies after a known end of the film."""
    assert row(*chapters, end=end) == written


@given(
    spans=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=8),
    end=st.none() | st.integers(1, 50),
)
def test_a_row_has_no_hole_and_moves_no_start(spans: list[tuple[int, int]], end: int | None) -> None:
    """Chapters have no gaps, and each one that begins in the film keeps its time."""
    given_ = [(float(start), float(start + length), f"{n}") for n, (start, length) in enumerate(spans)]
    found = row(*given_, end=end)

    assert [start for start, _, title in found if title] == sorted(
        start for start, _, _ in given_ if end is None or start < end
    )
    assert not found or found[0][0] == 0
    assert all(one[1] == following[0] for one, following in pairwise(found))
    assert all(start <= stop and (end is None or stop <= end) for start, stop, _ in found)


def test_chapters_of_a_part_are_cut_to_it() -> None:
    """Chapters outside a part are dropped; one without length is kept inside the part."""
    chapters = [chapter(0, 1, "A"), chapter(1, 3, "B"), chapter(2, 2, "Z"), chapter(3, 9, "C"), chapter(9, 10, "D")]

    found = chapters_of_part(chapters, Fraction(2), Fraction(5))
    assert [(each.start_s, each.end_s) for each in found] == [(2, 3), (2, 2), (3, 5)]


@pytest.mark.parametrize(
    ("chapters", "codes"),
    [
        ([(1, 2, "A"), (4, 5, "")], []),
        ([(0, 3, "A"), (2, 5, "B")], ["chapters-changed"]),
        ([(0, 0, "A")], ["chapters-changed"]),
        ([(0, 1, "A"), (10, 11, "B")], ["chapters-dropped"]),
    ],
)
def test_what_a_row_loses_is_named(chapters: list[Span], codes: list[str]) -> None:
    """Gaps and missing titles are no loss; changed ends and chapters after the film are."""
    losses = row_losses([chapter(*span) for span in chapters], container_for("a.mp4"), Fraction(10))
    assert [loss.code for loss in losses] == codes
