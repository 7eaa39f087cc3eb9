"""The states of a batch's entries, and what errors do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import (
    CodecfleetError,
    InputUnreadable,
    OutputExists,
    SegmentFailed,
    StorageFailed,
    UsageError,
    WorkError,
)
from codecfleet.jobs.batch.store.states import (
    FAULTS_IN_A_ROW,
    TRIES,
    EntryEvent,
    EntryState,
    after_error,
    batch_ender,
    exit_code_of,
    when_listed,
)

STATES = st.sampled_from(list(EntryState))


@given(STATES, st.booleans())
def test_another_input_or_spec_is_done_again_whatever_became_of_it(state: EntryState, same_input: bool) -> None:  # noqa: FBT001
    """A change of either makes an entry wait."""
    now = when_listed(state.value, same_input=same_input, same_spec=not same_input, retry_failed=False)
    assert now == "waiting"


@given(STATES, st.booleans())
def test_a_new_run_trusts_nothing_that_it_has_not_compared(state: EntryState, retry_failed: bool) -> None:  # noqa: FBT001
    """When it is listed again an entry waits, or is to be compared; only those that failed are retried on request."""
    now = EntryState(when_listed(state.value, same_input=True, same_spec=True, retry_failed=retry_failed))
    failed = state in (EntryState.FAILED, EntryState.FAILED_BEFORE)
    ended = failed or state in (EntryState.DONE, EntryState.DONE_BEFORE)
    if not ended or (failed and retry_failed):
        assert now is EntryState.WAITING
    else:
        assert now is (EntryState.FAILED_BEFORE if failed else EntryState.DONE_BEFORE)


@pytest.mark.parametrize(
    "error", [InputUnreadable("broken"), OutputExists("there"), UsageError("no"), RuntimeError("defect")]
)
def test_an_inputs_own_fault_is_never_tried_twice(error: Exception) -> None:
    """The input's fault, the request's, and a defect would be the same again."""
    assert after_error(error, 1) is EntryEvent.FAILED
    assert batch_ender(error, FAULTS_IN_A_ROW) is None


def test_other_faults_are_tried_twice() -> None:
    """Infrastructure gets a second try, at the end of the queue."""
    assert [after_error(StorageFailed("full"), tries) for tries in range(1, TRIES + 1)] == [
        EntryEvent.PUT_BACK,
        EntryEvent.FAILED,
    ]


def test_a_row_of_faults_ends_the_batch() -> None:
    """When everything fails through no fault of its own, the rest is not tried."""
    error = SegmentFailed("broken", "Look.")
    assert batch_ender(error, FAULTS_IN_A_ROW - 1) is None
    ended = batch_ender(error, FAULTS_IN_A_ROW)
    assert isinstance(ended, WorkError)
    assert ended.message.startswith("8 files in a row failed")


def test_the_exit_code_is_the_worst() -> None:
    """Machines before requests before inputs; nothing failed is 0."""
    assert [exit_code_of(codes) for codes in (set(), {3}, {3, 4}, {3, 4, CodecfleetError.exit_code})] == [0, 3, 4, 5]
