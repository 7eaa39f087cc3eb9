"""The life of a DLA session: a pure state machine."""

from enum import Enum
from typing import Final

__all__ = ["EDGES", "LIVE", "Happening", "SessionState", "next_state"]


class SessionState(Enum):
    """Where a session stands."""

    IDLE = "idle"  #: the handle is open, and every task is known to be done
    BUSY = "busy"  #: tasks were submitted, and nobody has waited for them yet
    DRAINING = "draining"  #: it is to be closed, and its tasks are waited for
    CLOSED = "closed"  #: the handle is destroyed
    FAILED = "failed"  #: cuDLA or CUDA reported an error that is final for the process
    HUNG = "hung"  #: a call or a task did not end in time, and its thread may never come back
    ABANDONED = "abandoned"  #: given up after FAILED or HUNG: nothing was destroyed, the process has to end


class Happening(Enum):
    """What moves a session on."""

    SUBMIT = "submit"  #: tasks were accepted
    ENDED = "ended"  #: all tasks are done, and no error was reported
    FAIL = "fail"  #: an error that is final
    HANG = "hang"  #: no answer in time
    CLOSE = "close"  #: somebody closes it


LIVE: Final = frozenset({SessionState.IDLE, SessionState.BUSY, SessionState.DRAINING})
"""The states in which the library may be called."""

EDGES: Final[dict[tuple[SessionState, Happening], SessionState]] = {
    # Work comes and goes.
    (SessionState.IDLE, Happening.SUBMIT): SessionState.BUSY,
    (SessionState.BUSY, Happening.SUBMIT): SessionState.BUSY,
    (SessionState.BUSY, Happening.ENDED): SessionState.IDLE,
    (SessionState.IDLE, Happening.ENDED): SessionState.IDLE,
    # A handle is only destroyed once its tasks are done: cuDLA may crash otherwise (CUDA for Tegra 5.4).
    (SessionState.IDLE, Happening.CLOSE): SessionState.CLOSED,
    (SessionState.BUSY, Happening.CLOSE): SessionState.DRAINING,
    (SessionState.DRAINING, Happening.ENDED): SessionState.CLOSED,
    (SessionState.CLOSED, Happening.CLOSE): SessionState.CLOSED,
    # Every error is final but one, and a task that hangs never ends.
    (SessionState.IDLE, Happening.FAIL): SessionState.FAILED,
    (SessionState.BUSY, Happening.FAIL): SessionState.FAILED,
    (SessionState.DRAINING, Happening.FAIL): SessionState.FAILED,
    (SessionState.CLOSED, Happening.FAIL): SessionState.CLOSED,
    (SessionState.IDLE, Happening.HANG): SessionState.HUNG,
    (SessionState.BUSY, Happening.HANG): SessionState.HUNG,
    (SessionState.DRAINING, Happening.HANG): SessionState.HUNG,
    # Another session of the process failed, and this one heard of it in the middle of something.
    (SessionState.FAILED, Happening.SUBMIT): SessionState.FAILED,
    (SessionState.FAILED, Happening.ENDED): SessionState.FAILED,
    # What broke stays broken; closing it calls nothing any more.
    (SessionState.FAILED, Happening.FAIL): SessionState.FAILED,
    (SessionState.FAILED, Happening.HANG): SessionState.HUNG,
    (SessionState.HUNG, Happening.FAIL): SessionState.HUNG,
    (SessionState.HUNG, Happening.HANG): SessionState.HUNG,
    (SessionState.FAILED, Happening.CLOSE): SessionState.ABANDONED,
    (SessionState.HUNG, Happening.CLOSE): SessionState.ABANDONED,
    (SessionState.ABANDONED, Happening.CLOSE): SessionState.ABANDONED,
    (SessionState.ABANDONED, Happening.FAIL): SessionState.ABANDONED,
    (SessionState.ABANDONED, Happening.HANG): SessionState.ABANDONED,
}


def next_state(state: SessionState, happening: Happening) -> SessionState:
    """Return the state after ``happening``.

    Raises:
        ValueError: it cannot happen in ``state``: a defect of the session.
    """
    try:
        return EDGES[state, happening]
    except KeyError:
        message = f"a {state.value} session cannot see {happening.value}"
        raise ValueError(message) from None
