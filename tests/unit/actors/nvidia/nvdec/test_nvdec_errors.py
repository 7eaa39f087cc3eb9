"""The errors of PyNvVideoCodec's decoder become our errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.nvidia.nvdec.session import mapped
from codecfleet.errors import DeviceError, DeviceLost, DeviceMemory, EngineFailed, EngineUnfit


class PyNvVCExceptionUnsupported(Exception):
    """Has the name of the package's exception for unsupported features."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("Error code : 2\nError Type : out of memory"), DeviceMemory),
        (RuntimeError("Error code : 700"), DeviceLost),
        (RuntimeError("Error code : 4711"), DeviceError),
        (RuntimeError("something that no version said before"), EngineFailed),
        (RuntimeError(""), EngineFailed),
        (PyNvVCExceptionUnsupported("Codec not supported on this GPU"), EngineUnfit),
        (PyNvVCExceptionUnsupported("Error code : 2"), DeviceMemory),
    ],
)
def test_a_fault_is_told_by_its_code_then_by_its_class(error: Exception, kind: type[DeviceError]) -> None:
    """A known code decides; without a code, the class of the package's exception; any other error is a failure."""
    assert type(mapped(error, "NVDEC cannot open a session")) is kind


def test_our_own_errors_pass() -> None:
    """Our own errors pass unchanged."""
    ours = EngineFailed("failed", "Try again.")
    assert mapped(ours, "NVDEC cannot open a session") is ours


@given(st.text())
def test_any_message_is_one_of_ours(text: str) -> None:
    """Any message of the package becomes one of our errors."""
    assert mapped(RuntimeError(text), "NVDEC cannot open a session").next_step
