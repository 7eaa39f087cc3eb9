"""cuDLA's status codes: what each means, and which error it becomes.

Every error but ``MEMORY_REGISTERED`` is final for the process, which must be restarted (CUDA for Tegra, section 5.4).
"""

from enum import IntEnum
from typing import Final, Self

from ....errors import CodecfleetError, DeviceLost, EngineFailed, EngineHung, Unsupported, UsageError
from ..nvsci.library import NvSciFailure


class CudlaStatus(IntEnum):
    """``cudlaStatus``. Codes from 0x40000001 on come from the engine itself, during or after a task."""

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> Self:
        """Make a member from its code and the code's meaning."""
        status = int.__new__(cls, code)
        status._value_, status.meaning = code, meaning
        return status

    SUCCESS = 0, "no error"
    INVALID_PARAM = 1, "a parameter is invalid"
    OUT_OF_RESOURCES = 2, "too few resources"
    CREATION_FAILED = 3, "the device handle could not be created"
    INVALID_ADDRESS = 4, "the memory is not registered, or not valid"
    OS = 5, "the operating system failed"
    CUDA = 6, "a CUDA operation failed inside cuDLA"
    UMD = 7, "the DLA runtime failed"
    INVALID_DEVICE = 8, "the device handle is not valid"
    INVALID_ATTRIBUTE = 9, "there is no such attribute"
    INCOMPATIBLE_DLA_SW_VERSION = 10, "the DLA runtime and cuDLA are incompatible"
    MEMORY_REGISTERED = 11, "the memory is registered already"
    INVALID_MODULE = 12, "not a loadable for this DLA"
    UNSUPPORTED_OPERATION = 13, "this operation is not supported"
    NV_SCI = 14, "an NvSci operation failed"
    DRIVER_NOT_FOUND = 15, "the DLA driver is missing"
    DLA_INVALID_INPUT = 0x40000001, "the engine refused the task's input"
    DLA_INVALID_PRE_ACTION = 0x40000002, "the engine refused an action before the task"
    DLA_NO_MEM = 0x40000003, "the engine had no memory"
    DLA_PROCESSOR_BUSY = 0x40000004, "the engine's processor was busy"
    DLA_TASK_STATUS_MISMATCH = 0x40000005, "the engine's task ended in another state than expected"
    DLA_ENGINE_TIMEOUT = 0x40000006, "the engine did not end the task in time"
    DLA_DATA_MISMATCH = 0x40000007, "the engine's data does not match"
    UNKNOWN = 0x7FFFFFFF, "an unknown error"

    @classmethod
    def of(cls, code: int) -> "CudlaStatus":
        """Return the status of a code; ``UNKNOWN`` for a code that is not listed here."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN


_ENGINE_FIRST: Final = CudlaStatus.DLA_INVALID_INPUT
_SAME_EVERYWHERE: Final = frozenset(
    {CudlaStatus.INCOMPATIBLE_DLA_SW_VERSION, CudlaStatus.INVALID_MODULE, CudlaStatus.UNSUPPORTED_OPERATION}
)
_LOADS: Final = "cudlaModuleLoadFromMemory"
_UNSUPPORTED: Final = {
    _LOADS: "Build the loadable for this DLA and its software: docs/dla.md.",
    "cudlaCreateDevice": "DLAs need Tegra's integrated GPU, and hybrid mode needs CUDA: docs/dla.md.",
    "cudlaImportExternalMemory": "Use standalone mode for NvSci memory: docs/dla.md.",
}
_LOADING: Final = "Build the loadable again, for this DLA and its software: the file may be damaged."
_RESTART: Final = "Restart the process; codecfleet doctor shows what the machine can do."


class CudlaFailure(Exception):
    """A failed call of the library. If ``device`` is None, the DLA that was called is to blame."""

    def __init__(self, call: str, status: CudlaStatus, device: int | None = None) -> None:
        super().__init__(call, status, device)
        self.call = call
        self.status = status
        self.device = device


class FunctionMissing(CudlaFailure):
    """This version of libcudla lacks the function that was called."""

    def __init__(self, call: str) -> None:
        super().__init__(call, CudlaStatus.UNSUPPORTED_OPERATION)


def sci_error(failure: NvSciFailure, device: int) -> CodecfleetError:
    """Return the error for a failure of NvSci, whose memory and fences every session needs."""
    return DeviceLost(f"DLA {device}: {failure.call}: {failure.meaning}", _RESTART)


def is_final(status: CudlaStatus) -> bool:
    """Return whether this process cannot use cuDLA any more after ``status``."""
    return status not in (CudlaStatus.SUCCESS, CudlaStatus.MEMORY_REGISTERED)


def error_of(call: str, status: CudlaStatus, device: int) -> CodecfleetError:
    """Return the error for ``status``, which must not be ``SUCCESS``."""
    message = f"DLA {device}: {call}: {status.meaning} (cuDLA status {status.name}, {status.value:#x})"
    if status is CudlaStatus.MEMORY_REGISTERED:
        return UsageError(message, "Unregister the memory first, or use its registration.")
    if status in _SAME_EVERYWHERE:
        return Unsupported(message, _UNSUPPORTED.get(call, "docs/dla.md lists what cuDLA supports."))
    if status is CudlaStatus.DLA_ENGINE_TIMEOUT:
        return EngineHung(message, _RESTART)
    if _ENGINE_FIRST <= status < CudlaStatus.UNKNOWN:
        return EngineFailed(message, _RESTART)
    return DeviceLost(message, _LOADING if call == _LOADS else _RESTART)
