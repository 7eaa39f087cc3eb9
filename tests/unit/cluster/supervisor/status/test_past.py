"""What a supervisor keeps for its successor: little, rarely written, and without secrets."""

import math

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.cluster.supervisor.status.history import KEPT_S, SPEEDS_MAX, WorkHistory
from codecfleet.cluster.supervisor.status.past import (
    EVENTS_KEPT,
    EVENTS_KEPT_S,
    EVENTS_KEY,
    EVENTS_MAX,
    EVERY_S,
    LINE_MAX,
    SPEEDS_KEY,
    Past,
)

OFFSET_S = 1e9
"""UTC less the supervisor's clock."""


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

    def next(self, now_s: float, offset_s: float = OFFSET_S) -> tuple[Past, WorkHistory, bool]:
        """Return what a successor starts with."""
        history = WorkHistory(str)
        past = Past(history)
        found = past.recall(self.values.get(EVENTS_KEY), self.values.get(SPEEDS_KEY), now_s, offset_s)
        return past, history, found


async def test_a_successor_on_another_clock_starts_with_events_and_speeds() -> None:
    """Events keep their UTC time, and speeds their age; the successor's own follow."""
    store, history = Store(), WorkHistory(str)
    past = Past(history)
    past.note("node a joined", OFFSET_S + 9.0)
    history.look(25.0, 10.0)
    history.look(50.0, 12.0)
    await past.keep(store.put, 12.0, OFFSET_S, {})
    after, later, found = store.next(now_s=507.0, offset_s=OFFSET_S - 480.0)
    after.note("node b joined", OFFSET_S + 28.0)
    later.look(10.0, 509.0)
    assert found
    assert after.events == ((OFFSET_S + 9.0, "node a joined"), (OFFSET_S + 28.0, "node b joined"))
    assert later.of((), lambda _: True, 512.0).speeds == ((22.0, 25.0), (20.0, 50.0), (3.0, 10.0))


async def test_only_changes_are_kept_and_rarely() -> None:
    """Each value is written at most once in ``EVERY_S``; an idle fleet causes only one more write."""
    store, history = Store(), WorkHistory(str)
    past = Past(history)
    await past.keep(store.put, 0.0, OFFSET_S, {})
    assert store.puts == []
    past.note("a client came", OFFSET_S)
    for now_s in range(100):
        history.look(25.0 if now_s < 50 else 0.0, float(now_s))
        await past.keep(store.put, float(now_s), OFFSET_S, {})
    assert store.puts.count(EVENTS_KEY) == 1
    assert store.puts.count(SPEEDS_KEY) == 50 / EVERY_S
    past.note("a client left", OFFSET_S + 100)
    await past.keep(store.put, 100.0, OFFSET_S, {})
    assert store.puts[-1] == EVENTS_KEY
    _, later, _ = store.next(now_s=101.0)
    assert later.speeds[-2:] == ((49.0, 25.0), (50.0, 0.0))


async def test_a_failed_write_is_tried_again() -> None:
    """A failed write is repeated at the next opportunity; successful writes are not repeated."""
    store = Store()
    past = Past(WorkHistory(str))
    past.note("a client came", OFFSET_S)
    store.broken = ConnectionError("the control service restarts")
    with pytest.raises(ConnectionError):
        await past.keep(store.put, 0.0, OFFSET_S, {})
    store.broken = None
    for now_s in (EVERY_S / 2, EVERY_S, 2 * EVERY_S):
        await past.keep(store.put, now_s, OFFSET_S, {})
    assert store.puts == [EVENTS_KEY]


async def test_what_is_kept_is_bounded_and_has_no_secret() -> None:
    """Only the newest events of a day are kept, each cut short, and the speeds of a quarter of an hour."""
    store, history = Store(), WorkHistory(str)
    past = Past(history)
    for number in range(2 * EVENTS_MAX):
        past.note(f"{number} s3://key:Hidden0Value@bucket/\n{'x' * LINE_MAX}", OFFSET_S + number)
        history.look(25.0, float(number))
    assert len(past.events) == EVENTS_MAX
    await past.keep(store.put, 2.0 * EVENTS_MAX, OFFSET_S, {})
    assert sum(map(len, store.values.values())) < EVENTS_KEPT * (LINE_MAX + 15) + SPEEDS_MAX * 20
    assert b"Hidden0Value" not in store.values[EVENTS_KEY]
    after, later, _ = store.next(now_s=2.0 * EVENTS_MAX + 100)
    assert [line.partition(" ")[0] for _, line in after.events] == [str(1800 + n) for n in range(EVENTS_KEPT)]
    assert all(len(line) == LINE_MAX for _, line in after.events)
    assert later.speeds[0][0] >= 2.0 * EVENTS_MAX + 100 - KEPT_S
    after, later, found = store.next(now_s=2.0 * EVENTS_MAX + EVENTS_KEPT_S)
    assert (after.events, later.speeds, found) == ((), (), False)


odd = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats() | st.text()
times = st.sampled_from([OFFSET_S + 500.0, OFFSET_S + 1e7, math.inf]) | odd
packed = st.binary() | (odd | st.lists(odd | st.tuples(times, odd))).map(msgpack.packb)


@given(packed, packed)
def test_unreadable_values_are_skipped(events: bytes, speeds: bytes) -> None:
    """A successor starts whatever another release or a defect left in the store."""
    store = Store()
    store.values = {EVENTS_KEY: events, SPEEDS_KEY: speeds}
    past, history, _ = store.next(now_s=1000.0)
    past.note("a client came", OFFSET_S + 1000.0)
    assert past.events[-1] == (OFFSET_S + 1000.0, "a client came")
    assert all(abs(at_s - OFFSET_S) < 2 * EVENTS_KEPT_S and isinstance(line, str) for at_s, line in past.events)
    assert all(1000.0 - KEPT_S <= at_s <= 1000.0 and math.isfinite(fps) for at_s, fps in history.speeds)
