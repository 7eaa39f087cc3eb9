"""The life of a DLA session: a pure state machine."""

from enum import Enum
from typing import Final


class DlaSessionState(Enum):
    """Where a session stands."""

    IDLE = "idle"  #: the handle is open, and every task is known to be done
    BUSY = "busy"  #: tasks were submitted, and not waited for yet
    DRAINING = "draining"  #: it is to be closed, and its tasks are waited for
    CLOSED = "closed"  #: the handle is destroyed
    FAILED = "failed"  #: cuDLA or CUDA reported an error that is final for the process
    HUNG = "hung"  #: a call or a task did not end in time, and its thread may never come back
    ABANDONED = "abandoned"  #: given up after FAILED or HUNG: nothing was destroyed, the process has to end


class DlaEvent(Enum):
    """What moves a session on."""

    SUBMIT = "submit"  #: tasks were accepted
    ENDED = "ended"  #: all tasks are done, and no error was reported
    FAIL = "fail"  #: an error that is final
    HANG = "hang"  #: no answer in time
    CLOSE = "close"  #: somebody closes it


LIVE: Final = frozenset({DlaSessionState.IDLE, DlaSessionState.BUSY, DlaSessionState.DRAINING})
"""The states in which the library may be called."""

EDGES: Final[dict[tuple[DlaSessionState, DlaEvent], DlaSessionState]] = {
    # Work comes and goes.
    (DlaSessionState.IDLE, DlaEvent.SUBMIT): DlaSessionState.BUSY,
    (DlaSessionState.BUSY, DlaEvent.SUBMIT): DlaSessionState.BUSY,
    (DlaSessionState.BUSY, DlaEvent.ENDED): DlaSessionState.IDLE,
    (DlaSessionState.IDLE, DlaEvent.ENDED): DlaSessionState.IDLE,
    # A handle is only destroyed once its tasks are done: cuDLA may crash otherwise (CUDA for Tegra 5.4).
    (DlaSessionState.IDLE, DlaEvent.CLOSE): DlaSessionState.CLOSED,
    (DlaSessionState.BUSY, DlaEvent.CLOSE): DlaSessionState.DRAINING,
    (DlaSessionState.DRAINING, DlaEvent.ENDED): DlaSessionState.CLOSED,
    (DlaSessionState.CLOSED, DlaEvent.CLOSE): DlaSessionState.CLOSED,
    # Every error is final but one, and a task that hangs never ends.
    (DlaSessionState.IDLE, DlaEvent.FAIL): DlaSessionState.FAILED,
    (DlaSessionState.BUSY, DlaEvent.FAIL): DlaSessionState.FAILED,
    (DlaSessionState.DRAINING, DlaEvent.FAIL): DlaSessionState.FAILED,
    (DlaSessionState.CLOSED, DlaEvent.FAIL): DlaSessionState.CLOSED,
    (DlaSessionState.IDLE, DlaEvent.HANG): DlaSessionState.HUNG,
    (DlaSessionState.BUSY, DlaEvent.HANG): DlaSessionState.HUNG,
    (DlaSessionState.DRAINING, DlaEvent.HANG): DlaSessionState.HUNG,
    # Another session of the process failed while this one was in a call.
    (DlaSessionState.FAILED, DlaEvent.SUBMIT): DlaSessionState.FAILED,
    (DlaSessionState.FAILED, DlaEvent.ENDED): DlaSessionState.FAILED,
    # A failed session stays failed; closing it calls nothing.
    (DlaSessionState.FAILED, DlaEvent.FAIL): DlaSessionState.FAILED,
    (DlaSessionState.FAILED, DlaEvent.HANG): DlaSessionState.HUNG,
    (DlaSessionState.HUNG, DlaEvent.FAIL): DlaSessionState.HUNG,
    (DlaSessionState.HUNG, DlaEvent.HANG): DlaSessionState.HUNG,
    (DlaSessionState.FAILED, DlaEvent.CLOSE): DlaSessionState.ABANDONED,
    (DlaSessionState.HUNG, DlaEvent.CLOSE): DlaSessionState.ABANDONED,
    (DlaSessionState.ABANDONED, DlaEvent.CLOSE): DlaSessionState.ABANDONED,
    (DlaSessionState.ABANDONED, DlaEvent.FAIL): DlaSessionState.ABANDONED,
    (DlaSessionState.ABANDONED, DlaEvent.HANG): DlaSessionState.ABANDONED,
}


def next_state(state: DlaSessionState, happening: DlaEvent) -> DlaSessionState:
    """Return the state after ``happening``.

    Raises:
        ValueError: it cannot happen in ``state``: a defect of the session.
    """
    try:
        return EDGES[state, happening]
    except KeyError:
        raise ValueError(f"a {state.value} session cannot see {happening.value}") from None
