"""The states of a batch's entries, their transitions, and the effect of an error on an entry. Pure."""

from enum import Enum
from typing import Final

from ....errors import FleetUnavailable, WorkError

#: How many times a run tries an entry that fails through no fault of the input; jobs also retry segments
TRIES: Final = 2
#: The batch ends after this many failures in a row that no file caused: the next files would probably fail too
FAULTS_IN_A_ROW: Final = 8


class EntryState(Enum):
    """The state of an entry. The values are stored in the database."""

    WAITING = "waiting"
    RUNNING = "running"  #: the entry is in flight, or was when the batch was killed
    DONE = "done"
    FAILED = "failed"
    DONE_BEFORE = "done-before"  #: done by an earlier run, not yet compared
    FAILED_BEFORE = "failed-before"  #: failed in an earlier run, not yet compared


class EntryEvent(Enum):
    """An event that changes an entry's state."""

    LISTED = "listed"  #: a new run lists the entry with the same input and options
    #: a new run lists the entry with another input or options, or retries its failure
    LISTED_OTHERWISE = "listed otherwise"
    STARTED = "started"
    PUBLISHED = "published"
    FAILED = "failed"
    #: the entry failed through no fault of its own and is retried, or the batch ended before the entry did
    PUT_BACK = "put back"
    FOUND_SAME = "found same"
    FOUND_CHANGED = "found changed"


_S, _H = EntryState, EntryEvent
EDGES: Final = {
    # A new run begins.
    (_S.WAITING, _H.LISTED): _S.WAITING,
    (_S.RUNNING, _H.LISTED): _S.WAITING,  # the entry's run was killed; the job continues from its journal
    (_S.DONE, _H.LISTED): _S.DONE_BEFORE,
    (_S.FAILED, _H.LISTED): _S.FAILED_BEFORE,
    (_S.DONE_BEFORE, _H.LISTED): _S.DONE_BEFORE,  # the last run ended before it compared the entry's input
    (_S.FAILED_BEFORE, _H.LISTED): _S.FAILED_BEFORE,
    **{(state, _H.LISTED_OTHERWISE): _S.WAITING for state in _S},
    # The result of an earlier run is compared.
    (_S.DONE_BEFORE, _H.FOUND_SAME): _S.DONE,
    (_S.DONE_BEFORE, _H.FOUND_CHANGED): _S.WAITING,
    (_S.FAILED_BEFORE, _H.FOUND_SAME): _S.FAILED,
    (_S.FAILED_BEFORE, _H.FOUND_CHANGED): _S.WAITING,
    # A try.
    (_S.WAITING, _H.STARTED): _S.RUNNING,
    (_S.WAITING, _H.FAILED): _S.FAILED,  # the input is missing, or another file has the output's name
    (_S.WAITING, _H.PUT_BACK): _S.WAITING,
    (_S.RUNNING, _H.PUBLISHED): _S.DONE,
    (_S.RUNNING, _H.FAILED): _S.FAILED,
    (_S.RUNNING, _H.PUT_BACK): _S.WAITING,
}


def after(state: EntryState, happening: EntryEvent) -> EntryState:
    """Return the state after an event. Raises ValueError: no such transition exists."""
    try:
        return EDGES[state, happening]
    except KeyError:
        raise ValueError(f"{happening.value} cannot happen to an entry that is {state.value}") from None


def when_listed(state: str, *, same_input: bool, same_spec: bool, retry_failed: bool) -> str:
    """Return the state of an entry when a new run lists it; ``state`` is the state in the database."""
    before = EntryState(state)
    retried = retry_failed and before in (EntryState.FAILED, EntryState.FAILED_BEFORE)
    same = same_input and same_spec and not retried
    return after(before, EntryEvent.LISTED if same else EntryEvent.LISTED_OTHERWISE).value


def after_error(error: BaseException, tries: int) -> EntryEvent:
    """Return the event for an error that ended try number ``tries``.

    Errors in the input, the request or codecfleet itself would recur, so they are not retried.
    """
    if isinstance(error, FleetUnavailable):
        return EntryEvent.PUT_BACK
    return EntryEvent.PUT_BACK if isinstance(error, WorkError) and tries < TRIES else EntryEvent.FAILED


def batch_ender(error: BaseException, faults_in_a_row: int) -> WorkError | None:
    """Return the error that ends the batch, or None.

    A batch ends if it has no fleet, or after too many failures in a row that were not a file's fault.
    """
    if isinstance(error, FleetUnavailable):
        return error
    if not isinstance(error, WorkError) or faults_in_a_row < FAULTS_IN_A_ROW:
        return None
    message = (
        f"{faults_in_a_row} files in a row failed through no fault of their own, the last one with: {error.message}"
    )
    return WorkError(message, f"{error.next_step} Then run the same command again.".lstrip())


def exit_code_of(codes: set[int]) -> int:
    """Return a batch's exit code for its worst failure: 5 (machine, store), then 4 (request), then 3 (input)."""
    return max(codes, default=0)
