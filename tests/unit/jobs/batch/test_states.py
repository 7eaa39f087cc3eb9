"""The states of a batch's entries, and the effect of errors on them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.errors import (
    CodecfleetError,
    InputUnreadable,
    OutputExists,
    StorageFailed,
)
from codecfleet.jobs.batch.store.states import (
    EntryEvent,
    EntryState,
    after_error,
    batch_ender,
    exit_code_of,
    when_listed,
)


@given(st.sampled_from(EntryState), st.booleans(), st.booleans(), st.booleans())
def test_a_new_run_trusts_nothing_that_it_has_not_compared(
    state: EntryState,
    same_input: bool,  # noqa: FBT001 - Hypothesis gives it
    same_spec: bool,  # noqa: FBT001
    retry_failed: bool,  # noqa: FBT001
) -> None:
    """A changed entry waits; others wait or are compared; failed entries are retried only on request."""
    found = when_listed(state.value, same_input=same_input, same_spec=same_spec, retry_failed=retry_failed)
    failed = state in (EntryState.FAILED, EntryState.FAILED_BEFORE)
    ended = failed or state in (EntryState.DONE, EntryState.DONE_BEFORE)
    expected = EntryState.WAITING
    if same_input and same_spec and ended and not (failed and retry_failed):
        expected = EntryState.FAILED_BEFORE if failed else EntryState.DONE_BEFORE
    assert EntryState(found) is expected


@pytest.mark.parametrize(
    ("error", "tries"),
    [(InputUnreadable("broken"), 1), (OutputExists("there"), 1), (RuntimeError("defect"), 1), (StorageFailed(""), 2)],
)
def test_only_faults_of_the_machines_are_tried_twice(error: Exception, tries: int) -> None:
    """Faults of the input or request, and defects, are not retried and do not end the batch."""
    assert [after_error(error, n) for n in range(1, tries + 1)] == [EntryEvent.PUT_BACK] * (tries - 1) + [
        EntryEvent.FAILED
    ]
    assert (batch_ender(error, 8) is None) == (tries == 1)
    assert batch_ender(error, 7) is None


def test_the_exit_code_is_the_worst() -> None:
    """The exit code is that of the worst fault: machine, then request, then input; 0 without a failure."""
    assert [exit_code_of(codes) for codes in (set(), {3}, {3, 4}, {3, 4, CodecfleetError.exit_code})] == [0, 3, 4, 5]
