"""CUDA's driver API at its edge: calls that answer codes, errors that say what to do."""

import ctypes
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.cuda.context import Cuda, raise_cuda
from codecfleet.errors import DeviceError, DeviceLost, DeviceMemory, EngineHung, EngineUnfit
from codecfleet.testing.nvidia.fake_cuda import CONTEXT, FakeCudaDriver


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (2, DeviceMemory),
        (801, EngineUnfit),
        (702, EngineHung),
        *((code, DeviceLost) for code in (3, 46, 100, 201, 214, 304, 700, 719, 721, 999)),
        (1, DeviceError),
        (101, DeviceError),
        (803, DeviceError),
    ],
)
def test_a_code_says_what_to_do(code: int, kind: type[DeviceError]) -> None:
    """Full memory, a missing feature and a lost context are told apart; all else is the device's error."""
    with pytest.raises(DeviceError) as caught:
        raise_cuda(code, "cuThing", "CUDA_ERROR_THING")
    assert type(caught.value) is kind
    assert caught.value.message.startswith(f"cuThing failed with CUDA error {code} (CUDA_ERROR_THING)")
    assert caught.value.next_step


@given(code=st.integers(1, 2000))
def test_every_code_is_an_error_of_ours(code: int) -> None:
    """Whatever the driver answers, the error names it and travels between processes."""
    with pytest.raises(DeviceError, match=f"CUDA error {code}") as caught:
        raise_cuda(code, "cuThing")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made a line ago
    assert (type(again), again.message) == (type(caught.value), caught.value.message)


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
@pytest.mark.parametrize(("code", "kind"), [(2, DeviceMemory), (100, DeviceLost), (803, DeviceError)])
def test_no_context_is_said_before_anything_else(call: str, code: int, kind: type[DeviceError]) -> None:
    """Whichever step to a context fails, its name and code are in the error."""
    with pytest.raises(kind, match=f"{call} failed with CUDA error {code}"):
        Cuda(FakeCudaDriver(faults={call: code}))


class _NoDriver:
    """Stands for a binding that finds no driver."""

    def cuInit(self, flags: int) -> tuple[int]:  # noqa: N802 - the binding's own name
        """Refuse."""
        message = f'"cuda" can only be found via system search ({flags})\nand some more'
        raise RuntimeError(message)


def test_a_machine_without_a_driver_says_so() -> None:
    """Where the binding finds no driver, the first line of what it says is the reason why no engine can be used."""
    with pytest.raises(EngineUnfit, match=r"CUDA cannot be used here: .* via system search") as caught:
        Cuda(_NoDriver())
    assert "\n" not in caught.value.message


def test_the_context_is_the_devices_primary_one_and_is_left_again() -> None:
    """There is one context; whatever is called, the thread's own context is current again afterwards."""
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


def test_what_is_taken_is_given_back() -> None:
    """Streams and memory go back where they came from, once."""
    driver = FakeCudaDriver()
    cuda = Cuda(driver)
    stream, pinned, allocated = cuda.stream(), cuda.pin(64), cuda.allocate(32)
    assert stream.number in driver.streams
    assert set(driver.memory) == {pinned, allocated}
    stream.close()
    cuda.unpin(pinned)
    cuda.free(allocated)
    assert (driver.streams, driver.memory) == ({}, {})
    with pytest.raises(DeviceError, match="cuMemFree"):
        cuda.free(allocated)


@given(content=st.binary(min_size=1, max_size=64))
def test_a_copy_is_done_when_its_stream_is(content: bytes) -> None:
    """Bytes arrive unchanged, once the stream was waited for."""
    cuda = Cuda(FakeCudaDriver())
    stream, host, device = cuda.stream(), cuda.pin(len(content)), cuda.allocate(len(content))
    ctypes.memmove(device, content, len(content))
    cuda.copy_to_host(host, device, len(content), stream)
    before = ctypes.string_at(host, len(content))
    stream.wait()
    assert ctypes.string_at(host, len(content)) == content
    assert set(before) == {0xA5}


def test_an_error_inside_a_stream_shows_when_it_is_waited_for() -> None:
    """A copy that leaves its memory loses the context, and the wait says so."""
    cuda = Cuda(FakeCudaDriver())
    stream, host, device = cuda.stream(), cuda.pin(8), cuda.allocate(4)
    cuda.copy_to_host(host, device, 8, stream)
    with pytest.raises(DeviceLost, match="700"):
        stream.wait()


@pytest.mark.parametrize("call", ["cuMemHostAlloc", "cuMemAlloc", "cuStreamCreate"])
def test_full_memory_is_told(call: str) -> None:
    """Where nothing more can be had, the error is the one that frees what is idle."""
    cuda = Cuda(FakeCudaDriver(faults={call: 2}))
    ask = {"cuMemHostAlloc": lambda: cuda.pin(8), "cuMemAlloc": lambda: cuda.allocate(8), "cuStreamCreate": cuda.stream}
    with pytest.raises(DeviceMemory, match=call):
        ask[call]()
