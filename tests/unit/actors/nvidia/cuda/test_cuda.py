"""Calls of CUDA's driver API: codes become errors with a next step."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.cuda.context import Cuda, check_cuda
from codecfleet.errors import DeviceError, EngineUnfit
from codecfleet.testing.nvidia.fake_cuda import CONTEXT, FakeCudaDriver


@given(code=st.integers(1, 2000))
def test_every_code_is_an_error_of_ours(code: int) -> None:
    """Any code becomes an error that names the code and can be pickled."""
    with pytest.raises(DeviceError, match=f"CUDA error {code}") as caught:
        check_cuda(code, "cuThing")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - pickled one line above
    assert (type(again), again.message) == (type(caught.value), caught.value.message)


class _NoDriver:
    """A binding that finds no driver."""

    def cuInit(self, flags: int) -> tuple[int]:  # noqa: N802 - the binding's own name
        """Refuse."""
        message = f'"cuda" can only be found via system search ({flags})\nand some more'
        raise RuntimeError(message)


def test_a_machine_without_a_driver_says_so() -> None:
    """If the binding finds no driver, the first line of its error is the reason why no engine can be used."""
    with pytest.raises(EngineUnfit, match=r"CUDA cannot be used here: .* via system search") as caught:
        Cuda(_NoDriver())
    assert "\n" not in caught.value.message


def test_the_context_is_the_devices_primary_one_and_is_left_again() -> None:
    """The primary context is used, and after every call the thread's own context is current again."""
    driver = FakeCudaDriver()
    cuda = Cuda(driver)
    assert cuda.context == CONTEXT
    with cuda.entered:
        assert driver.pushed == 1
        assert cuda.free_bytes() == 1 << 30
        assert driver.pushed == 1
    with pytest.raises(DeviceError, match="cuMemFree"):
        cuda.free(12345)
    assert (driver.pushed, "cuCtxSetCurrent" in driver.calls) == (0, False)
