"""CUDA's error codes that tell about a machine and not about a program: meaning and mend."""

from dataclasses import dataclass

__all__ = ["CUDA_ERRORS", "CudaError", "cuda_error"]


@dataclass(frozen=True, slots=True)
class CudaError:
    """One code of the driver and runtime interfaces, which share their numbers from here on.

    ``driver_name`` and ``runtime_name`` are CUDA's own, "" where an interface has none; ``meaning`` and ``fix`` are
    one sentence each without a full stop. ``is_passing`` tells that the same call may succeed
    later, with nothing mended.
    """

    code: int
    driver_name: str
    runtime_name: str
    meaning: str
    fix: str
    is_passing: bool = False

    @property
    def name(self) -> str:
        """The name by which people find it: the driver's, else the runtime's."""
        return self.driver_name or self.runtime_name


_MPS_FIX = (
    "look at the control daemon's log (CUDA_MPS_LOG_DIRECTORY) and start it again, or unset CUDA_MPS_PIPE_DIRECTORY"
)

_ALL = (
    CudaError(
        2,
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "the device has no memory left for a context",
        "end a process that holds the device's memory, or place less work on it",
        is_passing=True,
    ),
    CudaError(
        3,
        "CUDA_ERROR_NOT_INITIALIZED",
        "cudaErrorInitializationError",
        "the driver is older than the CUDA runtime allows, or its kernel module does not answer",
        "load the kernel module (sudo modprobe nvidia; nvidia-smi says why it fails), or install a newer driver",
    ),
    CudaError(
        34,
        "CUDA_ERROR_STUB_LIBRARY",
        "cudaErrorStubLibrary",
        "the libcuda that was loaded is the toolkit's stub, made for linking only",
        "take the toolkit's lib64/stubs folder out of LD_LIBRARY_PATH, so that the driver's own libcuda is found",
    ),
    CudaError(
        35,
        "",
        "cudaErrorInsufficientDriver",
        "the installed driver is older than the CUDA runtime needs, or there is none",
        "install a newer driver; codecfleet doctor says which, and whether a compat package fits this one",
    ),
    CudaError(
        36,
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
        "cudaErrorCallRequiresNewerDriver",
        "a function newer than the installed driver was called: the limit of minor-version compatibility",
        "install the driver of the toolkit's own minor version or later",
    ),
    CudaError(
        46,
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "cudaErrorDevicesUnavailable",
        "another process holds the device for itself (exclusive compute mode), or its state forbids a context",
        "end that process, or set the compute mode back (nvidia-smi -c DEFAULT)",
        is_passing=True,
    ),
    CudaError(
        100,
        "CUDA_ERROR_NO_DEVICE",
        "cudaErrorNoDevice",
        "the driver is there, and no device that this process may see",
        "look at CUDA_VISIBLE_DEVICES and at the devices the container was given (--gpus, NVIDIA_VISIBLE_DEVICES)",
    ),
    CudaError(
        101,
        "CUDA_ERROR_INVALID_DEVICE",
        "cudaErrorInvalidDevice",
        "there is no such device, or CUDA_VISIBLE_DEVICES names one that is not here",
        "set CUDA_VISIBLE_DEVICES to the UUIDs that nvidia-smi -L prints",
    ),
    CudaError(
        222,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "cudaErrorUnsupportedPtxVersion",
        "the driver cannot compile PTX that a newer toolkit made: the limit of minor-version compatibility",
        "install a driver of the toolkit's own version, or compile the program for the device itself (SASS)",
    ),
    CudaError(
        802,
        "CUDA_ERROR_SYSTEM_NOT_READY",
        "cudaErrorSystemNotReady",
        "the system is not ready for CUDA: on NVSwitch machines the fabric manager does not run or has not finished",
        "install nvidia-fabricmanager of exactly the driver's version, start it (sudo systemctl start "
        "nvidia-fabricmanager) and wait until nvidia-smi -q shows the Fabric's State as Completed",
        is_passing=True,
    ),
    CudaError(
        803,
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        "cudaErrorSystemDriverMismatch",
        "the kernel driver and the libcuda that was loaded are of versions that do not go together",
        "restart the machine after a driver upgrade; take an old compat package out of LD_LIBRARY_PATH",
    ),
    CudaError(
        804,
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "cudaErrorCompatNotSupportedOnDevice",
        "a compat libcuda was loaded, and this GPU is none of those that forward compatibility is for",
        "take the compat package out of LD_LIBRARY_PATH and ld.so.conf, and install a newer driver instead",
    ),
    CudaError(
        805,
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
        "cudaErrorMpsConnectionFailed",
        "no connection to the MPS control daemon or its server",
        _MPS_FIX,
    ),
    CudaError(
        806,
        "CUDA_ERROR_MPS_RPC_FAILURE",
        "cudaErrorMpsRpcFailure",
        "a call to the MPS server failed",
        _MPS_FIX,
    ),
    CudaError(
        807,
        "CUDA_ERROR_MPS_SERVER_NOT_READY",
        "cudaErrorMpsServerNotReady",
        "the MPS server takes no clients just now: it starts, or recovers from a fault",
        "try again in a moment",
        is_passing=True,
    ),
    CudaError(
        808,
        "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        "cudaErrorMpsMaxClientsReached",
        "the MPS server has as many client processes as it takes",
        "end a client, or use fewer worker processes per device",
        is_passing=True,
    ),
    CudaError(
        809,
        "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        "cudaErrorMpsMaxConnectionsReached",
        "the device's connections for MPS clients are used up",
        "end a client, or lower CUDA_DEVICE_MAX_CONNECTIONS",
        is_passing=True,
    ),
)

CUDA_ERRORS = {error.code: error for error in _ALL}
"""By code (CUDA Compatibility 2.1, 2.2 and 3.3.3; the CUDA driver and runtime interfaces)."""


def cuda_error(code: int) -> CudaError:
    """Return what is known of a code; a general answer for one that tells nothing about the machine."""
    known = CUDA_ERRORS.get(code)
    return known or CudaError(
        code, f"CUDA error {code}", "", "the driver answered with an error", "look for NVRM lines in the kernel's log"
    )
