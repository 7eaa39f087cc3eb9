"""What cuDLA answers: its status codes, what each means, and the error of ours it becomes.

Every error but one is final for the process, which must be restarted (CUDA for Tegra 5.4). So every status becomes an
error that sends the work elsewhere, except ``MEMORY_REGISTERED``, a harmless mistake of the caller, and those that
would be the same on every machine.
"""

from enum import IntEnum
from typing import Final

from ....errors import CodecfleetError, DeviceLost, EngineFailed, EngineHung, Unsupported, UsageError


class CudlaStatus(IntEnum):
    """``cudlaStatus``. Those from 0x40000001 on come from the engine itself, while or after it ran a task."""

    SUCCESS = 0
    INVALID_PARAM = 1
    OUT_OF_RESOURCES = 2
    CREATION_FAILED = 3
    INVALID_ADDRESS = 4
    OS = 5
    CUDA = 6
    UMD = 7
    INVALID_DEVICE = 8
    INVALID_ATTRIBUTE = 9
    INCOMPATIBLE_DLA_SW_VERSION = 10
    MEMORY_REGISTERED = 11
    INVALID_MODULE = 12
    UNSUPPORTED_OPERATION = 13
    NV_SCI = 14
    DRIVER_NOT_FOUND = 15
    DLA_INVALID_INPUT = 0x40000001
    DLA_INVALID_PRE_ACTION = 0x40000002
    DLA_NO_MEM = 0x40000003
    DLA_PROCESSOR_BUSY = 0x40000004
    DLA_TASK_STATUS_MISMATCH = 0x40000005
    DLA_ENGINE_TIMEOUT = 0x40000006
    DLA_DATA_MISMATCH = 0x40000007
    UNKNOWN = 0x7FFFFFFF

    @classmethod
    def of(cls, code: int) -> "CudlaStatus":
        """Return the status of a code; one that this version does not know is ``UNKNOWN``."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN

    @property
    def meaning(self) -> str:
        """Its meaning in words."""
        return _MEANINGS[self]


_MEANINGS: Final = {
    CudlaStatus.SUCCESS: "no error",
    CudlaStatus.INVALID_PARAM: "a parameter is wrong",
    CudlaStatus.OUT_OF_RESOURCES: "the resources for it are missing",
    CudlaStatus.CREATION_FAILED: "the device handle could not be created",
    CudlaStatus.INVALID_ADDRESS: "the memory is not registered, or not valid",
    CudlaStatus.OS: "the operating system failed",
    CudlaStatus.CUDA: "a CUDA operation failed inside cuDLA",
    CudlaStatus.UMD: "the DLA runtime failed",
    CudlaStatus.INVALID_DEVICE: "the device handle is not valid",
    CudlaStatus.INVALID_ATTRIBUTE: "there is no such attribute",
    CudlaStatus.INCOMPATIBLE_DLA_SW_VERSION: "the DLA runtime and cuDLA do not fit together",
    CudlaStatus.MEMORY_REGISTERED: "the memory is registered already",
    CudlaStatus.INVALID_MODULE: "not a loadable for this DLA",
    CudlaStatus.UNSUPPORTED_OPERATION: "this operation is not supported",
    CudlaStatus.NV_SCI: "an NvSci operation failed",
    CudlaStatus.DRIVER_NOT_FOUND: "the DLA driver is missing",
    CudlaStatus.DLA_INVALID_INPUT: "the engine refused the task's input",
    CudlaStatus.DLA_INVALID_PRE_ACTION: "the engine refused what was to happen before the task",
    CudlaStatus.DLA_NO_MEM: "the engine had no memory",
    CudlaStatus.DLA_PROCESSOR_BUSY: "the engine's processor was busy",
    CudlaStatus.DLA_TASK_STATUS_MISMATCH: "the engine's task ended in another state than expected",
    CudlaStatus.DLA_ENGINE_TIMEOUT: "the engine did not end the task in time",
    CudlaStatus.DLA_DATA_MISMATCH: "the engine's data does not match",
    CudlaStatus.UNKNOWN: "an unknown error",
}

_ENGINE_FIRST: Final = CudlaStatus.DLA_INVALID_INPUT
_SAME_EVERYWHERE: Final = frozenset(
    {CudlaStatus.INCOMPATIBLE_DLA_SW_VERSION, CudlaStatus.INVALID_MODULE, CudlaStatus.UNSUPPORTED_OPERATION}
)
_LOADS: Final = "cudlaModuleLoadFromMemory"
_UNSUPPORTED: Final = {
    _LOADS: "Build the loadable for this DLA and its software: docs/dla.md.",
    "cudlaCreateDevice": "DLAs go with Tegra's own GPU alone, and hybrid mode with CUDA: docs/dla.md.",
}
_LOADING: Final = "Build the loadable again, for this DLA and its software: a damaged one fails like this, too."
_RESTART: Final = "Restart the process; codecfleet doctor shows what the machine can do."


class CudlaFailure(Exception):
    """A call of the library that did not return success: raised by the libraries, mapped by the sessions.

    Args:
        call: the C function's name.
        status: what it returned.
        device: the DLA to blame, None for the one that was called.
    """

    def __init__(self, call: str, status: CudlaStatus, device: int | None = None) -> None:
        super().__init__(call, status, device)
        self.call = call
        self.status = status
        self.device = device


class FunctionMissing(CudlaFailure):
    """A function that this version of libcudla does not have."""

    def __init__(self, call: str) -> None:
        super().__init__(call, CudlaStatus.UNSUPPORTED_OPERATION)

    def __reduce__(self) -> tuple[type["FunctionMissing"], tuple[str]]:
        return type(self), (self.call,)


def is_final(status: CudlaStatus) -> bool:
    """Tell whether nothing more can be done with cuDLA in this process after ``status``."""
    return status not in (CudlaStatus.SUCCESS, CudlaStatus.MEMORY_REGISTERED)


def error_of(call: str, status: CudlaStatus, device: int) -> CodecfleetError:
    """Return the error that ``status`` becomes.

    Args:
        call: the C function that returned it, or that it was asked for with.
        status: any but ``SUCCESS``.
        device: the number of the DLA.
    """
    message = f"DLA {device}: {call}: {status.meaning} (cuDLA status {status.name}, {status.value:#x})"
    if status is CudlaStatus.MEMORY_REGISTERED:
        return UsageError(message, "Unregister it first, or use the registration there is.")
    if status in _SAME_EVERYWHERE:
        return Unsupported(message, _UNSUPPORTED.get(call, "docs/dla.md says what cuDLA can do."))
    if status is CudlaStatus.DLA_ENGINE_TIMEOUT:
        return EngineHung(message, _RESTART)
    if _ENGINE_FIRST <= status < CudlaStatus.UNKNOWN:
        return EngineFailed(message, _RESTART)
    return DeviceLost(message, _LOADING if call == _LOADS else _RESTART)
