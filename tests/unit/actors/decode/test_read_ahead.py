import threading
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.decode.read_ahead import read_ahead


def counting(count: int, closed: threading.Event | None = None) -> Generator[int]:
    """Yield 0, 1, 2, ...; record whether the generator was closed or ended."""
    try:
        yield from range(count)
    finally:
        if closed is not None:
            closed.set()


@given(st.integers(0, 50), st.integers(1, 8))
def test_everything_comes_in_order(count: int, depth: int) -> None:
    """At any depth, each item comes once, in order."""
    assert list(read_ahead(counting(count), depth)) == list(range(count))


@given(st.integers(1, 50), st.integers(1, 8), st.data())
def test_stopping_early_closes_the_source(count: int, depth: int, data: st.DataObject) -> None:
    """A consumer that stops early leaves no thread running and no source open."""
    closed = threading.Event()
    taken = data.draw(st.integers(0, count))
    with closing(read_ahead(counting(count, closed), depth)) as items:
        assert [next(items) for _ in range(taken)] == list(range(taken))
    assert closed.is_set() or taken == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "codecfleet-ahead"]


def test_an_error_comes_where_the_item_would_have() -> None:
    """An error in the source reaches the consumer after the items before it."""

    def broken() -> Iterator[int]:
        yield 1
        message = "no more"
        raise OSError(message)

    items = read_ahead((item for item in broken()), 3)
    assert next(items) == 1
    with pytest.raises(OSError, match="no more"):
        next(items)
