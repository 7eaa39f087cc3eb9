"""The states of a stream's ends, for any order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.egl.states import (
    EDGES,
    LIVE,
    PRESENTED_MOST,
    EndEvent,
    EndState,
    StreamState,
    check_consumer,
    has_room,
    may_connect_producer,
    next_state,
)
from codecfleet.errors import UsageError

OVER = {EndState.CLOSED, EndState.ABANDONED}


@given(st.lists(st.sampled_from(EndEvent)))
def test_an_end_that_is_over_stays_so(happenings: list[EndEvent]) -> None:
    """After any events, an ended connection stays ended, and a failed end never closes normally."""
    state, has_ended, has_failed = EndState.UNCONNECTED, False, False
    for happening in happenings:
        try:
            state = next_state(state, happening)
        except UsageError:
            assert (state, happening) not in EDGES
            continue
        has_ended = has_ended or state is EndState.ENDED or state in OVER
        has_failed = has_failed or state is EndState.FAILED
        assert not (has_ended and state in LIVE)
        assert not (has_failed and state is EndState.CLOSED)


@pytest.mark.parametrize("state", EndState)
def test_every_state_can_be_closed(state: EndState) -> None:
    """Closing always leads to one of the two final states, and closing again changes nothing."""
    closed = next_state(state, EndEvent.CLOSE)
    assert closed in OVER
    assert next_state(closed, EndEvent.CLOSE) is closed


def test_the_consumer_connects_first() -> None:
    """A producer waits for a consumer, connects once the consumer has connected, and never connects twice."""
    assert [may_connect_producer(state) for state in (StreamState.CREATED, StreamState.CONNECTING)] == [False, True]
    for state in set(StreamState) - {StreamState.CREATED, StreamState.CONNECTING}:
        with pytest.raises(UsageError, match="had a producer"):
            may_connect_producer(state)


@pytest.mark.parametrize("state", [state for state in StreamState if state is not StreamState.CREATED])
def test_a_stream_has_one_consumer(state: StreamState) -> None:
    """A second consumer is refused before the driver is called."""
    check_consumer(StreamState.CREATED)
    with pytest.raises(UsageError, match="had a consumer"):
        check_consumer(state)


@given(st.integers(0, PRESENTED_MOST), st.data())
def test_a_producer_never_waits_in_the_driver(fifo_frames: int, data: st.DataObject) -> None:
    """However the consumer takes frames, at most 64 frames are out, and no more wait than the FIFO holds."""
    out = unseen = 0
    for takes in data.draw(st.lists(st.booleans(), max_size=200)):
        if takes:
            unseen, out = max(0, unseen - 1), out - (unseen == 0 and out > 0)
        elif has_room(out, unseen, fifo_frames):
            out, unseen = out + 1, unseen + 1
        assert out <= PRESENTED_MOST
        assert fifo_frames == 0 or unseen <= fifo_frames
