"""The calls of CUDA's driver API that sessions use; the driver's errors become codecfleet's errors.

``cuda.bindings.driver`` releases the GIL while it waits. A worker sees one device, ordinal 0; a user's program may see
several devices, and may have its own context.
"""

from typing import Any, Final
from uuid import UUID

from ....errors import DeviceError, DeviceMemory, EngineUnfit, UsageError
from ...device.memory_choice import PINNED, Attach, MemoryChoice, Platform
from ...watchdog import WatchedCall, process_watch
from .results import FATAL_RESULTS, kind_of_result, name_of_result

_FIX: Final = "Run codecfleet doctor to see what this machine's driver can do, or use --device cpu."
_MEMORY_POOLS_SUPPORTED: Final = 115
"""CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED."""
_NO_TIMING: Final = 2
"""CU_EVENT_DISABLE_TIMING."""
_FREE_MEMORY: Final = "End other programs that use this GPU, or use --device cpu."


def cuda_error(code: int, beginning: str, name: str = "") -> DeviceError:
    """Return codecfleet's error for a CUresult, with a message that starts with ``beginning``."""
    fatal = FATAL_RESULTS.get(code)
    name = name or name_of_result(code)
    message = f"{beginning} CUDA error {code}{f' ({name})' if name else ''}{f': {fatal.why}' if fatal else ''}"
    kind = kind_of_result(code, DeviceError)
    return kind(message, _FREE_MEMORY if kind is DeviceMemory else _FIX)


def check_cuda(error: Any, what: str) -> None:
    """Raise DeviceMemory, EngineUnfit, EngineHung, DeviceLost or DeviceError for a CUresult other than 0."""
    if code := int(error):
        raise cuda_error(code, f"{what} failed with", getattr(error, "name", ""))


