"""cuDLA's functions through NVIDIA's binding. Each failure is a ``CudlaFailure``; nothing is decided here."""

import ctypes
import re
from typing import Any, Final

import numpy as np

from .statuses import CudlaFailure, CudlaStatus, FunctionMissing
from .tensors import TENSOR_DESCRIPTOR, TensorDescriptor

DESCRIPTORS: Final = ((0, 2), (1, 3), (4, 5))
"""``cudlaModuleAttributeType`` of inputs, outputs and task statistics: their number, and their descriptors."""


class CudlaBinding:
    """``cuda.bindings.cudla``, in hybrid mode: the binding refuses standalone mode. Handles and addresses are numbers.

    Args:
        binding: the module, or a fake.
    """

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function by its C name: the binding's is the same, in lower case with underscores.

        Raises:
            CudlaFailure: it did not return success.
        """
        name = re.sub("(?<=.)([A-Z])", r"_\1", function.removeprefix("cudla")).lower()
        try:
            return getattr(self._binding, name)(*arguments)
        except self._binding.CudlaError as error:
            raise CudlaFailure(function, CudlaStatus.of(int(error.status))) from None
        except RuntimeError as error:
            # The binding looks for the library, and for each function, when it is first called.
            if "FunctionNotFound" in type(error).__name__:
                raise FunctionMissing(function) from None
            raise CudlaFailure(function, CudlaStatus.DRIVER_NOT_FOUND) from None

    def descriptors(self, module: int, kind: tuple[int, int]) -> tuple[TensorDescriptor, ...]:
        """Return the descriptors of one of ``DESCRIPTORS``; the binding fails where there are none.

        Raises:
            CudlaFailure: it did not return success.
        """
        if not self.call("cudlaModuleGetAttributes", module, kind[0]):
            return ()
        found = self.call("cudlaModuleGetAttributes", module, kind[1])
        # Read as they lie in memory: the binding's own fields are views that end with it.
        records = (ctypes.string_at(descriptor.ptr, TENSOR_DESCRIPTOR.itemsize) for descriptor in found)
        return tuple(TensorDescriptor.from_record(np.frombuffer(r, dtype=TENSOR_DESCRIPTOR)[0]) for r in records)

    def last_error(self, handle: int) -> CudlaStatus:
        """Return a handle's latest asynchronous error (``cudlaGetLastError``)."""
        return CudlaStatus.of(int(self._binding.get_last_error(handle)))
