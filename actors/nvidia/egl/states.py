"""The states of a stream's two ends, and what each end may do in each state. Only pure functions and values.

Sources: CUDA for Tegra, section 4.1; EGL_KHR_stream, EGL_KHR_stream_fifo, EGL_NV_stream_reset.
"""

from enum import Enum
from typing import Final

from ....errors import UsageError

PRESENTED_MOST: Final = 64
"""How many frames CUDA may have out at once, presented and not returned (CUDA for Tegra, section 4.1.2)."""
_RULES: Final = "docs/egl.md lists what each end may do, and when."


class StreamState(Enum):
    """EGL's state of a stream; ``value`` is its number (EGL_STREAM_STATE_KHR)."""

    CREATED = 0x3215  #: no end is connected
    CONNECTING = 0x3216  #: a consumer is connected and waits for its producer
    EMPTY = 0x3217  #: both are connected, and there is no frame
    NEW_FRAME = 0x3218  #: the consumer has not yet acquired the presented frame
    OLD_FRAME = 0x3219  #: the consumer has acquired the latest frame, and may acquire it again
    DISCONNECTED = 0x321A  #: an end is gone: the other end can only disconnect


class EndState(Enum):
    """The state of one end of a stream."""

    UNCONNECTED = "unconnected"  #: not connected yet
    READY = "ready"  #: connected; the consumer holds no frame, or all frames of the producer have returned
    HOLDING = "holding"  #: the consumer holds a frame; or some frames of the producer have not returned
    ENDED = "ended"  #: the other end, or the stream, is gone
    CLOSED = "closed"  #: disconnected in order
    FAILED = "failed"  #: the driver or the device failed
    ABANDONED = "abandoned"  #: closed after a failure, without calling the driver again


class EndEvent(Enum):
    """Something that happens at one end of a stream, and changes its state."""

    CONNECT = "connect"  #: this end connected
    HOLD = "hold"  #: the consumer acquired a frame, or the producer presented a frame
    FREE = "free"  #: the consumer released its frame, or the producer's last presented frame returned
    PART = "part"  #: the other end disconnected, died, or lost its context
    FAIL = "fail"  #: a call failed for another reason
    CLOSE = "close"  #: the owner closes this end


LIVE: Final = frozenset({EndState.READY, EndState.HOLDING})
"""The states in which the connection exists."""

_S, _E = EndState, EndEvent
_WAYS: Final = {
    # An end that was never connected has nothing to disconnect.
    _S.UNCONNECTED: {_E.CONNECT: _S.READY, _E.FAIL: _S.FAILED, _E.PART: _S.ENDED, _E.CLOSE: _S.CLOSED},
    _S.READY: {_E.HOLD: _S.HOLDING, _E.PART: _S.ENDED, _E.FAIL: _S.FAILED, _E.CLOSE: _S.CLOSED},
    # A producer may present more frames before all have returned. ``ConsumerSession`` refuses to acquire a second
    # frame.
    _S.HOLDING: {
        _E.HOLD: _S.HOLDING,
        _E.FREE: _S.READY,
        _E.PART: _S.ENDED,
        _E.FAIL: _S.FAILED,
        _E.CLOSE: _S.CLOSED,
    },
    # After the producer is gone, the consumer still releases its frame.
    _S.ENDED: {_E.FREE: _S.ENDED, _E.PART: _S.ENDED, _E.FAIL: _S.FAILED, _E.CLOSE: _S.CLOSED},
    _S.CLOSED: {_E.CLOSE: _S.CLOSED},
    # The driver ends the process if it is called for a connection whose context is gone, so the driver is not called
    # after a failure.
    _S.FAILED: {_E.FREE: _S.FAILED, _E.PART: _S.FAILED, _E.FAIL: _S.FAILED, _E.CLOSE: _S.ABANDONED},
    _S.ABANDONED: {_E.CLOSE: _S.ABANDONED},
}
EDGES: Final = {(state, event): target for state, ways in _WAYS.items() for event, target in ways.items()}


def next_state(state: EndState, happening: EndEvent) -> EndState:
    """Return the state after ``happening``; ``UsageError`` if ``happening`` is impossible in ``state``."""
    try:
        return EDGES[state, happening]
    except KeyError:
        raise UsageError(f"an end that is {state.value} cannot {happening.value}", _RULES) from None


def may_connect_producer(stream: StreamState) -> bool:
    """Return whether the consumer has connected: a producer that connects first spoils the stream.

    ``UsageError`` if the stream has or had a producer.
    """
    if stream in (StreamState.CREATED, StreamState.CONNECTING):
        return stream is StreamState.CONNECTING
    raise UsageError(f"the stream is {stream.name}: it has or had a producer", "Make a new stream.")


def check_consumer(stream: StreamState) -> None:
    """Refuse a second consumer (``UsageError``), which would spoil the stream (measured)."""
    if stream is not StreamState.CREATED:
        raise UsageError(f"the stream is {stream.name}: it has or had a consumer", "Make a new stream.")


def has_room(out: int, unseen: int, fifo_frames: int) -> bool:
    """Return whether a frame may be presented now without waiting in the driver.

    ``out`` is the number of frames that were presented and have not returned; ``unseen`` of them have not been acquired
    yet. In a mailbox (``fifo_frames`` 0), a new frame replaces a frame that was not acquired.
    """
    return out < PRESENTED_MOST and (fifo_frames == 0 or unseen < fifo_frames)
