"""CUDA's error codes that say something about a machine and not about a program: meaning and fix."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CudaError:
    """One code of the driver and runtime interfaces, which share their numbers from 34 on.

    ``is_passing``: the same call may succeed later, with nothing fixed.
    """

    code: int
    name: str
    meaning: str
    fix: str
    is_passing: bool = False


_MPS_FIX: Final = (
    "look at the control daemon's log (CUDA_MPS_LOG_DIRECTORY) and start it again, or unset CUDA_MPS_PIPE_DIRECTORY"
)
_FABRIC_FIX: Final = (
    "install nvidia-fabricmanager of exactly the driver's version, start it (sudo systemctl start "
    "nvidia-fabricmanager) and wait until nvidia-smi -q shows the Fabric's State as Completed"
)
_PASSING: Final = (2, 46, 802, 807, 808, 809)

CUDA_ERRORS: Final = {
    code: CudaError(code, name, meaning, fix, code in _PASSING)
    for code, (name, meaning, fix) in {
        2: (
            "CUDA_ERROR_OUT_OF_MEMORY",
            "the device has no memory left for a context",
            "end a process that holds the device's memory, or place less work on it",
        ),
        3: (
            "CUDA_ERROR_NOT_INITIALIZED",
            "the driver is older than the CUDA runtime allows, or its kernel module does not answer",
            "load the kernel module (sudo modprobe nvidia; nvidia-smi says why it fails), or install a newer driver",
        ),
        34: (
            "CUDA_ERROR_STUB_LIBRARY",
            "the libcuda that was loaded is the toolkit's stub, made for linking only",
            "take the toolkit's lib64/stubs folder out of LD_LIBRARY_PATH, so that the driver's own libcuda is found",
        ),
        35: (
            "cudaErrorInsufficientDriver",
            "the installed driver is older than the CUDA runtime needs, or there is none",
            "install a newer driver; codecfleet doctor says which, and whether a compat package fits this one",
        ),
        36: (
            "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
            "a function newer than the installed driver was called: the limit of minor-version compatibility",
            "install the driver of the toolkit's own minor version or later",
        ),
        46: (
            "CUDA_ERROR_DEVICE_UNAVAILABLE",
            "another process holds the device for itself (exclusive compute mode), or its state forbids a context",
            "end that process, or set the compute mode back (nvidia-smi -c DEFAULT)",
        ),
        100: (
            "CUDA_ERROR_NO_DEVICE",
            "the driver is there, and no device that this process may see",
            "look at CUDA_VISIBLE_DEVICES and at the devices the container was given (--gpus, NVIDIA_VISIBLE_DEVICES)",
        ),
        101: (
            "CUDA_ERROR_INVALID_DEVICE",
            "there is no such device, or CUDA_VISIBLE_DEVICES names one that is not here",
            "set CUDA_VISIBLE_DEVICES to the UUIDs that nvidia-smi -L prints",
        ),
        222: (
            "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
            "the driver cannot compile PTX that a newer toolkit made: the limit of minor-version compatibility",
            "install a driver of the toolkit's own version, or compile the program for the device itself (SASS)",
        ),
        802: (
            "CUDA_ERROR_SYSTEM_NOT_READY",
            "not ready for CUDA: on NVSwitch machines the fabric manager does not run or has not finished",
            _FABRIC_FIX,
        ),
        803: (
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "the kernel driver and the libcuda that was loaded are of versions that do not go together",
            "restart the machine after a driver upgrade; take an old compat package out of LD_LIBRARY_PATH",
        ),
        804: (
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
            "a compat libcuda was loaded, and this GPU is none of those that forward compatibility is for",
            "take the compat package out of LD_LIBRARY_PATH and ld.so.conf, and install a newer driver instead",
        ),
        805: ("CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS control daemon or its server", _MPS_FIX),
        806: ("CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed", _MPS_FIX),
        807: (
            "CUDA_ERROR_MPS_SERVER_NOT_READY",
            "the MPS server takes no clients just now: it starts, or recovers from a fault",
            "try again in a moment",
        ),
        808: (
            "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
            "the MPS server has as many client processes as it takes",
            "end a client, or use fewer worker processes per device",
        ),
        809: (
            "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
            "the device's connections for MPS clients are used up",
            "end a client, or lower CUDA_DEVICE_MAX_CONNECTIONS",
        ),
    }.items()
}
"""By code (CUDA Compatibility 2.1, 2.2 and 3.3.3; the CUDA driver and runtime interfaces)."""


def cuda_error(code: int) -> CudaError:
    """Return what is known of a code; a general answer for one that says nothing about the machine."""
    general = ("the driver answered with an error", "look for NVRM lines in the kernel's log")
    return CUDA_ERRORS.get(code) or CudaError(code, f"CUDA error {code}", *general)
