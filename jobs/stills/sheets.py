"""Sprite sheets: stills side by side on larger pictures, written as they fill up."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tile:
    """Where a still is: sheet ``sheet``, counted from 1, at ``x`` and ``y`` in pixels."""

    sheet: int
    x: int
    y: int


@dataclass(slots=True)
class Sheets:
    """Puts stills of one size on sheets, row by row.

    Args:
        columns: stills in a row.
        rows: rows on a sheet; the last sheet has as many as it needs, and black where no still is left.
        write: called with each sheet's number and samples (rows, columns, 3), once it is complete.
    """

    columns: int
    rows: int
    write: Callable[[int, NDArray[np.uint8]], None]
    _tiles: list[NDArray[np.uint8]] = field(default_factory=list)
    _sheets: int = 0

    def add(self, tile: NDArray[np.uint8]) -> Tile:
        """Take the next still, of (rows, columns, 3) samples."""
        if len(self._tiles) == self.columns * self.rows:
            self.finish()
        row, column = divmod(len(self._tiles), self.columns)
        self._tiles.append(tile)
        height, width, _ = tile.shape
        return Tile(self._sheets + 1, column * width, row * height)

    def finish(self) -> None:
        """Write the sheet that was begun, if there is one."""
        if not self._tiles:
            return
        height, width, _ = self._tiles[0].shape
        rows = -(-len(self._tiles) // self.columns)
        sheet = np.zeros((rows * height, self.columns * width, 3), dtype=np.uint8)
        for place, tile in enumerate(self._tiles):
            y, x = (each * side for each, side in zip(divmod(place, self.columns), (height, width), strict=True))
            sheet[y : y + height, x : x + width] = tile
        self._sheets += 1
        self._tiles = []
        self.write(self._sheets, sheet)
