"""cuDLA's functions, one by one, through NVIDIA's binding.

Nothing is decided here. Each function of the C interface is one method, its failure one ``CudlaFailure``.
"""

import ctypes
from enum import IntEnum
from typing import Any, Final

import numpy as np

from .statuses import CudlaFailure, CudlaStatus, FunctionMissing
from .tasks import DeviceAttributes, TaskMemory
from .tensors import TENSOR_DESCRIPTOR, TensorDescriptor

HYBRID = 0
UNIFIED_ADDRESSING, DEVICE_VERSION = 0, 1


class ModuleAttribute(IntEnum):
    """``cudlaModuleAttributeType``."""

    NUM_INPUT_TENSORS = 0
    NUM_OUTPUT_TENSORS = 1
    INPUT_TENSOR_DESCRIPTORS = 2
    OUTPUT_TENSOR_DESCRIPTORS = 3
    NUM_OUTPUT_TASK_STATISTICS = 4
    OUTPUT_TASK_STATISTICS_DESCRIPTORS = 5


COUNT_OF: Final = {
    ModuleAttribute.INPUT_TENSOR_DESCRIPTORS: ModuleAttribute.NUM_INPUT_TENSORS,
    ModuleAttribute.OUTPUT_TENSOR_DESCRIPTORS: ModuleAttribute.NUM_OUTPUT_TENSORS,
    ModuleAttribute.OUTPUT_TASK_STATISTICS_DESCRIPTORS: ModuleAttribute.NUM_OUTPUT_TASK_STATISTICS,
}


class CudlaBinding:
    """``cuda.bindings.cudla``, in hybrid mode: the binding refuses standalone mode.

    Handles and addresses are plain numbers. Every method but ``last_error`` may raise ``CudlaFailure``.

    Args:
        binding: the module, or what stands for it.
    """

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def version(self) -> int:
        """Return 1,000,000 x major + 1,000 x minor + patch (``cudlaGetVersion``)."""
        return int(self._call("cudlaGetVersion", "get_version"))

    def device_count(self) -> int:
        """Return how many DLAs there are (``cudlaDeviceGetCount``)."""
        return int(self._call("cudlaDeviceGetCount", "device_get_count"))

    def create_device(self, device: int) -> int:
        """Return a new handle (``cudlaCreateDevice``); a CUDA context must be current."""
        return int(self._call("cudlaCreateDevice", "create_device", device, HYBRID))

    def destroy_device(self, handle: int) -> None:
        """End a handle (``cudlaDestroyDevice``)."""
        self._call("cudlaDestroyDevice", "destroy_device", handle)

    def attributes(self, handle: int) -> DeviceAttributes:
        """Return all device attributes (``cudlaDeviceGetAttribute``)."""
        shared, version = (
            self._call("cudlaDeviceGetAttribute", "device_get_attribute", handle, which)
            for which in (UNIFIED_ADDRESSING, DEVICE_VERSION)
        )
        return DeviceAttributes(bool(shared.unified_addressing_supported), int(version.device_version))

    def load(self, handle: int, loadable: bytes, flags: int) -> int:
        """Return a module's handle (``cudlaModuleLoadFromMemory``); no bytes are passed on as no address."""
        return int(
            self._call(
                "cudlaModuleLoadFromMemory", "module_load_from_memory", handle, loadable or 0, len(loadable), int(flags)
            )
        )

    def descriptors(self, module: int, attribute: ModuleAttribute) -> tuple[TensorDescriptor, ...]:
        """Return the descriptors of one kind (``cudlaModuleGetAttributes``); the binding fails where there are none."""
        if not self._call("cudlaModuleGetAttributes", "module_get_attributes", module, int(COUNT_OF[attribute])):
            return ()
        found = self._call("cudlaModuleGetAttributes", "module_get_attributes", module, int(attribute))
        # Read as they lie in memory: the binding's own fields are views that end with it.
        records = (ctypes.string_at(descriptor.ptr, TENSOR_DESCRIPTOR.itemsize) for descriptor in found)
        return tuple(TensorDescriptor.from_record(np.frombuffer(r, dtype=TENSOR_DESCRIPTOR)[0]) for r in records)

    def unload(self, module: int) -> None:
        """End a module (``cudlaModuleUnload``)."""
        self._call("cudlaModuleUnload", "module_unload", module, 0)

    def register(self, handle: int, memory: int, size_bytes: int, flags: int) -> int:
        """Return where the DLA sees CUDA memory (``cudlaMemRegister``)."""
        return int(self._call("cudlaMemRegister", "mem_register", handle, memory, size_bytes, int(flags)))

    def unregister(self, handle: int, dla_address: int) -> None:
        """End a registration (``cudlaMemUnregister``)."""
        self._call("cudlaMemUnregister", "mem_unregister", handle, dla_address)

    def submit(self, handle: int, tasks: TaskMemory, stream: int, flags: int) -> None:
        """Queue tasks on a CUDA stream (``cudlaSubmitTask``)."""
        self._call("cudlaSubmitTask", "submit_task", handle, tasks.address, tasks.count, stream, int(flags))

    def last_error(self, handle: int) -> CudlaStatus:
        """Return the latest asynchronous error (``cudlaGetLastError``)."""
        return CudlaStatus.of(int(self._binding.get_last_error(handle)))

    def set_task_timeout(self, handle: int, milliseconds: int) -> None:
        """Limit the time of a task (``cudlaSetTaskTimeoutInMs``)."""
        self._call("cudlaSetTaskTimeoutInMs", "set_task_timeout_in_ms", handle, milliseconds)

    def _call(self, function: str, name: str, *arguments: object) -> Any:
        try:
            return getattr(self._binding, name)(*arguments)
        except self._binding.CudlaError as error:
            raise CudlaFailure(function, CudlaStatus.of(int(error.status))) from None
        except RuntimeError as error:
            # The binding looks for the library, and for each function, when it is first called.
            if "FunctionNotFound" in type(error).__name__:
                raise FunctionMissing(function) from None
            raise CudlaFailure(function, CudlaStatus.DRIVER_NOT_FOUND) from None
