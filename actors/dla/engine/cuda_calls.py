"""The part of CUDA's driver API that sessions use. Errors follow the rules of "CUDA for Tegra", section 5.1.5."""

from contextlib import suppress
from functools import partial
from typing import Any, Final

from ....errors import DeviceLost
from ...device.memory_choice import (
    INTEGRATED,
    BufferUse,
    MemoryChoice,
    Platform,
    Waiting,
    choose_memory,
)

EXTERNAL_DEVICE: Final = 911
"""The CUDA error for a failure of an engine outside CUDA; ask every cuDLA handle for its latest error then."""
_IS_MANAGED: Final = 8
"""``CU_POINTER_ATTRIBUTE_IS_MANAGED``."""
_INVALID_VALUE: Final = 1
CONTEXT_ACTIVE: Final = 708
"""The error of drivers before CUDA 11 when flags are set for a context that exists; the context keeps its flags."""


class CudaFailure(Exception):
    """A CUDA call that failed: the call's name, and the result's number and name."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(call, code, name)
        self.call = call
        self.code = code
        self.name = name


class _ContextActive(CudaFailure):
    """The context is already active, so its flags cannot be set (``CONTEXT_ACTIVE``)."""


def lost(failure: CudaFailure, device: int) -> DeviceLost:
    """Return the error for a failure of CUDA, after which cuDLA cannot be used either."""
    message = f"DLA {device}: {failure.call} failed with CUDA error {failure.code} ({failure.name})"
    return DeviceLost(message, "Restart the process; codecfleet doctor shows what the machine can do.")


class CudaCalls:
    """The primary context of the integrated GPU, which is coupled with DLAs. Methods raise ``CudaFailure``."""

    def __init__(self, driver: Any, waiting: Waiting = Waiting.BLOCK) -> None:
        self._driver = driver
        self.call("cuInit", 0)
        gpus = [self.call("cuDeviceGet", ordinal) for ordinal in range(self.call("cuDeviceGetCount"))]
        # Without an integrated GPU, take the first GPU, which cuDLA then refuses.
        self._gpu = next((gpu for gpu in gpus if self._attribute(gpu, INTEGRATED)), gpus[0])
        self._platform = Platform.of(partial(self._attribute, self._gpu))
        with suppress(_ContextActive):
            self.call("cuDevicePrimaryCtxSetFlags", self._gpu, waiting.value)
        self._context = self.call("cuDevicePrimaryCtxRetain", self._gpu)

    @property
    def context(self) -> int:
        """The context's handle (CUcontext) as a number."""
        return int(self._context)

    def enter(self) -> None:
        """Make the context current in the calling thread."""
        self.call("cuCtxSetCurrent", self._context)

    def allocate(self, use: BufferUse) -> tuple[MemoryChoice, int]:
        """Allocate memory as ``choose_memory`` chooses; return the choice and the address."""
        choice = choose_memory(use, self._platform)
        function, behind = choice.allocating
        return choice, int(self.call(function, use.size_bytes, *behind))

    def free(self, choice: MemoryChoice, address: int) -> None:
        """Free memory that ``allocate`` returned."""
        self.call(choice.freeing, address)

    def release(self) -> None:
        """Release the context; every cuDLA handle must be destroyed by then (CUDA for Tegra, section 5.4)."""
        self.call("cuDevicePrimaryCtxRelease", self._gpu)

    def is_managed(self, address: int) -> bool:
        """Whether an address is in managed memory; False if CUDA does not know the address."""
        try:
            return bool(self.call("cuPointerGetAttribute", self._driver.CUpointer_attribute(_IS_MANAGED), address))
        except CudaFailure as failure:
            if failure.code != _INVALID_VALUE:
                raise
            return False

    def _attribute(self, gpu: Any, number: int) -> int:
        return int(self.call("cuDeviceGetAttribute", self._driver.CUdevice_attribute(number), gpu))

    def call(self, name: str, *arguments: object) -> Any:
        """Call the driver's function with this name; return the first value."""
        error, *values = getattr(self._driver, name)(*arguments)
        if int(error) != 0:
            kind = _ContextActive if int(error) == CONTEXT_ACTIVE else CudaFailure
            raise kind(name, int(error), getattr(error, "name", str(error)))
        return values[0] if values else None
