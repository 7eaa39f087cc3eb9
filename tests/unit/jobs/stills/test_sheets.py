"""Sprite sheets."""

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.stills.sheets import Sheets

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH, HEIGHT = 3, 2


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 40))
def test_each_still_is_where_its_place_says(columns: int, rows: int, count: int) -> None:
    """Every still lies on its sheet, row by row, once; the last sheet has no row too many."""
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
