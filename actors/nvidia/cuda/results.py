"""CUresult codes after which a process cannot use CUDA; all other codes report only one failed call.

Source: CUDA Driver API, "CUresult" (cuda.h): the process must be relaunched, or the context is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ....errors import DeviceError, DeviceLost, DeviceMemory, EngineHung, EngineUnfit


@dataclass(frozen=True, slots=True)
class FatalResult:
    """A code after which the process cannot use CUDA: its name without "CUDA_ERROR_", and the reason."""

    name: str
    why: str


_MUST_END = "only a new process can use CUDA again"
FATAL_RESULTS: Final[Mapping[int, FatalResult]] = {
    3: FatalResult("NOT_INITIALIZED", "the driver does not start"),
    4: FatalResult("DEINITIALIZED", "the driver is shutting down in this process"),
    46: FatalResult("DEVICE_UNAVAILABLE", "another process has the device exclusively, or its state forbids a context"),
    100: FatalResult("NO_DEVICE", "the driver no longer shows this process any device"),
    # The context is entered before every call, so these codes mean that the context was lost.
    201: FatalResult("INVALID_CONTEXT", "the context no longer exists"),
    214: FatalResult("ECC_UNCORRECTABLE", "the device's memory failed, and its contents may be wrong"),
    220: FatalResult("NVLINK_UNCORRECTABLE", "the device's NVLink failed, and data that it carried may be wrong"),
    226: FatalResult("CONTAINED", f"the device contained a hardware fault; {_MUST_END}"),
    # The kernel part of the driver failed, and does not say where.
    304: FatalResult("OPERATING_SYSTEM", "an operating system call of the driver failed"),
    700: FatalResult("ILLEGAL_ADDRESS", f"the device accessed an invalid address; {_MUST_END}"),
    702: FatalResult("LAUNCH_TIMEOUT", f"the device did not answer in time; {_MUST_END}"),
    709: FatalResult("CONTEXT_IS_DESTROYED", "the context is destroyed"),
    710: FatalResult("ASSERT", "an assertion failed on the device, and its context cannot be used any more"),
    714: FatalResult("HARDWARE_STACK_ERROR", f"the device's call stack is corrupt; {_MUST_END}"),
    715: FatalResult("ILLEGAL_INSTRUCTION", f"the device found an invalid instruction; {_MUST_END}"),
    716: FatalResult("MISALIGNED_ADDRESS", f"the device accessed a misaligned address; {_MUST_END}"),
    717: FatalResult("INVALID_ADDRESS_SPACE", f"the device accessed an address of the wrong space; {_MUST_END}"),
    718: FatalResult("INVALID_PC", f"the device's program counter is invalid; {_MUST_END}"),
    719: FatalResult("LAUNCH_FAILED", f"an exception occurred on the device; {_MUST_END}"),
    721: FatalResult("TENSOR_MEMORY_LEAK", f"a kernel ended without freeing its tensor memory; {_MUST_END}"),
    810: FatalResult("MPS_CLIENT_TERMINATED", f"the MPS server has ended this client; {_MUST_END}"),
    911: FatalResult("EXTERNAL_DEVICE", f"a device beside the GPU reported an error; {_MUST_END}"),
    # A GPU that fell off the bus answers every call with this code.
    999: FatalResult("UNKNOWN", "an unknown error inside the driver"),
}
"""The results after which the process cannot use CUDA, by their codes."""

_OUT_OF_MEMORY, _LAUNCH_TIMEOUT, _NOT_SUPPORTED = 2, 702, 801
_NAMES: Final = {
    _OUT_OF_MEMORY: "OUT_OF_MEMORY",
    _NOT_SUPPORTED: "NOT_SUPPORTED",
    **{code: result.name for code, result in FATAL_RESULTS.items()},
}
_CODES: Final = {name: code for code, name in _NAMES.items()}


def kind_of_result(code: int, otherwise: type[DeviceError]) -> type[DeviceError]:
    """Return codecfleet's error class for a CUresult, or ``otherwise`` if the code concerns only the failed call."""
    if code == _OUT_OF_MEMORY:
        return DeviceMemory
    if code == _NOT_SUPPORTED:
        return EngineUnfit
    if code == _LAUNCH_TIMEOUT:
        return EngineHung
    return DeviceLost if code in FATAL_RESULTS else otherwise


def result_named(name: str) -> int | None:
    """Return the code of the CUresult with this name (without "CUDA_ERROR_") if ``kind_of_result`` knows it."""
    return _CODES.get(name)


def name_of_result(code: int) -> str:
    """Return the name in cuda.h of a code that ``kind_of_result`` knows; "" for other codes."""
    return f"CUDA_ERROR_{_NAMES[code]}" if code in _NAMES else ""