class Cuda:
    """One device's context, through ``cuda.bindings.driver``. Safe from any thread.

    The calling thread's current context is the same after each call as before.

    ``device`` is the device's ordinal, or its UUID as ``nvidia-smi -L`` writes it. None means the device of ``context``
    or, without a context, the first device. ``context`` is the handle of a context that the caller keeps alive; None
    means the device's primary context.

    Raises:
        EngineUnfit: there is no driver.
        UsageError: there is no such device, or ``context`` belongs to another device.
        DeviceError: the driver gives no context. (PyNvVideoCodec would end the process in this case.)
    """

    def __init__(self, driver: Any, device: int | str | None = None, context: int | None = None) -> None:
        self._driver = driver
        self.watch = process_watch()
        try:
            self._opened("cuInit", 0)
        except RuntimeError as error:  # the binding's own error: the driver is missing or too old
            message = f"CUDA cannot be used here: {next(iter(str(error).splitlines()), type(error).__name__)}"
            raise EngineUnfit(message, _FIX) from error
        self.ordinal = self._ordinal(device)
        self._device = self._call("cuDeviceGet", self.ordinal)
        if context is None:
            self._context = self._opened("cuDevicePrimaryCtxRetain", self._device)
        else:
            self._context = driver.CUcontext(context)
        self.entered = _Entered(self)
        """``with cuda.entered:`` makes the context current in the calling thread, and then restores the old context."""
        if context is not None:
            self._check_context(device)
        self.has_pools = bool(self._attribute(_MEMORY_POOLS_SUPPORTED))
        """Whether memory can be allocated and freed in stream order (CUDA for Tegra, section 3.6; CUDA driver API)."""
        self.platform = Platform.of(self._attribute)
        """The device properties from which ``choose_memory`` chooses a buffer's memory."""

    @property
    def context(self) -> int:
        """The context's handle (CUcontext) as a number."""
        return int(self._context)

    def push(self) -> None:
        """Push the context: it becomes the calling thread's current context."""
        self._begun("cuCtxPushCurrent", self._context)

    def pop(self) -> None:
        """Make the previous context current again."""
        error, _ = self._driver.cuCtxPopCurrent()
        check_cuda(error, "cuCtxPopCurrent")

    def free_bytes(self) -> int:
        """Return how much of the device's memory is free."""
        with self.entered:
            free, _ = self._call("cuMemGetInfo")
            return int(free)

    def stream(self) -> "Stream":
        """Open a stream that does not wait for the default stream; the caller closes it."""
        with self.entered:
            return Stream(self, self._call("cuStreamCreate", self._driver.CUstream_flags.CU_STREAM_NON_BLOCKING))

    def event(self) -> Any:
        """Make an event that orders work and measures no time."""
        with self.entered:
            return self._call("cuEventCreate", _NO_TIMING)

    def record(self, event: Any, stream: int) -> None:
        """Record an event after all work in a stream; handles 1 and 2 are default streams of the current context."""
        self._begun("cuEventRecord", event, stream)

    def wait_for_event(self, stream: "Stream", event: Any) -> None:
        """Make later work in a stream wait for the last recording of an event. Returns at once."""
        self._begun("cuStreamWaitEvent", stream.handle, event, 0)

    def stream_of(self, handle: int) -> "Stream":
        """Wrap the handle of a stream that another owner opened and will close."""
        return Stream(self, handle)

    def allocate(self, size_bytes: int) -> int:
        """Allocate memory of the device; return its address."""
        with self.entered:
            return int(self._call("cuMemAlloc", size_bytes))

    def free(self, address: int) -> None:
        """Free memory that ``allocate`` returned. Waits for all work of the device."""
        with self.entered:
            self._call("cuMemFree", address)

    def allocate_in(self, stream: "Stream", size_bytes: int) -> int:
        """Allocate memory for later work in ``stream``; return its address."""
        return int(self._call("cuMemAllocAsync", size_bytes, stream.handle))

    def free_in(self, stream: "Stream", address: int) -> None:
        """Free memory that ``allocate_in`` returned, after all current work in ``stream``. Returns at once."""
        self._begun("cuMemFreeAsync", address, stream.handle)

    def pin(self, size_bytes: int, choice: MemoryChoice = PINNED) -> int:
        """Allocate memory that the processor can also use, page-locked or managed; return its address."""
        function, behind = choice.allocating
        with self.entered:
            return int(self._call(function, size_bytes, *behind))

    def unpin(self, address: int, choice: MemoryChoice = PINNED) -> None:
        """Free memory that ``pin`` returned for the same ``choice``."""
        with self.entered:
            self._call(choice.freeing, address)

    def attach(self, address: int, to: Attach, stream: "Stream") -> None:
        """Change the attachment of managed memory, as part of the work in a stream (CUDA for Tegra, section 3.3)."""
        self._begun("cuStreamAttachMemAsync", stream.handle, address, 0, to.value)

    def copy_to_host(self, host: int, device: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy from the device; the stream completes the copy."""
        self._begun("cuMemcpyDtoHAsync", host, device, size_bytes, stream.handle)

    def copy_to_device(self, device: int, host: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy to the device; the stream completes the copy."""
        self._begun("cuMemcpyHtoDAsync", device, host, size_bytes, stream.handle)

    def copy_on_device(self, target: int, source: int, size_bytes: int, stream: "Stream") -> None:
        """Begin to copy within the device; the stream completes the copy."""
        self._begun("cuMemcpyDtoDAsync", target, source, size_bytes, stream.handle)

    def launch(
        self, kernel: Any, grid: tuple[int, int, int], block: tuple[int, int], arguments: int, stream: "Stream"
    ) -> None:
        """Begin to run a kernel; ``arguments`` is the address of an array of pointers to its arguments."""
        self._begun("cuLaunchKernel", kernel, *grid, *block, 1, 0, stream.handle, arguments, 0)

    def function(self, kernel: Any) -> Any:
        """Return a kernel of ``cuda.core`` in the form that ``launch`` takes."""
        return self._driver.CUfunction(int(kernel))

    def destroy_stream(self, handle: Any) -> None:
        """Close the stream with this handle."""
        with self.entered:
            self._call("cuStreamDestroy", handle)

    def wait_for(self, handle: Any) -> None:
        """Wait until all work in the stream with this handle is done."""
        self._begun("cuStreamSynchronize", handle)

    def wait_for_all(self) -> None:
        """Wait until all of the context's streams are done."""
        self._begun("cuCtxSynchronize")

    def _attribute(self, number: int) -> int:
        return int(self._call("cuDeviceGetAttribute", self._driver.CUdevice_attribute(number), self._device))

    def _ordinal(self, device: int | str | None) -> int:
        if device is None:
            return 0
        count = self._call("cuDeviceGetCount")
        if isinstance(device, str):
            names = [self._uuid(ordinal) for ordinal in range(count)]
            wanted = device.partition("-")[2].lower()
            found = names.index(wanted) if wanted in names else count
        else:
            found = device
        if not 0 <= found < count:
            message = f"this process has no CUDA device {device}; it sees {count}, numbered from 0"
            raise UsageError(message, "nvidia-smi -L lists UUIDs; CUDA_VISIBLE_DEVICES limits a process's devices.")
        return int(found)

    def _uuid(self, ordinal: int) -> str:
        uuid = self._call("cuDeviceGetUuid", self._call("cuDeviceGet", ordinal))
        return str(UUID(bytes=bytes(uuid.bytes)))

    def _check_context(self, device: int | str | None) -> None:
        """Adopt the device of a caller's context; refuse it if another device was named."""
        try:
            with self.entered:
                found = int(self._call("cuCtxGetDevice"))
        except DeviceError as error:
            message = f"this process has no CUDA context {self.context}: {error.message}"
            raise UsageError(
                message, "Give the handle of an existing context, as cuCtxGetCurrent returns it."
            ) from error
        if device is not None and found != self.ordinal:
            message = f"the context belongs to device {found}, and not to device {device}"
            raise UsageError(message, "Give only the context or only the device.")
        self.ordinal = found
        self._device = self._call("cuDeviceGet", found)

    def _call(self, name: str, *arguments: object) -> Any:
        return self._watched(self.watch.calling("CUDA", name), name, arguments)

    def _begun(self, name: str, *arguments: object) -> None:
        """Call a driver function without a watch, because the caller's watch covers all calls of a picture."""
        (error,) = getattr(self._driver, name)(*arguments)
        if error:
            check_cuda(error, name)

    def _opened(self, name: str, *arguments: object) -> Any:
        return self._watched(self.watch.opening("CUDA", name), name, arguments)

    def _watched(self, call: WatchedCall, name: str, arguments: tuple[object, ...]) -> Any:
        with call:
            error, *values = getattr(self._driver, name)(*arguments)
        check_cuda(error, name)
        return values[0] if len(values) == 1 else tuple(values)


class _Entered:
    """Pushes a context and pops it again. All threads share one object, which holds no state."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def __enter__(self) -> None:
        self._cuda.push()

    def __exit__(self, *raised: object) -> None:
        self._cuda.pop()


class Stream:
    """A CUDA stream, whose work runs in order."""

    def __init__(self, cuda: Cuda, handle: Any) -> None:
        self._cuda = cuda
        self.handle = handle

    @property
    def number(self) -> int:
        """The handle in the form that PyNvVideoCodec takes."""
        return int(self.handle)

    def wait(self) -> None:
        """Wait until all work in the stream is done."""
        self._cuda.wait_for(self.handle)

    def close(self) -> None:
        """Close the stream."""
        self._cuda.destroy_stream(self.handle)
