"""cuDLA's functions, one by one: through NVIDIA's binding, or straight from the library.

Nothing is decided here. Each function of the C interface is one method, its failure one ``CudlaFailure``.
"""

import ctypes
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, Final

import numpy as np

from .session import DeviceAttributes
from .statuses import CudlaFailure, FunctionMissing, Status
from .task_memory import TaskMemory
from .tensors import TENSOR_DESCRIPTOR, TensorDescriptor

__all__ = ["CudlaBinding", "CudlaLibrary", "ModuleAttribute", "NativeCudla"]

HYBRID, STANDALONE = 0, 1
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


class CudlaLibrary(ABC):
    """What both ways to cuDLA can do. Handles and addresses are plain numbers.

    Every method but ``last_error`` may raise ``CudlaFailure``.
    """

    @abstractmethod
    def version(self) -> int:
        """Return 1,000,000 x major + 1,000 x minor + patch (``cudlaGetVersion``)."""

    @abstractmethod
    def device_count(self) -> int:
        """Return how many DLAs there are (``cudlaDeviceGetCount``)."""

    @abstractmethod
    def create_device(self, device: int) -> int:
        """Return a new handle (``cudlaCreateDevice``)."""

    @abstractmethod
    def destroy_device(self, handle: int) -> None:
        """End a handle (``cudlaDestroyDevice``)."""

    @abstractmethod
    def attributes(self, handle: int) -> DeviceAttributes:
        """Return all device attributes (``cudlaDeviceGetAttribute``)."""

    @abstractmethod
    def load(self, handle: int, loadable: bytes, flags: int) -> int:
        """Return a module's handle (``cudlaModuleLoadFromMemory``); no bytes are passed on as no address."""

    @abstractmethod
    def descriptors(self, module: int, attribute: ModuleAttribute) -> tuple[TensorDescriptor, ...]:
        """Return the descriptors of one kind (``cudlaModuleGetAttributes``)."""

    @abstractmethod
    def unload(self, module: int) -> None:
        """End a module (``cudlaModuleUnload``)."""

    @abstractmethod
    def unregister(self, handle: int, dla_address: int) -> None:
        """End a registration (``cudlaMemUnregister``)."""

    @abstractmethod
    def submit(self, handle: int, tasks: TaskMemory, stream: int, flags: int) -> None:
        """Queue tasks (``cudlaSubmitTask``)."""

    @abstractmethod
    def last_error(self, handle: int) -> Status:
        """Return the latest asynchronous error (``cudlaGetLastError``)."""

    @abstractmethod
    def set_task_timeout(self, handle: int, milliseconds: int) -> None:
        """Limit the time of a task (``cudlaSetTaskTimeoutInMs``)."""


