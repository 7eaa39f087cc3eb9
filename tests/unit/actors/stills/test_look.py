"""The turn and the size of a still."""

from fractions import Fraction

import numpy as np
import pytest

from codecfleet.actors.segment.steps import CLOCKWISE, UPRIGHT, Turn, nearest_turn, shown_size
from codecfleet.actors.stills.taking import turned

ONE = 1 << 16
MATRICES = {
    "upright": (1, 0, 0, 1),
    "quarter clockwise": (0, 1, -1, 0),
    "half": (-1, 0, 0, -1),
    "quarter counter-clockwise": (0, -1, 1, 0),
    "mirrored": (-1, 0, 0, 1),
    "upside down": (1, 0, 0, -1),
    "transposed": (0, 1, 1, 0),
    "transposed about the other diagonal": (0, -1, -1, 0),
}


def _matrix(a: int, b: int, c: int, d: int) -> tuple[int, ...]:
    return (a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)


@pytest.mark.parametrize("name", MATRICES)
def test_every_sample_goes_where_the_matrix_sends_it(name: str) -> None:
    """Each sample goes where ISO/IEC 14496-12's matrix sends it, moved back into view."""
    a, b, c, d = MATRICES[name]
    stored = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    shown = turned(stored, nearest_turn(_matrix(a, b, c, d)))
    places = {(x, y): (a * x + c * y, b * x + d * y) for y in range(2) for x in range(3)}
    left, top = (min(place[side] for place in places.values()) for side in (0, 1))
    for (x, y), (to_x, to_y) in places.items():
        np.testing.assert_array_equal(shown[to_y - top, to_x - left], stored[y, x])


def test_other_angles_go_to_the_nearest_quarter_turn() -> None:
    """The picture stays upright without a matrix, and with one that turns by a few degrees only."""
    assert nearest_turn((ONE, 4000, 0, -4000, ONE, 0, 0, 0, 1 << 30)) == nearest_turn(None) == UPRIGHT


@pytest.mark.parametrize(
    ("stored", "shape", "turn", "shown"),
    [
        ((1920, 1080), Fraction(1), UPRIGHT, (1920, 1080)),
        ((1920, 1080), Fraction(1), CLOCKWISE, (1080, 1920)),
        ((720, 576), Fraction(64, 45), UPRIGHT, (1024, 576)),
        ((720, 480), Fraction(8, 9), UPRIGHT, (720, 540)),
        ((720, 576), Fraction(64, 45), CLOCKWISE, (576, 1024)),
        ((3, 1), Fraction(1, 1000), UPRIGHT, (3, 1000)),
    ],
)
def test_pixels_become_square(
    stored: tuple[int, int],
    shape: Fraction,
    turn: Turn,
    shown: tuple[int, int],
) -> None:
    """The side along which samples are longer grows, before the turn."""
    assert shown_size(*stored, shape, turn) == shown
