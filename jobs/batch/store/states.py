"""The states of a batch's entries, their transitions, and what an ended try means for its entry. Pure."""

from enum import Enum
from typing import Final

from ....errors import FleetUnavailable, WorkError

TRIES: Final = 2
"""How often one run tries an entry that fails through no fault of its input; each job has its own retry ladder too."""
FAULTS_IN_A_ROW: Final = 8
"""Files that fail one after the other through no fault of theirs, and end the batch: the next ones would fail too."""


class EntryState(Enum):
    """The state of an entry; the values are those in the database."""

    WAITING = "waiting"
    RUNNING = "running"  #: In flight; or it was, when the batch was killed
    DONE = "done"
    FAILED = "failed"
    DONE_BEFORE = "done-before"  #: An earlier run did it; its input was not compared yet
    FAILED_BEFORE = "failed-before"  #: The same of one that failed


class EntryEvent(Enum):
    """What moves an entry from one state to the next."""

    LISTED = "listed"  #: A new run lists it, with the input and the options that it had
    LISTED_OTHERWISE = "listed otherwise"
    """A new run lists it with another input or other options; or it failed and is to be retried."""
    STARTED = "started"
    PUBLISHED = "published"
    FAILED = "failed"
    PUT_BACK = "put back"
    """It failed through no fault of its own and is tried again, or the batch ended before it did."""
    FOUND_SAME = "found same"
    FOUND_CHANGED = "found changed"


_S, _H = EntryState, EntryEvent
EDGES: Final = {
    # A new run begins.
    (_S.WAITING, _H.LISTED): _S.WAITING,
    (_S.RUNNING, _H.LISTED): _S.WAITING,  # its run was killed: the job goes on from its journal
    (_S.DONE, _H.LISTED): _S.DONE_BEFORE,
    (_S.FAILED, _H.LISTED): _S.FAILED_BEFORE,
    (_S.DONE_BEFORE, _H.LISTED): _S.DONE_BEFORE,  # an earlier run ended before it had looked
    (_S.FAILED_BEFORE, _H.LISTED): _S.FAILED_BEFORE,
    **{(state, _H.LISTED_OTHERWISE): _S.WAITING for state in _S},
    # What an earlier run did is compared.
    (_S.DONE_BEFORE, _H.FOUND_SAME): _S.DONE,
    (_S.DONE_BEFORE, _H.FOUND_CHANGED): _S.WAITING,
    (_S.FAILED_BEFORE, _H.FOUND_SAME): _S.FAILED,
    (_S.FAILED_BEFORE, _H.FOUND_CHANGED): _S.WAITING,
    # A try.
    (_S.WAITING, _H.STARTED): _S.RUNNING,
    (_S.WAITING, _H.FAILED): _S.FAILED,  # its input is not there, or something else has its output's name
    (_S.WAITING, _H.PUT_BACK): _S.WAITING,
    (_S.RUNNING, _H.PUBLISHED): _S.DONE,
    (_S.RUNNING, _H.FAILED): _S.FAILED,
    (_S.RUNNING, _H.PUT_BACK): _S.WAITING,
}


def after(state: EntryState, happening: EntryEvent) -> EntryState:
    """Return the state that follows. Raises ValueError: nothing of that kind can happen then."""
    try:
        return EDGES[state, happening]
    except KeyError:
        raise ValueError(f"{happening.value} cannot happen to an entry that is {state.value}") from None


def when_listed(state: str, *, same_input: bool, same_spec: bool, retry_failed: bool) -> str:
    """Return the state of an entry that the database has in ``state`` when a new run lists it."""
    before = EntryState(state)
    retried = retry_failed and before in (EntryState.FAILED, EntryState.FAILED_BEFORE)
    same = same_input and same_spec and not retried
    return after(before, EntryEvent.LISTED if same else EntryEvent.LISTED_OTHERWISE).value


def after_error(error: BaseException, tries: int) -> EntryEvent:
    """Return what an error does to its entry, whose ``tries``-th try of this run it ended.

    An error in the input, in the request or in codecfleet itself would come again.
    """
    if isinstance(error, FleetUnavailable):
        return EntryEvent.PUT_BACK
    return EntryEvent.PUT_BACK if isinstance(error, WorkError) and tries < TRIES else EntryEvent.FAILED


def batch_ender(error: BaseException, faults_in_a_row: int) -> WorkError | None:
    """Return what ends the batch, if an error does: the last of a row of faults that were not in the files."""
    if isinstance(error, FleetUnavailable):
        return error
    if not isinstance(error, WorkError) or faults_in_a_row < FAULTS_IN_A_ROW:
        return None
    message = (
        f"{faults_in_a_row} files in a row failed through no fault of their own, the last one with: {error.message}"
    )
    return WorkError(message, f"{error.next_step} Then run the same command again.".lstrip())


def exit_code_of(codes: set[int]) -> int:
    """Return a batch's exit code, given those of the errors of its failed files.

    5 if another run may do better (a machine or a store failed), else 4 if another request may, else 3: the inputs.
    """
    return max(codes, default=0)
