"""Which batches workers make together: each batch once, in order, with few pictures decoded twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.jobs.fleet_frames.plan import BatchPiece, pieces_of


def pieces(
    numbers: list[int], group: int, *, frames: int = 16, most: int = 1000, whole: bool = False
) -> list[BatchPiece]:
    """Return the pieces of some frames of a film of 1000 frames, in groups of ``group`` pictures."""
    group_of = [number // group for number in range(1000)]
    return list(pieces_of(np.array(numbers, dtype=np.int64), group_of, frames=frames, most=most, whole=whole))


@given(
    numbers=st.lists(st.integers(0, 999), max_size=60),
    group=st.integers(1, 300),
    frames=st.integers(1, 20),
    most=st.integers(0, 50),
    whole=st.booleans(),
)
def test_each_batch_is_in_one_piece(numbers: list[int], group: int, frames: int, most: int, whole: bool) -> None:  # noqa: FBT001 - an example's
    """Pieces adjoin at the borders of batches, and hold at most their limit, or one batch."""
    found = pieces(numbers, group, frames=frames, most=most, whole=whole)
    assert [piece.begin for piece in found] == [0, *(piece.end for piece in found)][: len(found)]
    assert [piece.end for piece in found][-1:] == [len(numbers)][: len(found)]
    assert bool(found) == bool(numbers)
    assert all(piece.begin % frames == 0 for piece in found)
    assert all(piece.end - piece.begin <= max(most, frames) for piece in found)
    assert all(piece.pictures > 0 for piece in found)


def test_a_group_is_hardly_decoded_twice() -> None:
    """Batches of a long group are made together, so that at most a quarter more pictures are decoded."""
    for group in (1, 5, 24, 250):
        found = pieces(list(range(1000)), group)
        assert sum(piece.pictures for piece in found) <= 1250
    assert len(pieces(list(range(1000)), 5)) > 40  # waiting for one another gains nothing
    assert len(pieces([7, 300, 600, 900] * 8, 100, frames=2)) == 16


def test_the_pictures_that_are_decoded_are_counted() -> None:
    """The decoded pictures of a piece reach from its group's first to the last one needed."""
    assert pieces([7, 3, 25], 10) == [BatchPiece(0, 3, 8 + 6)]
    assert pieces([7, 3, 25], 10, whole=True) == [BatchPiece(0, 3, 20)]