class CudlaBinding(CudlaLibrary):
    """``cuda.bindings.cudla``: hybrid mode alone, the binding refuses standalone mode by itself.

    Args:
        binding: the module, or what stands for it.
    """

    def __init__(self, binding: Any) -> None:  # noqa: ANN401 - a module that publishes no types
        self._binding = binding

    def version(self) -> int:
        """Return the version."""
        return int(self._call("cudlaGetVersion", "get_version"))

    def device_count(self) -> int:
        """Return the count."""
        return int(self._call("cudlaDeviceGetCount", "device_get_count"))

    def create_device(self, device: int) -> int:
        """Return a handle in hybrid mode; a CUDA context must be current."""
        return int(self._call("cudlaCreateDevice", "create_device", device, HYBRID))

    def destroy_device(self, handle: int) -> None:
        """End a handle."""
        self._call("cudlaDestroyDevice", "destroy_device", handle)

    def attributes(self, handle: int) -> DeviceAttributes:
        """Return the attributes."""
        shared, version = (
            self._call("cudlaDeviceGetAttribute", "device_get_attribute", handle, which)
            for which in (UNIFIED_ADDRESSING, DEVICE_VERSION)
        )
        return DeviceAttributes(bool(shared.unified_addressing_supported), int(version.device_version))

    def load(self, handle: int, loadable: bytes, flags: int) -> int:
        """Return a module."""
        return int(
            self._call(
                "cudlaModuleLoadFromMemory", "module_load_from_memory", handle, loadable or 0, len(loadable), int(flags)
            )
        )

    def descriptors(self, module: int, attribute: ModuleAttribute) -> tuple[TensorDescriptor, ...]:
        """Return the descriptors; the binding counts them itself, and fails where there are none to describe."""
        if not self._call("cudlaModuleGetAttributes", "module_get_attributes", module, int(COUNT_OF[attribute])):
            return ()
        found = self._call("cudlaModuleGetAttributes", "module_get_attributes", module, int(attribute))
        # Read as they lie in memory: the binding's own fields are views that end with it.
        records = (ctypes.string_at(descriptor.ptr, TENSOR_DESCRIPTOR.itemsize) for descriptor in found)
        return tuple(TensorDescriptor.from_record(np.frombuffer(r, dtype=TENSOR_DESCRIPTOR)[0]) for r in records)

    def unload(self, module: int) -> None:
        """End a module."""
        self._call("cudlaModuleUnload", "module_unload", module, 0)

    def register(self, handle: int, memory: int, size_bytes: int, flags: int) -> int:
        """Return where the DLA sees CUDA memory (``cudlaMemRegister``)."""
        return int(self._call("cudlaMemRegister", "mem_register", handle, memory, size_bytes, int(flags)))

    def unregister(self, handle: int, dla_address: int) -> None:
        """End a registration."""
        self._call("cudlaMemUnregister", "mem_unregister", handle, dla_address)

    def submit(self, handle: int, tasks: TaskMemory, stream: int, flags: int) -> None:
        """Queue tasks on a CUDA stream."""
        self._call("cudlaSubmitTask", "submit_task", handle, tasks.address, tasks.count, stream, int(flags))

    def last_error(self, handle: int) -> Status:
        """Return the latest error."""
        return Status.of(int(self._binding.get_last_error(handle)))

    def set_task_timeout(self, handle: int, milliseconds: int) -> None:
        """Limit tasks."""
        self._call("cudlaSetTaskTimeoutInMs", "set_task_timeout_in_ms", handle, milliseconds)

    def _call(self, function: str, name: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever it returns
        try:
            return getattr(self._binding, name)(*arguments)
        except self._binding.CudlaError as error:
            raise CudlaFailure(function, Status.of(int(error.status))) from None
        except RuntimeError as error:
            # The binding looks for the library, and for each function, when it is first called.
            if "FunctionNotFound" in type(error).__name__:
                raise FunctionMissing(function) from None
            raise CudlaFailure(function, Status.DRIVER_NOT_FOUND) from None


class _MemoryDescriptor(ctypes.Structure):
    """``cudlaExternalMemoryHandleDesc``."""

    _fields_ = (("object", ctypes.c_void_p), ("size_bytes", ctypes.c_ulonglong))


class _SemaphoreDescriptor(ctypes.Structure):
    """``cudlaExternalSemaphoreHandleDesc``."""

    _fields_ = (("object", ctypes.c_void_p),)


class NativeCudla(CudlaLibrary):
    """``libcudla.so.1`` itself: standalone mode, with the NvSci imports that the binding lacks.

    Written from cudla.h and CUDA for Tegra 5.1; never run on hardware.

    Args:
        library: ``ctypes.CDLL("libcudla.so.1")``, or what stands for it.
    """

    def __init__(self, library: Any) -> None:  # noqa: ANN401 - a ctypes library has no types of its own
        self._library = library

    def version(self) -> int:
        """Return the version."""
        value = ctypes.c_uint64()
        self._call("cudlaGetVersion", ctypes.byref(value))
        return value.value

    def device_count(self) -> int:
        """Return the count."""
        value = ctypes.c_uint64()
        self._call("cudlaDeviceGetCount", ctypes.byref(value))
        return value.value

    def create_device(self, device: int) -> int:
        """Return a handle in standalone mode."""
        value = ctypes.c_void_p()
        self._call("cudlaCreateDevice", ctypes.c_uint64(device), ctypes.byref(value), ctypes.c_uint32(STANDALONE))
        return int(value.value or 0)

    def destroy_device(self, handle: int) -> None:
        """End a handle."""
        self._call("cudlaDestroyDevice", ctypes.c_void_p(handle))

    def attributes(self, handle: int) -> DeviceAttributes:
        """Return the attributes; the smaller one is read from the first byte of the union."""
        shared, version = (self._attribute(handle, which) for which in (UNIFIED_ADDRESSING, DEVICE_VERSION))
        return DeviceAttributes(bool(shared & 0xFF), version)

    def load(self, handle: int, loadable: bytes, flags: int) -> int:
        """Return a module."""
        value = ctypes.c_void_p()
        self._call(
            "cudlaModuleLoadFromMemory",
            *(ctypes.c_void_p(handle), ctypes.c_char_p(loadable or None), ctypes.c_size_t(len(loadable))),
            *(ctypes.byref(value), ctypes.c_uint32(flags)),
        )
        return int(value.value or 0)

    def descriptors(self, module: int, attribute: ModuleAttribute) -> tuple[TensorDescriptor, ...]:
        """Return the descriptors: their number first, then an array for so many."""
        count = ctypes.c_uint64()  # the union, whose first four bytes are the number
        self._call(
            "cudlaModuleGetAttributes", ctypes.c_void_p(module), ctypes.c_int(COUNT_OF[attribute]), ctypes.byref(count)
        )
        records = np.zeros(count.value & 0xFFFFFFFF, dtype=TENSOR_DESCRIPTOR)
        if not len(records):
            return ()
        where = ctypes.c_uint64(records.ctypes.data)
        self._call("cudlaModuleGetAttributes", ctypes.c_void_p(module), ctypes.c_int(attribute), ctypes.byref(where))
        return tuple(TensorDescriptor.from_record(record) for record in records)

    def unload(self, module: int) -> None:
        """End a module."""
        self._call("cudlaModuleUnload", ctypes.c_void_p(module), ctypes.c_uint32(0))

    def import_memory(self, handle: int, buffer: int, size_bytes: int, flags: int) -> int:
        """Return where the DLA sees an NvSciBufObj (``cudlaImportExternalMemory``)."""
        described = _MemoryDescriptor(buffer, size_bytes)
        return self._imported("cudlaImportExternalMemory", handle, ctypes.byref(described), flags)

    def import_semaphore(self, handle: int, sync: int) -> int:
        """Return where the DLA sees an NvSciSyncObj (``cudlaImportExternalSemaphore``)."""
        described = _SemaphoreDescriptor(sync)
        return self._imported("cudlaImportExternalSemaphore", handle, ctypes.byref(described), 0)

    def sync_attributes(self, attribute_list: int, flags: int) -> None:
        """Fill an NvSciSyncAttrList of the caller's with what cuDLA needs (``cudlaGetNvSciSyncAttributes``)."""
        self._call("cudlaGetNvSciSyncAttributes", ctypes.c_void_p(attribute_list), ctypes.c_uint32(flags))

    def unregister(self, handle: int, dla_address: int) -> None:
        """End a registration."""
        self._call("cudlaMemUnregister", ctypes.c_void_p(handle), ctypes.c_void_p(dla_address))

    def submit(self, handle: int, tasks: TaskMemory, stream: int, flags: int) -> None:
        """Queue tasks; there is no stream in this mode."""
        self._call(
            "cudlaSubmitTask",
            *(ctypes.c_void_p(handle), ctypes.c_void_p(tasks.address), ctypes.c_uint32(tasks.count)),
            *(ctypes.c_void_p(stream or None), ctypes.c_uint32(flags)),
        )

    def last_error(self, handle: int) -> Status:
        """Return the latest error."""
        return Status.of(int(self._library.cudlaGetLastError(ctypes.c_void_p(handle))))

    def set_task_timeout(self, handle: int, milliseconds: int) -> None:
        """Limit tasks."""
        self._call("cudlaSetTaskTimeoutInMs", ctypes.c_void_p(handle), ctypes.c_uint32(milliseconds))

    def _attribute(self, handle: int, which: int) -> int:
        value = ctypes.c_uint32()
        self._call("cudlaDeviceGetAttribute", ctypes.c_void_p(handle), ctypes.c_int(which), ctypes.byref(value))
        return value.value

    def _imported(self, function: str, handle: int, described: object, flags: int) -> int:
        value = ctypes.c_void_p()
        self._call(function, ctypes.c_void_p(handle), described, ctypes.byref(value), ctypes.c_uint32(flags))
        return int(value.value or 0)

    def _call(self, function: str, *arguments: object) -> None:
        if not hasattr(self._library, function):
            raise FunctionMissing(function)
        status = Status.of(int(getattr(self._library, function)(*arguments)))
        if status is not Status.SUCCESS:
            raise CudlaFailure(function, status)
