"""WebVTT and the index, read back, and sprite sheets."""

import re
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.stills.moments import at_multiples
from codecfleet.jobs.stills.writer import PictureFile, Sheets, Still, Tile, listing, webvtt

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUE = re.compile(r"(\d{2,}):(\d\d):(\d\d)\.(\d{3}) --> (\d{2,}):(\d\d):(\d\d)\.(\d{3})\n(\S+)\n")
SIZE = (160, 90)


def cues(text: str) -> list[tuple[int, int, str]]:
    """Return (begin in ms, end in ms, target) of each cue; fail on anything that is not WebVTT."""
    head, *blocks = text.split("\n\n")
    assert head == "WEBVTT"
    found = []
    for block in blocks:
        match = CUE.fullmatch(f"{block.rstrip()}\n")
        assert match is not None, block
        *clock, target = match.groups()
        begin, end = (
            (int(h) * 60 + int(m)) * 60_000 + int(s) * 1000 + int(ms) for h, m, s, ms in (clock[:4], clock[4:])
        )
        found.append((begin, end, target))
    return found


def stills(
    every_s: Fraction, begin_s: Fraction, end_s: Fraction, *, without: frozenset[int] = frozenset()
) -> list[Still]:
    """Return a still for each moment, except some."""
    moments = at_multiples(every_s, begin_s, end_s)
    return [
        Still(number, moment, 0, f"{number:05}.jpg", None)
        for number, moment in enumerate(moments, 1)
        if number not in without
    ]


@given(
    st.fractions(Fraction(1, 1000), 4000, max_denominator=1001),
    st.fractions(0, 100, max_denominator=90_000),
    st.integers(2, 20),
    st.frozensets(st.integers(2, 20), max_size=5),
)
def test_cues_cover_the_part_without_a_gap(
    every_s: Fraction, begin_s: Fraction, count: int, without: frozenset[int]
) -> None:
    """The first cue begins with the part, each next one where the previous ends, and the last ends with the part."""
    end_s = begin_s + every_s * count
    found = cues(webvtt(stills(every_s, begin_s, end_s, without=without), begin_s, end_s, SIZE))
    assert (found[0][0], found[-1][1]) == (int(begin_s * 1000), int(end_s * 1000))
    assert all(left[1] == right[0] for left, right in pairwise(found))
    assert all(begin < end for begin, end, _ in found)


def test_a_still_that_is_missing_is_covered_by_the_one_before() -> None:
    """The still before a missing one covers its time; a clock of more than a day has three digits."""
    shown = stills(Fraction(1), Fraction(0), Fraction(4), without=frozenset({1, 3}))
    assert cues(webvtt(shown, Fraction(0), Fraction(4), SIZE)) == [(0, 3000, "00002.jpg"), (3000, 4000, "00004.jpg")]
    end_s = Fraction(360_001)
    assert "100:00:01.000" in webvtt(stills(Fraction(100_000), Fraction(0), end_s), Fraction(0), end_s, SIZE)


def test_sheets_are_named_with_a_place() -> None:
    """A cue that refers to a sheet ends in a media fragment (``#xywh=``): the rectangle that players crop from it."""
    (moment,) = at_multiples(Fraction(5), Fraction(0), Fraction(5))
    still = Still(1, moment, 128, "sheet-00002.jpg", Tile(2, 320, 90))
    assert cues(webvtt([still], Fraction(0), Fraction(5), SIZE)) == [(0, 5000, "sheet-00002.jpg#xywh=320,90,160,90")]
    sheet = PictureFile("sheet-00002.jpg", 1600, 900, "ab" * 32)
    index = listing({"vtt": "x"}, [still], [sheet], first_ticks=28, time_base=Fraction(1, 100), size=SIZE)
    assert index["sheets"] == [{"file": "sheet-00002.jpg", "width": 1600, "height": 900, "sha256": "ab" * 32}]
    (entry,) = index["stills"]
    assert (entry["pts"], entry["time_s"], entry["at_s"], entry["x"], entry["y"]) == (128, 1.0, 0.0, 320, 90)


WIDTH, HEIGHT = 3, 2


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 40))
def test_each_still_is_where_its_place_says(columns: int, rows: int, count: int) -> None:
    """Every still is on its sheet once, row by row, and the last sheet has no row too many."""
    written: dict[int, NDArray[np.uint8]] = {}
    sheets = Sheets(columns, rows, lambda number, rgb: written.update({number: rgb}))
    tiles = [np.full((HEIGHT, WIDTH, 3), number + 1, dtype=np.uint8) for number in range(count)]
    places = [sheets.add(tile) for tile in tiles]
    sheets.finish()
    assert sorted(written) == list(range(1, -(-count // (columns * rows)) + 1))
    assert len(set(places)) == count
    for tile, place in zip(tiles, places, strict=True):
        found = written[place.sheet][place.y : place.y + HEIGHT, place.x : place.x + WIDTH]
        np.testing.assert_array_equal(found, tile)
    for number, sheet in written.items():
        left = min(columns * rows, count - (number - 1) * columns * rows)
        assert sheet.shape == (-(-left // columns) * HEIGHT, columns * WIDTH, 3)
        assert int((sheet > 0).sum()) == left * HEIGHT * WIDTH * 3
