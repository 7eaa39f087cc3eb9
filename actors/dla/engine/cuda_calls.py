"""The few calls of CUDA's driver API that hybrid sessions make.

The driver API, not the runtime's: it needs no further library, and reports a DLA's errors by the same rules
(CUDA for Tegra 5.1.5): ``cudaErrorExternalDevice`` is called ``CUDA_ERROR_EXTERNAL_DEVICE`` there.
"""

from typing import Any, Final

from ....errors import DeviceLost

EXTERNAL_DEVICE: Final = 911
"""An engine outside CUDA reported an error: ask every cuDLA handle."""
NON_BLOCKING: Final = 1
INTEGRATED: Final = 18
"""``CU_DEVICE_ATTRIBUTE_INTEGRATED``."""
BLOCKING_SYNC: Final = 4
"""``CU_CTX_SCHED_BLOCKING_SYNC``: a thread that waits for a batch sleeps, and leaves its core to decoding (3.5)."""
CONTEXT_ACTIVE: Final = 708
"""The context was made before this process set its flags; a driver before CUDA 11 then keeps those that it has."""


class CudaFailure(Exception):
    """A CUDA call that did not return success: its name, the number of its result, and that result's name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call, code, name)
        self.call = call
        self.code = code
        self.name = name


def lost(failure: CudaFailure, device: int) -> DeviceLost:
    """Return the error that a failure of CUDA becomes: beside cuDLA, no error of CUDA leaves anything to rely on."""
    message = f"DLA {device}: {failure.call} failed with CUDA error {failure.code} ({failure.name})"
    return DeviceLost(message, "Restart the process; codecfleet doctor shows what the machine can do.")


class CudaCalls:
    """The primary context of the GPU that DLAs are coupled with: the integrated one, whatever else is attached (3.4).

    Its threads block while they wait, by CUDA for Tegra 3.5, and host memory for copies is page-locked, by 3.1 and 3.2:
    every Tegra with a DLA is I/O coherent, so the processor caches such memory.

    Every method may raise ``CudaFailure``.

    Args:
        driver: ``cuda.bindings.driver``, or what stands for it.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._call("cuInit", 0)
        self._gpu = self._integrated()
        self._block_while_waiting()
        self._context = self._call("cuDevicePrimaryCtxRetain", self._gpu)

    def _integrated(self) -> Any:
        """Return the integrated GPU, or the first one where none is: cuDLA then says that it does not fit."""
        gpus = [self._call("cuDeviceGet", ordinal) for ordinal in range(self._call("cuDeviceGetCount"))]
        attribute = self._driver.CUdevice_attribute(INTEGRATED)
        return next((gpu for gpu in gpus if self._call("cuDeviceGetAttribute", attribute, gpu)), gpus[0])

    def _block_while_waiting(self) -> None:
        try:
            self._call("cuDevicePrimaryCtxSetFlags", self._gpu, BLOCKING_SYNC)
        except CudaFailure as failure:
            if failure.code != CONTEXT_ACTIVE:
                raise

    def enter(self) -> None:
        """Make the context the calling thread's."""
        self._call("cuCtxSetCurrent", self._context)

    def release(self) -> None:
        """Give the context back; every cuDLA handle must be destroyed by then (CUDA for Tegra 5.4)."""
        self._call("cuDevicePrimaryCtxRelease", self._gpu)

    def create_stream(self) -> int:
        """Return a new stream."""
        return int(self._call("cuStreamCreate", NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        """End a stream."""
        self._call("cuStreamDestroy", stream)

    def wait_for(self, stream: int) -> None:
        """Wait until a stream has done everything."""
        self._call("cuStreamSynchronize", stream)

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new device memory."""
        return int(self._call("cuMemAlloc", size_bytes))

    def free(self, memory: int) -> None:
        """Give memory back."""
        self._call("cuMemFree", memory)

    def allocate_host(self, size_bytes: int) -> int:
        """Return the address of new page-locked host memory."""
        return int(self._call("cuMemHostAlloc", size_bytes, 0))

    def free_host(self, address: int) -> None:
        """Give page-locked memory back."""
        self._call("cuMemFreeHost", address)

    def copy_in(self, memory: int, host: int, size_bytes: int, stream: int) -> None:
        """Queue a copy from the host; the host's memory must stay until the stream has done it."""
        self._call("cuMemcpyHtoDAsync", memory, host, size_bytes, stream)

    def copy_out(self, host: int, memory: int, size_bytes: int, stream: int) -> None:
        """Queue a copy to the host."""
        self._call("cuMemcpyDtoHAsync", host, memory, size_bytes, stream)

    def fill(self, memory: int, value: int, size_bytes: int, stream: int) -> None:
        """Queue the filling of memory with one byte."""
        self._call("cuMemsetD8Async", memory, value, size_bytes, stream)

    def _call(self, name: str, *arguments: object) -> Any:
        error, *values = getattr(self._driver, name)(*arguments)
        if int(error) != 0:
            raise CudaFailure(name, int(error), getattr(error, "name", str(error)))
        return values[0] if values else None
