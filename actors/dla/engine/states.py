"""The states of a DLA session, as a pure state machine."""

from enum import Enum
from typing import Final


class DlaMode(Enum):
    """Whether a device handle works with CUDA or without CUDA: ``cudlaMode``."""

    HYBRID = 0  #: with CUDA: tasks go into CUDA streams
    STANDALONE = 1  #: no CUDA: memory and fences come from NvSci


class DlaSessionState(Enum):
    """The states of a DLA session; ``EDGES`` has the transitions."""

    IDLE = "idle"  #: the handle is open, and every task is known to be done
    BUSY = "busy"  #: tasks were submitted, and nothing has waited for them yet
    DRAINING = "draining"  #: the session is closing, and waits for its tasks
    CLOSED = "closed"  #: the handle is destroyed
    FAILED = "failed"  #: cuDLA or CUDA reported an error that is final for the process
    HUNG = "hung"  #: a call or a task did not end in time; the session's thread may never return
    ABANDONED = "abandoned"  #: closed after FAILED or HUNG: nothing was destroyed, and the process must end


class DlaEvent(Enum):
    """An event that changes a session's state."""

    SUBMIT = "submit"  #: tasks were accepted
    ENDED = "ended"  #: all tasks are done, and no error was reported
    FAIL = "fail"  #: a final error
    HANG = "hang"  #: a call or a task did not end in time
    CLOSE = "close"


LIVE: Final = frozenset({DlaSessionState.IDLE, DlaSessionState.BUSY, DlaSessionState.DRAINING})
"""The states in which the library may be called."""

_S, _E = DlaSessionState, DlaEvent
_WAYS: Final = {
    # A handle is destroyed only after its tasks are done; otherwise cuDLA may crash (CUDA for Tegra, section 5.4).
    _S.IDLE: {_E.SUBMIT: _S.BUSY, _E.ENDED: _S.IDLE, _E.CLOSE: _S.CLOSED, _E.FAIL: _S.FAILED, _E.HANG: _S.HUNG},
    _S.BUSY: {_E.SUBMIT: _S.BUSY, _E.ENDED: _S.IDLE, _E.CLOSE: _S.DRAINING, _E.FAIL: _S.FAILED, _E.HANG: _S.HUNG},
    _S.DRAINING: {_E.ENDED: _S.CLOSED, _E.FAIL: _S.FAILED, _E.HANG: _S.HUNG},
    _S.CLOSED: {_E.CLOSE: _S.CLOSED, _E.FAIL: _S.CLOSED},
    # Another session can make this session fail during a call; that call still reports its own end.
    _S.FAILED: {**dict.fromkeys((_E.SUBMIT, _E.ENDED, _E.FAIL), _S.FAILED), _E.HANG: _S.HUNG, _E.CLOSE: _S.ABANDONED},
    # A hung session stays hung, whatever else fails; closing it calls nothing.
    _S.HUNG: {_E.FAIL: _S.HUNG, _E.HANG: _S.HUNG, _E.CLOSE: _S.ABANDONED},
    _S.ABANDONED: dict.fromkeys((_E.CLOSE, _E.FAIL, _E.HANG), _S.ABANDONED),
}
EDGES: Final = {(state, event): target for state, ways in _WAYS.items() for event, target in ways.items()}


def next_state(state: DlaSessionState, happening: DlaEvent) -> DlaSessionState:
    """Return the state after ``happening``; ``ValueError`` (a defect) if ``happening`` is impossible in ``state``."""
    try:
        return EDGES[state, happening]
    except KeyError:
        raise ValueError(f"{happening.value} is impossible for a {state.value} session") from None
