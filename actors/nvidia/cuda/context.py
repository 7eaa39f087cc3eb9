"""What sessions need of CUDA's driver API, with its errors mapped.

Every call goes through ``cuda.bindings.driver``, which releases the interpreter while it waits. Only one device is
visible to a worker process, so it is always ordinal 0.
"""

from typing import Any, Final, NoReturn

from ....errors import DeviceError, DeviceMemory, EngineUnfit
from ...device.memory_choice import PINNED, Attach, MemoryChoice, Platform
from ...watchdog import WatchedCall, process_watch
from .results import FATAL_RESULTS, kind_of_result, name_of_result

_FIX: Final = "codecfleet doctor says what this machine's driver can do; --device cpu does without it."
_FREE_MEMORY: Final = "End what else uses this GPU, or use --device cpu."


def cuda_error(code: int, beginning: str, name: str = "") -> DeviceError:
    """Return our error for a CUresult, its message starting with ``beginning``."""
    fatal = FATAL_RESULTS.get(code)
    name = name or name_of_result(code)
    message = f"{beginning} CUDA error {code}{f' ({name})' if name else ''}{f': {fatal.why}' if fatal else ''}"
    kind = kind_of_result(code, DeviceError)
    return kind(message, _FREE_MEMORY if kind is DeviceMemory else _FIX)


def raise_cuda(code: int, what: str, name: str = "") -> NoReturn:
    """Raise our error for a CUresult: DeviceMemory, EngineUnfit, EngineHung, DeviceLost or DeviceError."""
    raise cuda_error(code, f"{what} failed with", name)


class Cuda:
    """The primary context of the one visible device, through ``cuda.bindings.driver``. Safe from any thread.

    ``watch`` reports calls that do not return; None is the process's.

    Raises:
        EngineUnfit: there is no driver.
        DeviceError: the driver does not give a context. Asked here first, because PyNvVideoCodec ends the process then.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.watch = process_watch()
        try:
            self._opened("cuInit", 0)
        except RuntimeError as error:  # the binding's own: it finds no driver, or an old one
            message = f"CUDA cannot be used here: {next(iter(str(error).splitlines()), type(error).__name__)}"
            raise EngineUnfit(message, _FIX) from error
        self._device = self._call("cuDeviceGet", 0)
        self._context = self._opened("cuDevicePrimaryCtxRetain", self._device)
        self.platform = Platform.of(self._attribute)
        """What decides which memory a buffer lies in."""

    @property
    def context(self) -> int:
        """The context's handle."""
        return int(self._context)

    def enter(self) -> None:
        """Make the context the calling thread's."""
        self._call("cuCtxSetCurrent", self._context)

    def free_bytes(self) -> int:
        """Return how much of the device's memory is free."""
        self.enter()
        free, _ = self._call("cuMemGetInfo")
        return int(free)

    def stream(self) -> "Stream":
        """Open a stream."""
        self.enter()
        return Stream(self, self._call("cuStreamCreate", self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def stream_of(self, handle: int) -> "Stream":
        """Return a stream that somebody else opened, and closes."""
        return Stream(self, handle)

    def allocate(self, size_bytes: int) -> int:
        """Allocate memory of the device; return its address."""
        self.enter()
        return int(self._call("cuMemAlloc", size_bytes))

    def free(self, address: int) -> None:
        """Give such memory back."""
        self.enter()
        self._call("cuMemFree", address)

    def pin(self, size_bytes: int, choice: MemoryChoice = PINNED) -> int:
        """Allocate memory that the processor uses, too: page-locked, or managed; return its address."""
        self.enter()
        function, behind = choice.allocating
        return int(self._call(function, size_bytes, *behind))

    def unpin(self, address: int, choice: MemoryChoice = PINNED) -> None:
        """Give such memory back."""
        self.enter()
        self._call(choice.freeing, address)

    def attach(self, address: int, to: Attach, stream: "Stream") -> None:
        """Attach managed memory, in the order of a stream (CUDA for Tegra 3.3)."""
        self._begun("cuStreamAttachMemAsync", stream.handle, address, 0, to.value)

    def copy_to_host(self, host: int, device: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy from the device; done when the stream is."""
        self._begun("cuMemcpyDtoHAsync", host, device, size_bytes, stream.handle)

    def copy_to_device(self, device: int, host: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy to the device; done when the stream is."""
        self._begun("cuMemcpyHtoDAsync", device, host, size_bytes, stream.handle)

    def copy_on_device(self, target: int, source: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy within the device; done when the stream is."""
        self._begun("cuMemcpyDtoDAsync", target, source, size_bytes, stream.handle)

    def launch(
        self, kernel: Any, grid: tuple[int, int], block: tuple[int, int], arguments: int, stream: "Stream"
    ) -> None:
        """Begin to run a kernel; ``arguments`` is the address of an array of pointers to its arguments."""
        self._begun("cuLaunchKernel", kernel, *grid, 1, *block, 1, 0, stream.handle, arguments, 0)

    def function(self, kernel: Any) -> Any:
        """Return a kernel of ``cuda.core`` as ``launch`` takes it."""
        return self._driver.CUfunction(int(kernel))

    def destroy_stream(self, handle: Any) -> None:
        """Close a stream."""
        self.enter()
        self._call("cuStreamDestroy", handle)

    def wait_for(self, handle: Any) -> None:
        """Wait until a stream is done."""
        self._begun("cuStreamSynchronize", handle)

    def wait_for_all(self) -> None:
        """Wait until all of the context's streams are done."""
        self._begun("cuCtxSynchronize")

    def _attribute(self, number: int) -> int:
        return int(self._call("cuDeviceGetAttribute", self._driver.CUdevice_attribute(number), self._device))

    def _call(self, name: str, *arguments: object) -> Any:
        return self._watched(self.watch.calling("CUDA", name), name, arguments)

    def _begun(self, name: str, *arguments: object) -> None:
        """Call without a watch of its own: for every picture, one watch covers all its calls."""
        (error,) = getattr(self._driver, name)(*arguments)
        if error:
            raise_cuda(int(error), name, getattr(error, "name", ""))

    def _opened(self, name: str, *arguments: object) -> Any:
        return self._watched(self.watch.opening("CUDA", name), name, arguments)

    def _watched(self, call: WatchedCall, name: str, arguments: tuple[object, ...]) -> Any:
        with call:
            error, *values = getattr(self._driver, name)(*arguments)
        if int(error) != 0:
            raise_cuda(int(error), name, getattr(error, "name", ""))
        return values[0] if len(values) == 1 else tuple(values)


class Stream:
    """A CUDA stream, whose work runs in order."""

    def __init__(self, cuda: Cuda, handle: Any) -> None:
        self._cuda = cuda
        self.handle = handle

    @property
    def number(self) -> int:
        """The handle as PyNvVideoCodec takes it."""
        return int(self.handle)

    def wait(self) -> None:
        """Wait until all its work is done."""
        self._cuda.wait_for(self.handle)

    def close(self) -> None:
        """Close it."""
        self._cuda.destroy_stream(self.handle)
