"""Burnt-in text: which cues are on screen at which time."""

from fractions import Fraction
from pathlib import Path

import av
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import InputTooLarge
from codecfleet.jobs.source.drawn.burnt_text import MOST_AT_ONCE, MOST_LETTERS, Cue, on_screen, read_cues
from codecfleet.testing.clips import Clip, constant_times, make_clip
from tests.subtitle_tracks import Cue as Packed
from tests.subtitle_tracks import with_subtitles

TIMES = st.fractions(min_value=-5, max_value=50, max_denominator=1000)


@given(st.lists(st.tuples(TIMES, TIMES), max_size=9), TIMES)
def test_all_that_are_on_screen_are_shown(spans: list[tuple[Fraction, Fraction]], at: Fraction) -> None:
    """All cues that have begun and not ended are shown, the earliest at the bottom."""
    cues = sorted((Cue(start, end, (str(n),)) for n, (start, end) in enumerate(spans)), key=lambda cue: cue.start_s)
    due = [cue for cue in cues if cue.end_s is not None and cue.start_s <= at < cue.end_s]
    changes = list(on_screen(cues))
    assert [time_s for time_s, _ in changes] == sorted({time_s for time_s, _ in changes})
    shown = [lines for time_s, lines in changes if time_s <= at]
    assert (shown[-1] if shown else ()) == tuple(line for cue in reversed(due) for line in cue.lines)
    assert not changes or changes[-1][1] == ()


def test_without_an_end_it_ends_with_the_next() -> None:
    """A cue without an end ends with the next one, which may be blank; the last one stays."""
    cues = [Cue(Fraction(1), None, ("a",)), Cue(Fraction(2), None, ()), Cue(Fraction(3), None, ("b",))]
    assert list(on_screen(cues)) == [(1, ("a",)), (2, ()), (3, ("b",))]


def test_too_many_at_once_are_refused() -> None:
    """More cues at once than anybody could read are refused."""
    cues = [Cue(Fraction(n), Fraction(100), (str(n),)) for n in range(MOST_AT_ONCE + 1)]
    assert len(list(on_screen(cues[1:]))) == MOST_AT_ONCE + 1
    with pytest.raises(InputTooLarge, match="at once"):
        list(on_screen(cues))


def read(folder: Path, cues: list[Packed]) -> list[Cue]:
    """Return the cues of a SubRip track."""
    film = make_clip(folder / "film.mp4", Clip(times=constant_times(2)))
    path = with_subtitles(film, folder / "both.mkv", [("subrip", "eng", cues)])
    with av.open(str(path)) as container:
        return read_cues(container, container.streams[1], "subrip")


def test_markup_is_left_out(tmp_path: Path) -> None:
    """Styles and positions are left out, and a cue's own end counts."""
    packets = [
        Packed(Fraction(1), b"{\\an8}<i>One</i>\r\n<b>two</b> <font color=red>three</font>", Fraction(3, 2)),
        Packed(Fraction(4), b"1 < 2 > {note} <MUSIC> &amp;"),
    ]
    assert read(tmp_path, packets) == [
        Cue(Fraction(1), Fraction(5, 2), ("One", "two three")),
        Cue(Fraction(4), None, ("1 < 2 > {note} <MUSIC> &amp;",)),
    ]


def test_a_cue_without_bounds_is_refused(tmp_path: Path) -> None:
    """A cue with too many letters is refused before any text is drawn."""
    with pytest.raises(InputTooLarge, match="letters"):
        read(tmp_path, [Packed(Fraction(1), b"a" * (MOST_LETTERS + 1), Fraction(1))])
