"""The session's state machine, and the errors for cuDLA's status codes."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.dla.engine.states import EDGES, LIVE, DlaEvent, DlaSessionState, next_state
from codecfleet.actors.dla.engine.statuses import CudlaStatus, error_of, is_final
from codecfleet.errors import DeviceError, EngineFailed, EngineHung, Retry, Unsupported, UsageError

NOT_SUCCESS = [status for status in CudlaStatus if status is not CudlaStatus.SUCCESS]


@given(st.lists(st.sampled_from(list(DlaEvent))))
def test_no_way_leads_back_from_what_broke(happenings: list[DlaEvent]) -> None:
    """A session that failed, hung or was closed never accepts work again."""
    state, over = DlaSessionState.IDLE, False
    for happening in happenings:
        if (state, happening) not in EDGES:
            with pytest.raises(ValueError, match=state.value):
                next_state(state, happening)
            continue
        state = next_state(state, happening)
        over = over or state not in LIVE
        assert not over or state not in LIVE


def test_failure_can_come_at_any_time() -> None:
    """Every state but CLOSED has an edge for an error and for a hang."""
    for state in DlaSessionState:
        if state is not DlaSessionState.CLOSED:
            assert (state, DlaEvent.FAIL) in EDGES
            assert (state, DlaEvent.HANG) in EDGES


@pytest.mark.parametrize("status", NOT_SUCCESS)
def test_every_status_becomes_an_error_of_ours(status: CudlaStatus) -> None:
    """An error names call, meaning and code, and can be pickled; only a device's errors are retried elsewhere."""
    error = error_of("cudlaSubmitTask", status, 2)
    for part in ("DLA 2", "cudlaSubmitTask", status.meaning, status.name):
        assert part in error.message
    assert error.next_step
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again)) == (type(error), str(error))
    assert is_final(status) is (status is not CudlaStatus.MEMORY_REGISTERED)
    assert isinstance(error, DeviceError | Unsupported | UsageError)
    assert error.retry is (Retry.ELSEWHERE if isinstance(error, DeviceError) else Retry.NEVER)


def test_a_loadable_that_the_runtime_refuses_is_to_be_built_again() -> None:
    """The DLA's runtime reports a damaged loadable by the same code as its own failures."""
    assert error_of("cudlaModuleLoadFromMemory", CudlaStatus.UMD, 0).next_step.startswith("Build the loadable again")
    assert error_of("cudlaSubmitTask", CudlaStatus.UMD, 0).next_step.startswith("Restart the process")


def test_the_engine_s_errors_are_told_apart() -> None:
    """A time-out of the engine is a hang, and its other errors are failures; errors of the library are neither."""
    kinds = {status: type(error_of("cudlaTask", status, 0)) for status in NOT_SUCCESS}
    assert [status for status, kind in kinds.items() if kind is EngineHung] == [CudlaStatus.DLA_ENGINE_TIMEOUT]
    assert {status.name[:4] for status, kind in kinds.items() if kind is EngineFailed} == {"DLA_"}


@given(st.integers(min_value=-(2**31), max_value=2**31 - 1))
def test_unknown_codes_are_unknown_errors(code: int) -> None:
    """Any number that a newer library returns becomes a status with a meaning."""
    assert CudlaStatus.of(code).meaning
    assert CudlaStatus.of(code) in (code, CudlaStatus.UNKNOWN)
