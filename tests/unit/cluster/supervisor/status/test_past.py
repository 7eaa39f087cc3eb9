"""What a supervisor keeps for its successor: little, rarely written, and without secrets."""

import math

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.status.past import (
    EVENTS_KEPT,
    EVENTS_KEPT_S,
    EVENTS_KEY,
    EVENTS_MAX,
    EVERY_S,
    LINE_MAX,
    Past,
)

UTC_S = 1e9


class Store:
    """Stores values and counts the calls; raises ``broken`` instead if that is set."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.puts: list[str] = []
        self.broken: Exception | None = None

    async def put(self, key: str, value: bytes) -> None:
        """Keep a value."""
        if self.broken is not None:
            raise self.broken
        self.puts.append(key)
        self.values[key] = value

    def next(self, utc_s: float) -> tuple[Past, bool]:
        """Return a successor's past, and whether it has events."""
        past = Past()
        return past, past.recall(self.values.get(EVENTS_KEY), utc_s)


async def test_a_successor_starts_with_earlier_events() -> None:
    """Events keep their UTC time; the successor's own follow."""
    store = Store()
    past = Past()
    past.note("node a joined", UTC_S + 9.0)
    await past.keep(store.put, 12.0, {})
    after, found = store.next(UTC_S + 27.0)
    after.note("node b joined", UTC_S + 28.0)
    assert found
    assert after.events == ((UTC_S + 9.0, "node a joined"), (UTC_S + 28.0, "node b joined"))


async def test_only_changes_are_kept_and_rarely() -> None:
    """Events are written at most once in ``EVERY_S``, and not again without a new one."""
    store = Store()
    past = Past()
    await past.keep(store.put, 0.0, {})
    assert store.puts == []
    for now_s in range(100):
        if now_s < 50:
            past.note("a client came", UTC_S + now_s)
        await past.keep(store.put, float(now_s), {})
    assert store.puts == [EVENTS_KEY] * int(50 / EVERY_S)


async def test_a_failed_write_is_tried_again() -> None:
    """A failed write is repeated at the next opportunity; successful writes are not repeated."""
    store = Store()
    past = Past()
    past.note("a client came", UTC_S)
    store.broken = ConnectionError("the control service restarts")
    with pytest.raises(ConnectionError):
        await past.keep(store.put, 0.0, {})
    store.broken = None
    for now_s in (EVERY_S / 2, EVERY_S, 2 * EVERY_S):
        await past.keep(store.put, now_s, {})
    assert store.puts == [EVENTS_KEY]


async def test_what_is_kept_is_bounded_and_has_no_secret() -> None:
    """Only the newest events of a day are kept, each cut short."""
    store = Store()
    past = Past()
    for number in range(2 * EVENTS_MAX):
        past.note(f"{number} s3://key:Hidden0Value@bucket/\n{'x' * LINE_MAX}", UTC_S + number)
    assert len(past.events) == EVENTS_MAX
    await past.keep(store.put, 2.0 * EVENTS_MAX, {})
    assert sum(map(len, store.values.values())) < EVENTS_KEPT * (LINE_MAX + 15)
    assert b"Hidden0Value" not in store.values[EVENTS_KEY]
    after, _ = store.next(UTC_S + 2.0 * EVENTS_MAX + 100)
    assert [line.partition(" ")[0] for _, line in after.events] == [str(1800 + n) for n in range(EVENTS_KEPT)]
    assert all(len(line) == LINE_MAX for _, line in after.events)
    after, found = store.next(UTC_S + 2.0 * EVENTS_MAX + EVENTS_KEPT_S)
    assert (after.events, found) == ((), False)


odd = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text()
times = st.sampled_from([UTC_S + 500.0, UTC_S + 1e7, math.inf]) | odd
packed = st.binary() | (odd | st.lists(odd | st.tuples(times, odd))).map(msgpack.packb)


@given(packed)
def test_unreadable_values_are_skipped(events: bytes) -> None:
    """A successor starts whatever another release or a defect left in the store."""
    store = Store()
    store.values = {EVENTS_KEY: events}
    past, _ = store.next(UTC_S + 1000.0)
    past.note("a client came", UTC_S + 1000.0)
    assert past.events[-1] == (UTC_S + 1000.0, "a client came")
    assert all(abs(at_s - UTC_S) < 2 * EVENTS_KEPT_S and isinstance(line, str) for at_s, line in past.events)
