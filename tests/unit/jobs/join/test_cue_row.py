"""Cues in a container that shows one cue at a time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.join.cue_row import CueRow, Shown

Cue = tuple[int, int, str]


def row(*cues: Cue) -> tuple[list[Cue], int]:
    """Return the cues that are shown, and how many of them are crowded."""
    made = CueRow()
    shown = [tuple(each) for cue in cues for each in made.add(Shown(*cue))]
    return [*shown, *(tuple(each) for each in made.finish())], made.crowded


@pytest.mark.parametrize(
    ("cues", "shown", "crowded"),
    [
        ([(0, 2, "a"), (2, 3, "b"), (5, 6, "c")], [(0, 2, "a"), (2, 3, "b"), (5, 6, "c")], 0),
        ([(0, 4, "a"), (2, 6, "b")], [(0, 2, "a"), (2, 4, "a\nb"), (4, 6, "b")], 1),
        ([(0, 9, "a"), (2, 3, "b")], [(0, 2, "a"), (2, 3, "a\nb"), (3, 9, "a")], 1),
        ([(1, 2, "a"), (1, 2, "b")], [(1, 2, "a\nb")], 1),
        ([(1, 1, "a"), (3, 4, "b")], [(1, 1, "a"), (3, 4, "b")], 1),
    ],
)
def test_what_is_shown_at_once_is_one_cue(cues: list[Cue], shown: list[Cue], crowded: int) -> None:
    """Each line is shown from its own beginning to its own end."""
    assert row(*cues) == (shown, crowded)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), max_size=8))
def test_every_instant_shows_its_lines(spans: list[tuple[int, int]]) -> None:
    """Cues follow each other without overlap, and at each tick the lines are those of the source."""
    cues = [(begin, begin + length, str(number)) for number, (begin, length) in enumerate(sorted(spans))]
    shown, _ = row(*cues)
    assert all(one[1] <= following[0] for one, following in pairwise(shown))
    for tick in range(31):
        lines = {line for begin, end, text in shown if begin <= tick < end for line in text.split("\n")}
        assert lines == {text for begin, end, text in cues if begin <= tick < end}
